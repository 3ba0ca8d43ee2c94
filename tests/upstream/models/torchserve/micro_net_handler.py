"""Micro batches set by model-config.yaml; each answer tells the slice it went through the model with."""

import json

import torch
from ts.handler_utils.micro_batching import MicroBatching
from ts.torch_handler.base_handler import BaseHandler


class MicroNetHandler(BaseHandler):
    def __init__(self):
        super().__init__()
        self.micro = MicroBatching(self)
        self.handle = self.micro

    def initialize(self, context):
        super().initialize(context)
        config = context.model_yaml_config["micro_batching"]
        self.micro.micro_batch_size = config["micro_batch_size"]
        self.micro.parallelism = config["parallelism"]

    def preprocess(self, data):
        rows = [row.get("data") or row.get("body") for row in data]
        rows = [json.loads(row) if isinstance(row, (bytes, bytearray)) else row for row in rows]
        return torch.tensor(rows, dtype=torch.float32)

    def postprocess(self, data):
        return [{"scores": row, "slice": len(data)} for row in data.tolist()]
