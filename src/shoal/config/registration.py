"""From a registration to settings: what client, archive, operator and defaults say, in upstream's order.

Nothing here is silent: what has no effect, is of a wrong type or goes beyond a limit is a note, one line for the log.
"""

import re
from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from shoal.config.deployment import Defaults
from shoal.config.load import model_config
from shoal.config.model import ModelConfig
from shoal.errors import BadArchive, InvalidInput

RUNTIMES = ("python", "python3", "LSP")
ENVELOPES = ("", "body", "json", "kserve", "kservev2")
MOST_ROWS = 65536
LONGEST_DELAY = 3_600_000  # ms
MOST_WORKERS = 4096

KEYS: dict[str, type] = {  # of model-config.yaml, those that are for the server
    "minWorkers": int,
    "maxWorkers": int,
    "batchSize": int,
    "maxBatchDelay": int,
    "responseTimeout": int,
    "startupTimeout": int,
    "deviceType": str,
    "deviceIds": list,
    "parallelType": str,
    "parallelLevel": int,
    "torchrun": dict,
    "maxRetryTimeoutInSec": int,
    "clientTimeoutInMills": int,
    "jobQueueSize": int,
    "useJobTicket": bool,
    "continuousBatching": bool,
    "sequenceBatching": bool,
    "sequenceMaxIdleMSec": int,
    "sequenceTimeoutMSec": int,
    "maxSequenceJobQueueSize": int,
    "maxNumSequence": int,
    "asyncCommunication": bool,
    "useVenv": bool,
}
HANDLER_KEYS = ("handler", "pt2", "micro_batching", "pippy", "deepspeed", "dali")  # for the handler alone
WITHOUT_EFFECT = {
    "parallelType": "models spread over several processes are not supported; each worker loads the whole model",
    "parallelLevel": "a worker has one device",
    "torchrun": "workers are not started by torchrun; each loads the whole model",
    "sequenceBatching": "requests of one sequence are not kept together; each is run on its own",
    "sequenceMaxIdleMSec": "it belongs to sequenceBatching, which is not supported",
    "sequenceTimeoutMSec": "it belongs to sequenceBatching, which is not supported",
    "maxSequenceJobQueueSize": "it belongs to sequenceBatching, which is not supported",
    "maxNumSequence": "it belongs to sequenceBatching, which is not supported",
    "asyncCommunication": "a worker runs one batch at a time and the next is on its way meanwhile",
}
WORDS = {int: "a whole number", str: "a text", bool: "true or false", list: "a list", dict: "settings by name"}


class Material(msgspec.Struct, frozen=True, kw_only=True):
    """A model's files and what they say of themselves."""

    path: str
    flavour: Literal["shoal", "torchserve", "mms"]
    name: str = ""
    version: str = ""
    handler: str = ""
    runtime: str = ""
    envelope: str = ""
    settings: Mapping[str, Any] = {}  # model-config.yaml
    stem: str = ""  # the name of a model that nobody named; empty: it needs one


class Registration(msgspec.Struct, frozen=True):
    """A model's settings, and what was said that has no effect."""

    config: ModelConfig
    notes: Sequence[str] = ()


def register(
    parameters: Mapping[str, str],
    material: Material,
    tuning: Mapping[str, Mapping[str, Mapping[str, Any]]],
    defaults: Defaults,
    *,
    at_startup: bool = False,
    turn: int = 0,
) -> Registration:
    """Decide every setting of a model. `turn` is how many workers were given a device before."""
    notes: list[str] = []
    name = parameters.get("model_name") or material.name or material.stem
    if not name:
        raise BadArchive("Model name is not defined.")
    version = material.version or parameters.get("model_version") or "1.0"
    yaml = usable(material.settings, notes)
    said = _Said(parameters, notes, decimals=material.flavour == "shoal")
    tuned = _tuned(tuning.get(name, {}).get(version, {}))
    workers, most = _workers(said, yaml, tuned, defaults, notes, at_startup=at_startup)
    if workers > MOST_WORKERS:
        raise InvalidInput(f"{workers} workers are more than {MOST_WORKERS}, which is the most that a model can have")
    size, delay = _batch(said, yaml, tuned, defaults, notes)
    devices = _devices(yaml, defaults, turn, notes)
    values: dict[str, Any] = {
        "name": name,
        "version": version,
        "path": material.path,
        "flavour": material.flavour,
        "handler": parameters.get("handler") or material.handler or defaults.handler,
        "runtime": _runtime(parameters, material, tuned, notes),
        "envelope": _envelope(material, defaults),
        "url": parameters.get("url", ""),
        "loaded_at_startup": at_startup,
        "workers": workers,
        "max_workers": most,
        "batching": {"policy": "fixed" if size else "adaptive", "batch_size": size, "max_batch_delay": delay},
        "prove_batching": not size and material.flavour != "shoal",
        "isolate": not size or material.flavour == "shoal",  # upstream fails a batch as a whole, if one was asked for
        "queue_size": _above(yaml, "jobQueueSize") or defaults.queue_size,
        "response_timeout": _time("responseTimeout", "response_timeout", yaml, tuned, said)
        or defaults.response_timeout,
        "startup_timeout": _time("startupTimeout", "startup_timeout", yaml, tuned, said) or defaults.startup_timeout,
        "request_timeout": _above(yaml, "clientTimeoutInMills") / 1000,
        "job_tickets": yaml.get("useJobTicket", False),
        "continuous": yaml.get("continuousBatching", False),
        "device": devices[0],
        "devices": devices if len(devices) > 1 else [],
        "parameters": dict(material.settings),
        "decode_input": defaults.decode_input,
        "limit_image_pixels": defaults.limit_image_pixels,
        "max_response_size": defaults.max_response_size,
        "hidden_environment": defaults.hidden_environment,
        "environment": defaults.environment,
        "allow_pickle": defaults.allow_pickle,
    }
    if seconds := _above(yaml, "maxRetryTimeoutInSec"):
        values["retry_for"] = seconds
    if yaml.get("useVenv") and not defaults.install_requirements:
        notes.append("model-config.yaml: useVenv has no effect: requirements of models are not installed here")
    return Registration(model_config(values, f"model {name}"), notes)


def usable(settings: Mapping[str, Any], notes: list[str]) -> dict[str, Any]:
    """Take the server's keys out of a model-config.yaml, as far as they are of the right type and have an effect."""
    found = {}
    for key, kind in KEYS.items():
        value = settings.get(key)
        if value is None:
            continue
        if type(value) is not kind:  # True is no number
            notes.append(f"model-config.yaml: {key} is {WORDS[kind]}, got {value!r}; it is ignored")
        elif key in WITHOUT_EFFECT:
            if value is not False and value != "":
                notes.append(f"model-config.yaml: {key} has no effect: {WITHOUT_EFFECT[key]}")
        else:
            found[key] = value
    return found


class _Said:
    """The parameters of a registration as numbers; what is no number counts as not said, as upstream has it."""

    def __init__(self, parameters: Mapping[str, str], notes: list[str], *, decimals: bool) -> None:
        self._parameters = parameters
        self._notes = notes
        self._decimals = decimals

    def whole(self, name: str) -> int | None:
        """A whole number; None: not said."""
        text = self._parameters.get(name)
        if text is None:
            return None
        if re.fullmatch(r"[+-]?[0-9]{1,9}", text.strip()):
            return int(text)
        self._notes.append(f"{name} is a whole number, got {text!r}; it is ignored")
        return None

    def time(self, name: str) -> float | None:
        """A number above or at zero, with a fraction where the model's own rules allow one; None: not said."""
        text = self._parameters.get(name, "")
        if self._decimals and re.fullmatch(r"[0-9]{1,9}([.][0-9]*)?", text.strip()):
            return float(text)
        value = self.whole(name)
        return value if value is not None and value >= 0 else None


def _tuned(values: Mapping[str, Any]) -> dict[str, Any]:
    """Take what counts from an entry of `models`: numbers above zero, and the runtime."""
    return {
        key: value
        for key, value in values.items()
        if (type(value) in (int, float) and value > 0) or (key == "runtimeType" and isinstance(value, str) and value)
    }


def _above(values: Mapping[str, Any], key: str) -> int:
    """Give a number above zero, or zero."""
    return max(0, int(values.get(key, 0)))


def _workers(
    said: _Said,
    yaml: Mapping[str, Any],
    tuned: Mapping[str, Any],
    defaults: Defaults,
    notes: list[str],
    *,
    at_startup: bool,
) -> tuple[int, int]:
    """Give how many workers there are and the most there may be; the archive's own word goes before the client's."""
    low, high = max(1, yaml["minWorkers"]) if "minWorkers" in yaml else 0, yaml.get("maxWorkers", 0)
    if low and high >= low:
        return low, high
    if "minWorkers" in yaml or "maxWorkers" in yaml:
        notes.append(
            "model-config.yaml: minWorkers and maxWorkers are used together, maxWorkers the larger; they are ignored"
        )
    asked = said.whole("initial_workers")
    if at_startup and "minWorkers" in tuned:
        least = int(tuned["minWorkers"])
        return least, max(least, int(tuned.get("maxWorkers", 0)))
    count = asked if asked is not None else defaults.startup_workers if at_startup else defaults.registered_workers
    return max(0, count), max(0, count)


def _batch(
    said: _Said, yaml: Mapping[str, Any], tuned: Mapping[str, Any], defaults: Defaults, notes: list[str]
) -> tuple[int, float]:
    """Give the most rows of a batch (0: nobody said) and the delay; the client's word goes first."""
    asked = said.whole("batch_size") or 0
    one_or_more = max(1, yaml["batchSize"]) if "batchSize" in yaml else 0
    size = asked if asked > 0 else one_or_more or int(tuned.get("batchSize", 0)) or defaults.batch_size
    wait = said.time("max_batch_delay")
    delay = wait if wait is not None else _above(yaml, "maxBatchDelay") or tuned.get("maxBatchDelay", 0)
    if wait is None and not delay:
        delay = defaults.max_batch_delay
    if size > MOST_ROWS:
        notes.append(f"a batch of {size} is more than {MOST_ROWS}; that is used")
    if delay > LONGEST_DELAY:
        notes.append(f"a batch delay of {delay} ms is more than {LONGEST_DELAY}; that is used")
    return min(size, MOST_ROWS), float(min(delay, LONGEST_DELAY))


def _time(key: str, parameter: str, yaml: Mapping[str, Any], tuned: Mapping[str, Any], said: _Said) -> float:
    """Give a time limit in seconds, 0 where nobody said one: the archive, then `models`, then the client."""
    asked = said.time(parameter)
    return float(_above(yaml, key) or tuned.get(key, 0) or asked or 0)


def _runtime(parameters: Mapping[str, str], material: Material, tuned: Mapping[str, Any], notes: list[str]) -> str:
    runtime = parameters.get("runtime") or material.runtime or tuned.get("runtimeType") or "python"
    if runtime == "python2" and material.flavour == "mms":
        notes.append("runtime python2: workers run this server's own Python 3")
        return "python2"
    if runtime not in RUNTIMES:
        raise InvalidInput(f"Invalid RuntimeType value: {runtime}")
    if runtime == "LSP":
        raise InvalidInput("runtime LSP (handlers in C++) is not supported; models run in python workers")
    return str(runtime)


def _envelope(material: Material, defaults: Defaults) -> str:
    if material.envelope not in ENVELOPES:
        known = ", ".join(filter(None, ENVELOPES))
        raise BadArchive(f"MANIFEST.json: envelope {material.envelope!r} is not one of {known}")
    return material.envelope or defaults.envelope


def _devices(yaml: Mapping[str, Any], defaults: Defaults, turn: int, notes: list[str]) -> list[str]:
    """Give the device of each worker in turn: all GPUs, beginning after the last one used, or those that are named."""
    kind, count = yaml.get("deviceType", ""), defaults.gpus
    if kind not in ("", "cpu", "gpu"):
        notes.append(f"model-config.yaml: deviceType is cpu or gpu, got {kind!r}; it is ignored")
    if kind == "gpu" and not count:
        notes.append("model-config.yaml: deviceType gpu: no GPU may be used here; the model runs on the CPU")
    if kind == "cpu" or not count:
        return ["cpu"]
    ids = yaml.get("deviceIds", [])
    if ids and all(type(number) is int and 0 <= number < count for number in ids):
        return [f"cuda:{number}" for number in ids]
    if ids:
        notes.append(
            f"model-config.yaml: deviceIds {ids!r} names a GPU that is not there (0 to {count - 1}); all are used"
        )
    return [f"cuda:{(1 + turn + number) % count}" for number in range(count)]
