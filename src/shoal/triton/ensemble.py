"""Whether the models of an ensemble fit together: tensors that exist, of one datatype and one shape."""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any, NamedTuple

from msgspec.structs import replace

from shoal.config.model import ModelConfig
from shoal.errors import ConfigError

Settings = Mapping[str, Any]  # a completed configuration in JSON's form


class Said(NamedTuple):
    """What a model says of a tensor."""

    model: str
    datatype: str
    dims: list[int]
    has_rows: bool

    @property
    def shape(self) -> list[int]:
        """The dims with the batch."""
        return [-1, *self.dims] if self.has_rows else self.dims


def check_ensemble(ensemble: Settings, models: Sequence[Settings]) -> None:
    """Raise ConfigError where a step does not fit; `models` are those of its steps, one for each."""
    name = ensemble["name"]
    tensors: dict[str, Said] = {}
    for tensor in [*ensemble["input"], *ensemble["output"]]:
        _agree(name, tensor["name"], _said(tensor, ensemble), tensors)
    for step, model in zip(ensemble["ensemble_scheduling"]["step"], models, strict=True):
        _check_batch(ensemble, model)
        for side, mapping, words in (
            ("input", step["input_map"], "is mapping to non-existing input"),
            ("output", step["output_map"], "is mapped from non-existing output"),
        ):
            known = {tensor["name"]: tensor for tensor in model[side]}
            for own, tensor in mapping.items():
                if own not in known:
                    raise ConfigError(
                        f"in ensemble {name}, ensemble tensor {tensor} {words} {own} in model {model['name']}"
                    )
                _agree(name, tensor, _said(known[own], model), tensors)
        for tensor in model["input"]:
            if not tensor["optional"] and tensor["name"] not in step["input_map"]:
                raise ConfigError(
                    f"in ensemble {name}, input {tensor['name']} in model {model['name']} is not mapped to any "
                    "ensemble tensors"
                )


def is_decoupled(models: Iterable[Settings]) -> bool:
    """Say whether an ensemble of these answers any number of times: as soon as one of them does."""
    return any(model.get("model_transaction_policy", {}).get("decoupled", False) for model in models)


def label(ensemble: ModelConfig, models: Sequence[ModelConfig]) -> ModelConfig:
    """Give an ensemble's outputs the labels of the members' outputs that they are; its own come first."""
    interface, scheduling = ensemble.interface, ensemble.scheduling
    assert interface is not None and scheduling is not None and scheduling.ensemble_scheduling is not None
    labels = {
        step.output_map[spec.name]: spec.labels
        for step, model in zip(scheduling.ensemble_scheduling.step, models, strict=True)
        for spec in (model.interface.outputs if model.interface else ())
        if spec.name in step.output_map
    }
    outputs = [replace(spec, labels=spec.labels or labels.get(spec.name, spec.labels)) for spec in interface.outputs]
    return replace(ensemble, interface=replace(interface, outputs=outputs))


def _check_batch(ensemble: Settings, model: Settings) -> None:
    most, allowed = ensemble["max_batch_size"], model["max_batch_size"]
    if most > allowed:
        contains = f"it contains model {model['name']} which only allows maximum batch size to be {allowed}"
        raise ConfigError(f"ensemble {ensemble['name']} allows maximum batch size {most}, but {contains}")


def _agree(ensemble: str, tensor: str, said: Said, tensors: dict[str, Said]) -> None:
    before = tensors.setdefault(tensor, said)
    of = f"in ensemble {ensemble}, ensemble tensor {tensor}"
    if before.datatype != said.datatype:
        one, other = before.datatype, said.datatype
        raise ConfigError(f"{of}: inconsistent data type: {_inferred(one, before)} while {_inferred(other, said)}")
    if not _fit(before.dims, said.dims) and not _fit(before.shape, said.shape):
        one, other = _text(before.shape), _text(said.shape)
        raise ConfigError(f"{of}: inconsistent shape: {_inferred(one, before)} while {_inferred(other, said)}")


def _said(tensor: Mapping[str, Any], model: Settings) -> Said:
    return Said(model["name"], tensor["data_type"], list(tensor["dims"]), model["max_batch_size"] > 0)


def _inferred(what: str, said: Said) -> str:
    return f"{what} is inferred from model {said.model}"


def _fit(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def _text(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
