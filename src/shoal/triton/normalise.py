"""What a configuration means where it says nothing: what is filled in before it is checked, completed and shown."""

from collections.abc import Collection, Sequence
from typing import Any

from shoal.errors import ConfigError

IDLE = 1_000_000  # microseconds that a sequence may be silent
PLATFORMS = {  # platform -> the backend it stands for, and the file it loads
    "onnxruntime_onnx": ("onnxruntime", "model.onnx"),
    "pytorch_libtorch": ("pytorch", "model.pt"),
    "libtorch": ("pytorch", "model.pt"),
    "torch_aoti": ("pytorch", "model.pt2"),
    "tensorrt_plan": ("tensorrt", "model.plan"),
    "tensorflow_graphdef": ("tensorflow", "model.graphdef"),
    "tensorflow_savedmodel": ("tensorflow", "model.savedmodel"),
}
FILES = {  # what a version folder holds -> platform and backend, in the order that they are looked for
    "model.savedmodel": ("tensorflow_savedmodel", "tensorflow"),
    "model.graphdef": ("tensorflow_graphdef", "tensorflow"),
    "model.plan": ("tensorrt_plan", "tensorrt"),
    "model.onnx": ("onnxruntime_onnx", "onnxruntime"),
    "model.xml": ("", "openvino"),
    "model.pt": ("pytorch_libtorch", "pytorch"),
    "model.pt2": ("torch_aoti", "pytorch"),
    "model.py": ("", "python"),
}
OF_BACKEND = {  # backend -> its platform, where there is one, and its file
    "onnxruntime": ("onnxruntime_onnx", "model.onnx"),
    "pytorch": ("pytorch_libtorch", "model.pt"),
    "python": ("", "model.py"),
    "tensorrt": ("tensorrt_plan", "model.plan"),
    "openvino": ("", "model.xml"),
}
TWO_ON_CPU = {"onnxruntime", "tensorflow"}  # where nobody says how many instances


def deduce_backend(message: Any, contents: Collection[str]) -> None:
    """Fill in `backend`, `platform` and `default_model_filename` from each other, or from what a version holds."""
    if message.platform == "ensemble" or message.WhichOneof("scheduling_choice") == "ensemble_scheduling":
        return
    if not message.backend:
        _find_backend(message, contents)
    elif not message.platform and message.backend in OF_BACKEND:
        of_file = FILES.get(message.default_model_filename, ("", ""))
        message.platform = of_file[0] if of_file[1] == message.backend else _platform(message.backend, contents)
    if message.platform == "libtorch":
        message.platform = "pytorch_libtorch"
    if not message.default_model_filename:
        backend, file = PLATFORMS.get(message.platform, ("", ""))
        message.default_model_filename = (
            file if backend == message.backend else OF_BACKEND.get(message.backend, ("", ""))[1]
        )


def _find_backend(message: Any, contents: Collection[str]) -> None:
    if message.platform:
        if message.platform not in PLATFORMS:
            known = ", ".join([*sorted(PLATFORMS), "ensemble"])
            raise ConfigError(f"unexpected platform type '{message.platform}' for {message.name}; known are: {known}")
        message.backend = PLATFORMS[message.platform][0]
        return
    files = [message.default_model_filename] if message.default_model_filename in FILES else FILES
    found = next((name for name in files if name in contents or message.default_model_filename), "")
    if found:
        message.platform, message.backend = FILES[found]
        return
    suffix = message.name.rpartition(".")[2] if "." in message.name else ""
    if not suffix:
        nothing = f"{message.name} names neither backend nor platform"
        raise ConfigError(f"{nothing}, and its first version holds none of: {', '.join(FILES)}")
    message.backend = suffix


def _platform(backend: str, contents: Collection[str]) -> str:
    """Give the platform of a backend that has several by the file that is there."""
    platform, file = OF_BACKEND[backend]
    if file in contents:
        return platform
    return next((FILES[name][0] for name in FILES if name in contents and FILES[name][1] == backend), platform)


def fill_in(message: Any) -> None:
    """Fill in what holds for every model: version policy, pinned memory, preferred sizes, idle time of sequences."""
    if not message.HasField("version_policy"):
        message.version_policy.latest.num_versions = 1
    kind = message.WhichOneof("scheduling_choice")
    if kind == "ensemble_scheduling":
        if not message.HasField("model_transaction_policy"):
            message.model_transaction_policy.decoupled = False
        return
    for name in ("input_pinned_memory", "output_pinned_memory"):
        if not message.optimization.HasField(name):
            getattr(message.optimization, name).enable = True
    if kind == "dynamic_batching":
        _prefer(message.dynamic_batching.preferred_batch_size, message.max_batch_size)
    if kind == "sequence_batching":
        sequences = message.sequence_batching
        if not sequences.max_sequence_idle_microseconds:
            sequences.max_sequence_idle_microseconds = IDLE
        if sequences.WhichOneof("strategy_choice") == "oldest":
            _prefer(sequences.oldest.preferred_batch_size, message.max_batch_size)


def _prefer(sizes: Any, most: int) -> None:
    if not sizes and most > 0:
        sizes.append(most)


def resolve_instances(message: Any, gpus: Sequence[int]) -> None:
    """Say of every instance group what it is called, where it runs and how many instances it has."""
    if message.WhichOneof("scheduling_choice") == "ensemble_scheduling":
        return
    kinds = message.DESCRIPTOR.fields_by_name["instance_group"].message_type.enum_types_by_name["Kind"].values_by_name
    auto, gpu, cpu = (kinds[name].number for name in ("KIND_AUTO", "KIND_GPU", "KIND_CPU"))
    if not message.instance_group:
        message.instance_group.add(name=message.name)
    for number, group in enumerate(message.instance_group):
        if not group.name:
            group.name = f"{message.name}_{number}"
        if group.kind == auto:
            group.kind = gpu if gpus and set(group.gpus) <= set(gpus) else cpu
        if group.kind == gpu and not group.gpus:
            group.gpus.extend(gpus)
        if group.count < 1:
            group.count = 2 if group.kind == cpu and message.backend in TWO_ON_CPU else 1
