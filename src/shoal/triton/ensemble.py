"""Whether the models of an ensemble fit together: tensors that exist, of one datatype and one shape."""

from collections.abc import Mapping, Sequence
from typing import Any

from shoal.errors import ConfigError

Settings = Mapping[str, Any]  # a completed configuration in JSON's form


def check_ensemble(ensemble: Settings, models: Mapping[str, Settings]) -> None:
    """Raise ConfigError where a step does not fit; `models` are those of its steps, by name."""
    name = ensemble["name"]
    tensors: dict[str, tuple[str, str, list[int]]] = {}  # who said so, datatype, shape
    for tensor in [*ensemble["input"], *ensemble["output"]]:
        _agree(name, tensor["name"], (name, tensor["data_type"], _shape(tensor, ensemble)), tensors)
    for step in ensemble["ensemble_scheduling"]["step"]:
        model = models[step["model_name"]]
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
                said = (model["name"], known[own]["data_type"], _shape(known[own], model))
                _agree(name, tensor, said, tensors)
        needed = {tensor["name"] for tensor in model["input"] if not tensor["optional"]}
        if missing := sorted(needed - set(step["input_map"])):
            raise ConfigError(f"in ensemble {name}, nothing is mapped to input(s) {missing} of model {model['name']}")


def is_decoupled(models: Mapping[str, Settings]) -> bool:
    """Say whether an ensemble of these answers any number of times: as soon as one of them does."""
    return any(model.get("model_transaction_policy", {}).get("decoupled", False) for model in models.values())


def _check_batch(ensemble: Settings, model: Settings) -> None:
    most, allowed = ensemble["max_batch_size"], model["max_batch_size"]
    if most > allowed:
        contains = f"it contains model {model['name']} which only allows maximum batch size to be {allowed}"
        raise ConfigError(f"ensemble {ensemble['name']} allows maximum batch size {most}, but {contains}")


def _agree(
    ensemble: str,
    tensor: str,
    said: tuple[str, str, list[int]],
    tensors: dict[str, tuple[str, str, list[int]]],
) -> None:
    before = tensors.setdefault(tensor, said)
    of = f"in ensemble {ensemble}, ensemble tensor {tensor}"
    if before[1] != said[1]:
        by = f"{before[1]} is inferred from model {before[0]} while {said[1]} is inferred from model {said[0]}"
        raise ConfigError(f"{of}: inconsistent data type: {by}")
    if not _fit(before[2], said[2]):
        told = (
            f"{_text(before[2])} is inferred from model {before[0]}",
            f"{_text(said[2])} is inferred from model {said[0]}",
        )
        raise ConfigError(f"{of}: inconsistent shape: {' while '.join(told)}")


def _shape(tensor: Mapping[str, Any], model: Settings) -> list[int]:
    return [-1, *tensor["dims"]] if model["max_batch_size"] > 0 else list(tensor["dims"])


def _fit(one: Sequence[int], other: Sequence[int]) -> bool:
    return len(one) == len(other) and all(a == b or -1 in (a, b) for a, b in zip(one, other, strict=True))


def _text(shape: Sequence[int]) -> str:
    return "[" + ",".join(map(str, shape)) + "]"
