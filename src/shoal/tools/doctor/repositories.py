"""A Triton model repository: each model's settings, files and backend, looked at as the server would."""

import importlib.util
import os
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

from shoal.config.devices import machine
from shoal.config.scheduling import scheduling_of
from shoal.errors import ServingError
from shoal.tools.doctor.findings import Diagnosis, Finding, Subject
from shoal.tools.doctor.imports import check_imports
from shoal.triton import checks, tensors
from shoal.triton.form import config_json
from shoal.triton.normalise import FILES, fill_in, resolve_instances
from shoal.triton.repository import Folders, Found, versions_in

LIBRARIES = {"onnxruntime": ("onnxruntime", "shoal[onnx]"), "pytorch": ("torch", "shoal[torch]")}
BACKENDS = ("onnxruntime", "pytorch", "python", "identity")
INSTEAD = {
    "tensorrt": "export the model to ONNX and name the backend onnxruntime",
    "tensorflow": "convert the model to ONNX (tf2onnx) and name the backend onnxruntime",
    "openvino": "serve the ONNX model that it was made from, with the backend onnxruntime",
    "dali": "write the preprocessing as a Python model",
    "fil": "convert the model to ONNX and name the backend onnxruntime",
    "vllm": "keep this model on Triton, or write a Python model that calls vllm itself",
}


def is_repository(folder: Path) -> bool:
    """Whether models lie here in Triton's way."""
    return any(is_model(path) for path in folder.iterdir() if path.is_dir())


def is_model(folder: Path) -> bool:
    """Whether this is the folder of one model: settings, or a version that holds a model's file."""
    if (folder / "config.pbtxt").is_file():
        return True
    return any((folder / str(version) / name).exists() for version in versions_in(folder) for name in FILES)


def check_repository(folder: Path) -> Diagnosis:
    """Look at every model of a repository."""
    folders = Folders([folder])
    gpus = list(range(machine(os.environ).gpus))
    named = sorted(path.name for path in folder.iterdir() if path.is_dir() and is_model(path))
    subjects = [check_model(folders, name, gpus) for name in named]
    return Diagnosis(
        str(folder), "a model repository of Triton", subjects, f"shoal tritonserver --model-repository={folder}"
    )


def check_model(folders: Folders, name: str, gpus: Sequence[int]) -> Subject:
    """Look at one model."""
    try:
        found = folders.find(name)
    except ServingError as error:
        return Subject(name, "Triton model", [Finding("fails", str(error), f"correct {name}/config.pbtxt")])
    backend = found.message.backend or found.message.platform
    versions = f" {', '.join(map(str, found.versions))}" if found.versions else ""
    kind = f"Triton {'ensemble' if found.steps else f'model, {backend}'}"
    return Subject(f"{name}{versions}", kind, list(_findings(found, folders, gpus)))


def check_message(message: Any, folder: Path | None, gpus: Sequence[int]) -> Iterator[Finding]:
    """Look at settings; `folder` is the model's, where its files can be seen."""
    yield from check_backend(message)
    for problem in checks.problems(message):
        yield Finding("fails", problem, "correct config.pbtxt")
    try:
        scheduling_of(config_json(message), message.name)
    except (ServingError, ValueError) as error:
        yield Finding("fails", str(error), "correct config.pbtxt")
    if message.backend in BACKENDS and folder is not None and message.input and message.output:
        for problem in tensors.problems(message, folder, gpus):
            yield Finding("fails", problem, "correct config.pbtxt")
    if message.response_cache.enable:
        yield Finding("differs", "response_cache needs a cache", "start with --cache-config=local,size=BYTES")


def check_backend(message: Any) -> Iterator[Finding]:
    """See that its backend is there, and the library that it needs."""
    backend = message.backend
    if message.platform == "ensemble" or message.WhichOneof("scheduling_choice") == "ensemble_scheduling":
        return
    if backend not in BACKENDS:
        change = INSTEAD.get(backend, f"name one of the backends {', '.join(BACKENDS)}")
        yield Finding("fails", f"backend '{backend}': there is no such runtime here", change)
    elif backend in LIBRARIES and importlib.util.find_spec(LIBRARIES[backend][0]) is None:
        library, extra = LIBRARIES[backend]
        yield Finding("fails", f"backend '{backend}' needs {library}, which is not installed", f"pip install '{extra}'")


def _findings(found: Found, folders: Folders, gpus: Sequence[int]) -> Iterator[Finding]:
    message = type(found.message)()
    message.CopyFrom(found.message)
    fill_in(message)
    resolve_instances(message, gpus)
    yield from check_message(message, found.folder, gpus)
    if not found.versions:
        present = ", ".join(map(str, versions_in(found.folder))) or "none"
        yield Finding("fails", f"its version_policy chooses no version; there are: {present}", "add a version's folder")
    if found.steps:
        yield from _steps(found, folders)
        return
    for version in found.versions:
        yield from _files(found, message, version)
    if not (message.input and message.output):
        if message.backend in ("onnxruntime", "python"):
            yield Finding("works", "what its settings leave out is asked of the model when it is loaded")
        else:
            text = "its settings describe no inputs and outputs, and its backend cannot tell them"
            yield Finding("fails", text, "write input and output into config.pbtxt")


def _steps(found: Found, folders: Folders) -> Iterator[Finding]:
    for name in found.steps:
        try:
            folders.find(name)
        except ServingError as error:
            yield Finding("fails", f"a step names '{name}': {error}", "put that model into the repository")


def _files(found: Found, message: Any, version: int) -> Iterator[Finding]:
    file = found.folder / str(version) / message.default_model_filename
    if message.backend not in BACKENDS or message.backend == "identity":
        return
    if not file.exists():
        yield Finding("fails", f"version {version} has no {message.default_model_filename}", f"put it at {file}")
    elif message.backend == "python":
        if "EXECUTION_ENV_PATH" in message.parameters:
            text = "EXECUTION_ENV_PATH has no effect: Python models run in the server's environment"
            yield Finding("differs", text, "install what the model needs beside the server")
        yield from check_imports(file.parent, file)
