"""ModelService and SingleNodeService: what models of the 0.x archives are made from."""

import json
import logging
import time
from pathlib import Path
from typing import Any

_log = logging.getLogger(__name__)


class ModelService:
    """A model with a signature: a file in its folder that names its inputs and their type."""

    def __init__(
        self, model_name: str, model_dir: str, manifest: dict[str, Any] | None, gpu: int | None = None
    ) -> None:
        self.ctx: Any = None
        self._context: Any = None
        self._signature: dict[str, Any] | None = None

    def initialize(self, context: Any) -> None:
        """Read the signature."""
        self._context = context
        model = (context.manifest or {}).get("Model") or {}
        file = Path(context.system_properties["model_dir"]) / (model.get("Signature") or "signature.json")
        if not file.is_file():
            raise RuntimeError(f"a model of this kind needs the signature file {file.name} beside it")
        self._signature = json.loads(file.read_bytes())

    def inference(self, data: list[Any]) -> Any:
        """Answer one request's inputs."""
        raise NotImplementedError(f"{type(self).__name__} must define inference(self, data)")

    def ping(self) -> None:
        """Say nothing: the server knows whether a worker lives."""

    def signature(self) -> dict[str, Any] | None:
        """What the signature file says."""
        return self._signature

    def handle(self, data: list[Any], context: Any) -> list[Any]:
        """Answer one request: such models know no batches."""
        return [self.inference([self._input(data[0])])]

    def _input(self, row: dict[str, Any]) -> Any:
        signature = self._signature or {}
        name = next((entry["data_name"] for entry in signature.get("inputs") or ()), "body")
        value = next((row[key] for key in (name, "body", "data") if row.get(key) is not None), None)
        if signature.get("input_type") == "application/json" and isinstance(value, bytes | bytearray):
            return json.loads(value)
        return value


class SingleNodeService(ModelService):
    """Three steps, each overridden by the model; their times are logged."""

    def inference(self, data: list[Any]) -> Any:
        """Run the three steps."""
        for step in (self._preprocess, self._inference, self._postprocess):
            started = time.perf_counter()
            data = step(data)
            _log.info("%s time: %.2f", step.__name__.lstrip("_"), (time.perf_counter() - started) * 1000)
        return data

    def _preprocess(self, data: Any) -> Any:
        return data

    def _inference(self, data: Any) -> Any:
        raise NotImplementedError(f"{type(self).__name__} must define _inference(self, data)")

    def _postprocess(self, data: Any) -> Any:
        return data
