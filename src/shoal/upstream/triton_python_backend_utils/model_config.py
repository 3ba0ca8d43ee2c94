"""ModelConfig: a configuration that auto_complete_config adds to."""

import json
from typing import Any

_WHERE = "auto-complete-config function for model"
_IO = {
    "input": (("name", "data_type", "dims", "optional"), "'name', 'data_type', 'dims' and 'optional'"),
    "output": (("name", "data_type", "dims"), "'name', 'data_type' and 'dims'"),
}


class ModelConfig:
    """What is known of a model so far; what contradicts it is a ValueError."""

    def __init__(self, model_config: str) -> None:
        self._model_config: dict[str, Any] = json.loads(model_config)

    @property
    def _name(self) -> str:
        return str(self._model_config.get("name", ""))

    def as_dict(self) -> dict[str, Any]:
        """Give it as a dict."""
        return self._model_config

    def set_max_batch_size(self, max_batch_size: int) -> None:
        """Set the most rows of a batch; a configuration that allows more already is not cut down."""
        before = int(self._model_config.get("max_batch_size", 0))
        if before > max_batch_size:
            raise ValueError(
                f"configuration specified max_batch_size {before}, but in {_WHERE} '{self._name}' specified "
                f"max_batch_size {max_batch_size}"
            )
        self._model_config["max_batch_size"] = max_batch_size

    def set_dynamic_batching(self) -> None:
        """Have requests batched as they come."""
        for other in ("sequence_batching", "ensemble_scheduling"):
            if other in self._model_config:
                raise ValueError(
                    f"Configuration specified scheduling_choice as '{other}', but {_WHERE} '{self._name}' tries to "
                    "set scheduling_choice as 'dynamic_batching'"
                )
        self._model_config.setdefault("dynamic_batching", {})

    def add_input(self, input: dict[str, Any]) -> None:
        """Add an input: name, data_type, dims, and optional where it is."""
        self._add("input", input)

    def add_output(self, output: dict[str, Any]) -> None:
        """Add an output: name, data_type, dims."""
        self._add("output", output)

    def set_model_transaction_policy(self, transaction_policy_dict: dict[str, Any]) -> None:
        """Say whether a request may have any number of responses: {"decoupled": True}."""
        if set(transaction_policy_dict) - {"decoupled"}:
            raise ValueError(
                f"model transaction property in {_WHERE} '{self._name}' contains property other than 'decoupled'."
            )
        if "decoupled" not in transaction_policy_dict:
            return
        wanted = bool(transaction_policy_dict["decoupled"])
        policy = self._model_config.setdefault("model_transaction_policy", {})
        if "decoupled" in policy and policy["decoupled"] != wanted:
            raise ValueError(
                f"trying to change decoupled property in auto-complete-config for model '{self._name}', which is "
                f"already set to '{policy['decoupled']}'."
            )
        policy["decoupled"] = wanted

    def _add(self, what: str, entry: dict[str, Any]) -> None:
        allowed, listed = _IO[what]
        if "name" not in entry:
            raise ValueError(f"{what} in {_WHERE} '{self._name}' is missing 'name' property.")
        name = entry["name"]
        for key in ("data_type", "dims"):
            if key not in entry:
                raise ValueError(f"{what} '{name}' in {_WHERE} '{self._name}' is missing '{key}' property.")
        if set(entry) - set(allowed):
            raise ValueError(f"{what} '{name}' in {_WHERE} '{self._name}' contains property other than {listed}.")
        entries = self._model_config.setdefault(what, [])
        known = next((each for each in entries if each.get("name") == name), None)
        if known is None:
            entries.append(dict(entry))
            return
        self._compare(what, known, entry)
        known.update(entry)

    def _compare(self, what: str, known: dict[str, Any], entry: dict[str, Any]) -> None:
        name, datatype = entry["name"], known.get("data_type", "TYPE_INVALID")
        if datatype not in ("TYPE_INVALID", entry["data_type"]):
            raise ValueError(
                f"unable to load model '{self._name}', configuration expects datatype {datatype} for {what} "
                f"'{name}', model provides {entry['data_type']}"
            )
        dims = [int(dim) for dim in known.get("dims", [])]
        if dims and dims != list(entry["dims"]):
            raise ValueError(
                f"model '{self._name}', tensor '{name}': the model expects dims {list(entry['dims'])} but the model "
                f"configuration specifies dims {dims}"
            )
