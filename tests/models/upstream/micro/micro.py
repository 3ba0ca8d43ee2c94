"""Batches cut into micro batches; each step says which slice it saw, on which thread, and for whom."""

import threading
from typing import Any

from ts.handler_utils.micro_batching import MicroBatching  # type: ignore[import-not-found]
from ts.handler_utils.timer import timed  # type: ignore[import-not-found]


class MicroHandler:
    def __init__(self) -> None:
        self.context: Any = None
        self.handle = MicroBatching(self)

    def initialize(self, context: Any) -> None:
        settings = context.model_yaml_config["micro_batching"]
        self.handle.micro_batch_size = settings["micro_batch_size"]
        self.handle.parallelism = settings["parallelism"]

    @timed  # type: ignore[untyped-decorator]
    def preprocess(self, data: Any) -> Any:
        return [[row["body"], self.handle.get_micro_batch_idx(), len(data)] for row in data]

    def inference(self, data: Any) -> Any:
        if any(row[0] == "boom" for row in data):
            raise ValueError("boom in inference")
        return data

    def postprocess(self, data: Any) -> Any:
        known = self.context.get_request_id(0), threading.current_thread() is not threading.main_thread()
        return [[*row, *known] for row in data]

    def describe_handle(self) -> Any:
        return "described"

    def explain_handle(self, preprocessed: Any, raw: Any) -> Any:
        return [["explained", row[1]] for row in preprocessed]
