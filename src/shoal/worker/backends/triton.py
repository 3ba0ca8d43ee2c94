"""A model of a Triton repository to a program, by the backend its configuration names."""

import os
from pathlib import Path, PurePath
from typing import Any

from shoal.config.model import ModelConfig
from shoal.errors import LoadFailed
from shoal.worker.program import Program

NOT_YET = {
    "ensemble_scheduling": "which is not served yet: its steps are not sent to the models they name",
}
BACKENDS = ("onnxruntime", "pytorch", "python", "identity")


def load(config: ModelConfig, worker: str) -> Program:
    """Make the program of a model and warm it up; LoadFailed says what is wrong with it."""
    from shoal.worker.backends import warmup

    for key, words in NOT_YET.items():
        if key in config.settings:
            raise LoadFailed(f"model '{config.name}' uses {key}, {words}")
    os.environ.update(config.environment)
    program = _load(config, worker)
    warmup.run(config, program)
    return program


def _load(config: ModelConfig, worker: str) -> Program:
    match config.backend:
        case "onnxruntime":
            from shoal.worker.backends import onnx

            return onnx.load(config)
        case "pytorch":
            from shoal.worker.backends import torchscript

            return torchscript.load(config)
        case "identity":
            from shoal.worker.backends import identity

            return identity.load(config)
        case "python":
            from shoal.worker.backends import triton_python

            return triton_python.load(config, worker)
        case _:
            known = ", ".join(BACKENDS)
            raise LoadFailed(f"model {config.name!r} needs backend {config.backend!r}; there are {known}")


def model_file(config: ModelConfig, *defaults: str) -> Path:
    """Give the model's file in its version folder: the one that is named, else the first of the usual ones."""
    folder = Path(config.path).absolute()
    name = config.settings.get("default_model_filename") or ""
    if name and (PurePath(name).is_absolute() or ".." in PurePath(name).parts):
        raise LoadFailed(f"default_model_filename must name a file inside the version folder, got {name!r}")
    names = [name] if name else list(defaults)
    for file in (folder / each for each in names):
        if file.exists():
            return file
    raise LoadFailed(f"{folder} has no {' or '.join(names)}, which model {config.name!r} is loaded from")


def parameter(settings: dict[str, Any], key: str) -> str:
    """Give one of the configuration's `parameters`; empty where there is none."""
    value = settings.get("parameters", {}).get(key)
    return str(value.get("string_value", "")) if isinstance(value, dict) else ""


def number(settings: dict[str, Any], key: str, default: int, low: int = 0) -> int:
    """Give a parameter that is a whole number of `low` or more."""
    text = parameter(settings, key)
    if not text:
        return default
    try:
        value = int(text)
    except ValueError:
        value = low - 1
    if value < low:
        raise LoadFailed(f"parameter {key!r} must be a whole number of {low} or more, got {text!r}")
    return value


def switch(settings: dict[str, Any], key: str, default: bool) -> bool:
    """Give a parameter that is yes or no."""
    text = parameter(settings, key).strip().lower()
    if not text:
        return default
    if text not in ("true", "false", "1", "0", "yes", "no"):
        raise LoadFailed(f"parameter {key!r} must be true or false, got {text!r}")
    return text in ("true", "1", "yes")
