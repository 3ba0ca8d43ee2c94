"""What a server and its models say of themselves: metadata and configuration."""

from collections.abc import Callable, Sequence
from typing import Any, NamedTuple

from shoal.config.model import ModelConfig, TensorSpec
from shoal.core.model import Model
from shoal.frontend.kserve.plan import Plan

EXTENSIONS = (
    "classification",
    "sequence",
    "model_repository",
    "model_repository(unload_dependents)",
    "schedule_policy",
    "model_configuration",
    "system_shared_memory",
    "cuda_shared_memory",
    "binary_tensor_data",
    "parameters",
    "statistics",
    "trace",
    "logging",
)


class About(NamedTuple):
    """What a server says of itself."""

    name: str
    version: str
    is_live: Callable[[], bool]
    is_ready: Callable[[], bool]


def server_metadata(about: About) -> dict[str, Any]:
    """Tell of the server."""
    return {"name": about.name, "version": about.version, "extensions": list(EXTENSIONS)}


def model_metadata(plan: Plan, versions: Sequence[Model]) -> dict[str, Any]:
    """Tell of a model; the batch is a dimension of any size."""
    config, interface = plan.model.config, plan.interface
    return {
        "name": plan.model.name,
        "versions": [model.version for model in versions],
        "platform": config.settings.get("platform") or config.backend or config.flavour,
        "inputs": [_tensor(spec, plan.rows) for spec in interface.inputs],
        "outputs": [_tensor(spec, plan.rows) for spec in interface.outputs],
    }


def model_config(config: ModelConfig) -> dict[str, Any]:
    """Give the whole configuration; of a model that has none of Triton's kind, what can be said of it in that form."""
    if config.settings:
        return config.settings
    interface = config.interface
    assert interface is not None, "only models that take tensors are described"
    return {
        "name": config.name,
        "platform": "",
        "backend": config.backend or config.flavour,
        "version_policy": {"latest": {"num_versions": 1}},
        "max_batch_size": interface.max_batch_size,
        "input": [{**_configured(spec), "optional": spec.is_optional} for spec in interface.inputs],
        "output": [_configured(spec) for spec in interface.outputs],
        "instance_group": [{"name": config.name, "kind": "KIND_CPU", "count": config.workers * config.instances}],
        "parameters": {},
        "model_warmup": [],
        **({"dynamic_batching": {}} if interface.max_batch_size > 1 else {}),
        **({"model_transaction_policy": {"decoupled": True}} if interface.is_decoupled else {}),
    }


def _tensor(spec: TensorSpec, rows: int) -> dict[str, Any]:
    return {"name": spec.name, "datatype": spec.datatype, "shape": [-1, *spec.dims] if rows else list(spec.dims)}


def _configured(spec: TensorSpec) -> dict[str, Any]:
    datatype = "STRING" if spec.datatype == "BYTES" else spec.datatype
    return {"name": spec.name, "data_type": f"TYPE_{datatype}", "dims": list(spec.dims)}
