"""What a model's own file adds to its configuration: the backend, and for some of them inputs, outputs, batching."""

from pathlib import Path
from typing import Any

from shoal.errors import LoadFailed

DEFAULT_MAX_BATCH_SIZE = 4
SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")
# In the order in which they are looked for: file, backend, platform.
FILES = (
    ("model.savedmodel", "tensorflow", "tensorflow_savedmodel"),
    ("model.graphdef", "tensorflow", "tensorflow_graphdef"),
    ("model.plan", "tensorrt", "tensorrt_plan"),
    ("model.onnx", "onnxruntime", "onnxruntime_onnx"),
    ("model.xml", "openvino", ""),
    ("model.pt", "pytorch", "pytorch_libtorch"),
    ("model.pt2", "pytorch", "torch_aoti"),
    ("model.py", "python", ""),
)
ALIASES = {"libtorch": "pytorch_libtorch"}
PLATFORMS = {platform: (backend, file) for file, backend, platform in FILES if platform}
DEFAULT_FILES = {
    "onnxruntime": "model.onnx",
    "openvino": "model.xml",
    "pytorch": "model.pt",
    "python": "model.py",
    "tensorrt": "model.plan",
}


def complete(
    partial: dict[str, Any], model_folder: Path, version_folder: Path, default_max_batch_size: int
) -> dict[str, Any]:
    """Give the configuration with what the model adds; LoadFailed where it cannot be said what it is."""
    config = {**partial}
    config["name"] = config.get("name") or model_folder.name
    if config.get("platform") == "ensemble" or "ensemble_scheduling" in config:
        return config
    deduce(config, model_folder)
    if config["backend"] == "onnxruntime":
        from shoal.worker.backends import onnx_completion

        onnx_completion.complete(config, version_folder, default_max_batch_size)
    elif config["backend"] == "python":
        from shoal.worker.backends import triton_python_completion

        return triton_python_completion.complete(config, version_folder)
    return config


def deduce(config: dict[str, Any], model_folder: Path) -> None:
    """Fill in backend, platform and default_model_filename, by whichever is there, else by the files."""
    platform = ALIASES.get(config.get("platform", ""), config.get("platform", ""))
    backend, file = config.get("backend", ""), config.get("default_model_filename", "")
    if not backend and platform:
        if platform not in PLATFORMS:
            raise LoadFailed(f"platform {platform!r} of model {config['name']!r} is not known")
        backend = PLATFORMS[platform][0]
    if not backend and file:
        backend, platform = next(((found, its) for name, found, its in FILES if name == file), ("", ""))
    if not backend:
        backend, platform, file = _by_files(config["name"], model_folder, file)
    if not platform and backend in ("onnxruntime", "pytorch", "tensorrt"):
        platform = _platform(backend, file, model_folder)
    if not file:
        file = PLATFORMS[platform][1] if platform in PLATFORMS else DEFAULT_FILES.get(backend, "")
    expected = PLATFORMS.get(platform, (backend, ""))[0]
    if expected != backend:
        raise LoadFailed(
            f"model {config['name']!r} has platform {platform!r}, which is of backend {expected!r}, not {backend!r}"
        )
    config["backend"] = backend
    if platform:
        config["platform"] = platform
    if file:
        config["default_model_filename"] = file


def _by_files(name: str, model_folder: Path, file: str) -> tuple[str, str, str]:
    versions = _versions(model_folder)
    for known, backend, platform in FILES:
        if versions and (versions[0] / known).exists():
            return backend, platform, file or known
    _, dot, suffix = model_folder.name.rpartition(".")
    if dot and suffix:
        return suffix, "", file
    looked = ", ".join(known for known, _, _ in FILES)
    raise LoadFailed(
        f"model {name!r} names no backend, and its first version folder has none of {looked}; say `backend` in its "
        "configuration"
    )


def _platform(backend: str, file: str, model_folder: Path) -> str:
    platforms = {known: platform for known, found, platform in FILES if found == backend}
    if file in platforms:
        return platforms[file]
    versions = _versions(model_folder)
    present = [platform for known, platform in platforms.items() if versions and (versions[0] / known).exists()]
    return next(iter(present or platforms.values()))


def _versions(model_folder: Path) -> list[Path]:
    return sorted(
        (entry for entry in model_folder.iterdir() if entry.is_dir() and entry.name.isdecimal()),
        key=lambda entry: entry.name,
    )
