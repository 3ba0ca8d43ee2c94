"""From a completed configuration to the settings of a model that is served."""

from collections.abc import Sequence
from math import gcd
from pathlib import Path
from typing import Any, NamedTuple

from shoal.config.load import model_config
from shoal.config.model import Batching, Interface, ModelConfig, TensorSpec
from shoal.config.scheduling import scheduling_of
from shoal.errors import ConfigError
from shoal.triton.checks import check_settings
from shoal.triton.form import config_json, value_name
from shoal.triton.normalise import fill_in, resolve_instances
from shoal.triton.repository import Found, labels_of
from shoal.triton.tensors import check_complete

STARTUP = 600.0  # s to load and warm up; the other server has no limit
RESPONSE = 3600.0  # s for one batch; the other server has no limit
SHARING = ("onnxruntime", "pytorch", "identity")  # instances are threads that share the weights


class Placement(NamedTuple):
    """How instances become processes and threads: each worker has `instances` of them, on its device."""

    instances: int
    devices: list[str]  # one for each worker


def make(message: Any, found: Found, version: int, gpus: Sequence[int], *, is_adaptive: bool = False) -> ModelConfig:
    """Make the settings of one version; `is_adaptive`: what names no scheduler batches as the server sees fit."""
    fill_in(message)
    check_settings(message)
    resolve_instances(message, gpus)
    check_complete(message, found.folder, gpus)
    settings = config_json(message)
    scheduling = scheduling_of(settings, found.name)
    is_ensemble = message.platform == "ensemble"
    path = found.folder / str(version)
    _check_file(message, path)
    place = Placement(1, ["cpu"]) if is_ensemble else placement(settings)
    is_stateful = message.WhichOneof("scheduling_choice") == "sequence_batching"
    values = {
        "name": found.name,
        "version": str(version),
        "path": str(path),
        "flavour": "triton",
        "backend": "ensemble" if is_ensemble else message.backend,
        "settings": settings,
        "instances": place.instances,
        "workers": len(place.devices),
        "device": place.devices[0],
        "devices": place.devices if len(set(place.devices)) > 1 else [],
        "startup_timeout": STARTUP,
        "response_timeout": RESPONSE,
        "side_effects": is_stateful,
        "isolate": not is_stateful and not message.model_transaction_policy.decoupled,
        "url": str(found.folder),
        "batching": (batching := batching_of(settings, is_adaptive=is_adaptive)),
        "scheduling": None if batching.policy == "adaptive" else scheduling,
        "interface": interface_of(message, found.folder),
    }
    return model_config(values, f"model '{found.name}'")


def interface_of(message: Any, folder: Path) -> Interface:
    """Tell what tensors a model takes and gives."""
    return Interface(
        inputs=[_spec(tensor, folder) for tensor in message.input],
        outputs=[_spec(tensor, folder) for tensor in message.output],
        max_batch_size=message.max_batch_size,
        is_decoupled=message.model_transaction_policy.decoupled,
    )


def batching_of(settings: dict[str, Any], *, is_adaptive: bool) -> Batching:
    """Give the nearest of our own policies; the whole of what was set stays in the settings."""
    size = max(1, settings["max_batch_size"])
    if dynamic := settings.get("dynamic_batching"):
        delay = min(dynamic["max_queue_delay_microseconds"] / 1000, 3_600_000.0)
        return Batching(policy="fixed", batch_size=min(size, 65536), max_batch_delay=delay)
    has_scheduler = "sequence_batching" in settings or "ensemble_scheduling" in settings
    if is_adaptive and not has_scheduler and size > 1:
        return Batching(policy="adaptive", batch_size=min(size, 65536))
    return Batching(policy="single")


def placement(settings: dict[str, Any]) -> Placement:
    """Spread instances over processes: threads of one process where the backend shares weights, else one each."""
    counts: dict[str, int] = {}
    for group in settings["instance_group"]:
        if group["passive"]:
            continue
        devices = [f"cuda:{gpu}" for gpu in group["gpus"]] if group["kind"] == "KIND_GPU" else ["cpu"]
        for device in devices:
            counts[device] = counts.get(device, 0) + group["count"]
    shared = gcd(*counts.values()) if settings["backend"] in SHARING else 1
    return Placement(shared, [device for device, count in counts.items() for _ in range(count // shared)])


def _spec(tensor: Any, folder: Path) -> TensorSpec:
    datatype = value_name(tensor, "data_type").removeprefix("TYPE_")
    is_input = hasattr(tensor, "optional")
    return TensorSpec(
        name=tensor.name,
        datatype="BYTES" if datatype == "STRING" else datatype,
        dims=list(tensor.dims),
        is_optional=is_input and tensor.optional,
        is_ragged=is_input and tensor.allow_ragged_batch,
        reshape=list(tensor.reshape.shape) if tensor.HasField("reshape") else None,
        labels=[] if is_input or not tensor.label_filename else labels_of(folder, tensor.label_filename),
    )


def _check_file(message: Any, path: Path) -> None:
    file = message.default_model_filename
    if file and message.backend != "identity" and not (path / file).exists():
        raise ConfigError(f"unable to find '{path / file}' for model '{message.name}'")
