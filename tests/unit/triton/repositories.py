"""Model repositories on disk for tests: Python models that do nothing, with the settings a test gives them."""

import json
from pathlib import Path

PYTHON = 'backend: "python"\n'
TENSORS = (
    'input [ { name: "IN" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
    'output [ { name: "OUT" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
)
PLAIN = PYTHON + TENSORS
BATCHED = PYTHON + "max_batch_size: 8\n" + TENSORS


def put(root: Path, name: str, settings: str | None = BATCHED, *versions: str, file: str = "model.py") -> Path:
    """Write a model's folder with these versions, one where none is named."""
    folder = root / name
    folder.mkdir(parents=True, exist_ok=True)
    if settings is not None:
        (folder / "config.pbtxt").write_text(settings)
    for version in versions or ("1",):
        (folder / version).mkdir(exist_ok=True)
        if file:
            (folder / version / file).write_text("")
    return folder


def step(model: str, source: str = "IN", target: str = "OUT", version: int = -1) -> str:
    maps = f'input_map {{ key: "IN" value: "{source}" }} output_map {{ key: "OUT" value: "{target}" }}'
    return f'{{ model_name: "{model}" model_version: {version} {maps} }}'


def ensemble(*steps: str, size: int = 8) -> str:
    scheduling = f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}"
    return f'platform: "ensemble"\nmax_batch_size: {size}\n{TENSORS}{scheduling}'


def as_json(**changes: object) -> str:
    tensor = {"name": "T", "data_type": "TYPE_FP32", "dims": ["4"]}
    return json.dumps({"backend": "python", "input": [tensor], "output": [tensor], **changes})
