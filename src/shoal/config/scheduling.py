"""Scheduling: how the requests of a model in a Triton repository are scheduled, by the names of its configuration."""

from collections.abc import Mapping
from typing import Any, Literal

import msgspec

from shoal.config.kinds import convert
from shoal.errors import ConfigError

LONGEST = 3_600_000_000  # microseconds of any delay or time-out that is waited for
Control = Literal["CONTROL_SEQUENCE_START", "CONTROL_SEQUENCE_READY", "CONTROL_SEQUENCE_END", "CONTROL_SEQUENCE_CORRID"]


class Settings(msgspec.Struct, frozen=True, kw_only=True, forbid_unknown_fields=True):
    """What all of these share: nothing unknown, nothing out of range."""

    def check(self, field: str, low: int, high: int) -> None:
        """Raise ValueError unless a number is within its range."""
        value = getattr(self, field)
        if not low <= value <= high:
            raise ValueError(f"{field} must be between {low} and {high}, got {value}")


class QueuePolicy(Settings, frozen=True):
    """How long and how many requests of one priority level may wait."""

    timeout_action: Literal["REJECT", "DELAY"] = "REJECT"
    default_timeout_microseconds: int = 0  # 0: none, and then a request's own has no effect either
    allow_timeout_override: bool = False  # a request may ask for less
    max_queue_size: int = 0  # requests; 0: any number

    def __post_init__(self) -> None:
        self.check("default_timeout_microseconds", 0, 2**63)
        self.check("max_queue_size", 0, 2**32)


class DynamicBatching(Settings, frozen=True):
    """Requests are merged into batches."""

    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False
    priority_levels: int = 0  # 0: there are none
    default_priority_level: int = 0
    default_queue_policy: QueuePolicy = QueuePolicy()
    priority_queue_policy: dict[int, QueuePolicy] = {}

    @property
    def policies(self) -> list[QueuePolicy]:
        """Those of the levels, the first level's first; without levels the default one alone."""
        levels = range(1, max(1, self.priority_levels) + 1)
        return [self.priority_queue_policy.get(level, self.default_queue_policy) for level in levels]

    def __post_init__(self) -> None:
        self.check("max_queue_delay_microseconds", 0, LONGEST)
        self.check("priority_levels", 0, 65536)
        if self.priority_levels and not 1 <= self.default_priority_level <= self.priority_levels:
            wrong = f"default_priority_level is {self.default_priority_level}"
            raise ValueError(f"{wrong}; with {self.priority_levels} priority levels it is 1 to {self.priority_levels}")
        for level in self.priority_queue_policy:
            if not 1 <= level <= self.priority_levels:
                raise ValueError(f"priority_queue_policy names level {level} of {self.priority_levels}")
        if self.preserve_ordering and self.priority_levels > 1:
            raise ValueError("preserve_ordering needs a single priority level")
        if self.preserve_ordering and any(policy.timeout_action == "DELAY" for policy in self.policies):
            raise ValueError("preserve_ordering cannot be kept where timeout_action is DELAY")


class Direct(Settings, frozen=True):
    """Every sequence keeps its row of the batch."""

    max_queue_delay_microseconds: int = 0
    minimum_slot_utilization: float = 0.0

    def __post_init__(self) -> None:
        self.check("max_queue_delay_microseconds", 0, LONGEST)
        self.check("minimum_slot_utilization", 0, 1)


class Oldest(Settings, frozen=True):
    """The oldest requests of the candidate sequences are merged, in any row."""

    max_candidate_sequences: int = 0  # of one instance; 0: as many as a batch has rows
    preferred_batch_size: tuple[int, ...] = ()
    max_queue_delay_microseconds: int = 0
    preserve_ordering: bool = False  # always so: an instance runs one batch at a time

    def __post_init__(self) -> None:
        self.check("max_candidate_sequences", 0, 1_000_000)
        self.check("max_queue_delay_microseconds", 0, LONGEST)


class ControlKind(Settings, frozen=True):
    """What a control tensor tells, and with which two values."""

    kind: Control = "CONTROL_SEQUENCE_START"
    int32_false_true: tuple[int, ...] = ()
    fp32_false_true: tuple[float, ...] = ()
    bool_false_true: tuple[bool, ...] = ()
    data_type: str = ""


class ControlInput(Settings, frozen=True):
    """A tensor that the server fills and no client sends."""

    name: str
    control: list[ControlKind] = []


class SequenceBatching(Settings, frozen=True):
    """Requests of one correlation id go to one instance, one after the other."""

    max_sequence_idle_microseconds: int = 0  # 0: one second
    control_input: list[ControlInput] = []
    state: list[dict[str, Any]] = []  # kept by the worker
    direct: Direct | None = None
    oldest: Oldest | None = None
    iterative_sequence: bool = False

    @property
    def idle_seconds(self) -> float:
        """How long a sequence keeps its slot without a request."""
        return (self.max_sequence_idle_microseconds or 1_000_000) / 1e6

    @property
    def correlation_type(self) -> type[int] | type[str] | None:
        """What correlation ids have to be; None where the model does not see them."""
        for tensor in self.control_input:
            for control in tensor.control:
                if control.kind == "CONTROL_SEQUENCE_CORRID":
                    return str if control.data_type == "TYPE_STRING" else int
        return None

    def __post_init__(self) -> None:
        self.check("max_sequence_idle_microseconds", 0, 2**63)
        if self.direct is not None and self.oldest is not None:
            raise ValueError("sequence_batching is direct or oldest, not both")
        if self.iterative_sequence:
            raise ValueError("iterative_sequence is not supported; send the requests of a sequence one by one")


class Step(Settings, frozen=True):
    """One model of an ensemble: whose tensors it reads and writes, by its own names for them."""

    model_name: str
    model_version: int = -1  # -1: the latest
    model_namespace: str = ""
    input_map: dict[str, str] = {}  # the model's input -> the ensemble's tensor
    output_map: dict[str, str] = {}  # the model's output -> the ensemble's tensor


class EnsembleScheduling(Settings, frozen=True):
    """Requests go through other models."""

    step: list[Step] = []
    max_inflight_requests: int = 0  # of one step, for one request; 0: any number

    def __post_init__(self) -> None:
        self.check("max_inflight_requests", 0, 2**32)


class Scheduling(Settings, frozen=True):
    """At most one of the three; none is the default: every request alone, first come first served."""

    max_batch_size: int = 0  # rows; 0: the model's tensors have no batch dimension
    dynamic_batching: DynamicBatching | None = None
    sequence_batching: SequenceBatching | None = None
    ensemble_scheduling: EnsembleScheduling | None = None

    def __post_init__(self) -> None:
        self.check("max_batch_size", 0, 2**31 - 1)
        chosen = [name for name in SCHEDULERS if getattr(self, name) is not None]
        if len(chosen) > 1:
            raise ValueError(f"one scheduler at most can be chosen, got {' and '.join(chosen)}")
        oldest = self.sequence_batching.oldest if self.sequence_batching else None
        for batching in (self.dynamic_batching, oldest):
            for size in batching.preferred_batch_size if batching else ():
                if not 1 <= size <= max(1, self.max_batch_size):
                    most = f"max_batch_size, which is {self.max_batch_size}"
                    raise ValueError(f"preferred_batch_size {size} is not between 1 and {most}")


SCHEDULERS = ("dynamic_batching", "sequence_batching", "ensemble_scheduling")


def scheduling_of(settings: Mapping[str, Any], where: str) -> Scheduling:
    """Read what a model's whole configuration, in JSON's form, says about scheduling; ConfigError tells where."""
    names = ("max_batch_size", *SCHEDULERS)
    values = {name: settings[name] for name in names if settings.get(name) is not None}
    try:
        return convert(values, Scheduling, strict=False)
    except msgspec.ValidationError as error:
        raise ConfigError(f"{where}: {str(error).replace('`$.', '`').replace(' - at `$`', '')}") from None
