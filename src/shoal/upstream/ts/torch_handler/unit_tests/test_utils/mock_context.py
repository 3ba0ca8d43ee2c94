"""MockContext: a context for tests of handlers, with the model's files and nothing else."""

import uuid
from pathlib import Path
from typing import Any

import yaml

from shoal.upstream.ts.metrics.metrics_store import MetricsStore


class MockContext:
    """Says where a model's files are; asks for neither an explanation nor a description."""

    def __init__(
        self,
        model_pt_file: str | None = "model.pt",
        model_dir: str = "ts/torch_handler/unit_tests/models/tmp",
        model_file: str | None = "model.py",
        gpu_id: str | None = "0",
        model_name: str = "mnist",
        model_yaml_config_file: str | None = None,
    ) -> None:
        model = {"serializedFile": model_pt_file, "modelFile": model_file}
        self.manifest: dict[str, Any] = {"model": {key: value for key, value in model.items() if value}}
        self.system_properties: dict[str, Any] = {"model_dir": model_dir}
        self.explain = False
        self.metrics = MetricsStore(uuid.uuid4(), model_name)
        self.model_yaml_config: dict[str, Any] = {}
        if model_yaml_config_file is not None:
            text = Path(model_dir, model_yaml_config_file).read_text()
            self.model_yaml_config = yaml.safe_load(text) or {}

    def get_request_header(self, idx: int, exp: str) -> Any:
        """Whether an explanation is asked for; no request has any other header."""
        return self.explain if exp == "explain" else False
