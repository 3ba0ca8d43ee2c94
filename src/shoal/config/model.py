"""ModelConfig: what a model is, how it batches, where it runs. Frozen; unknown keys are refused."""

import math
from typing import Any, Literal

import msgspec

from shoal.config.scheduling import Scheduling


class Batching(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """How batches leave: `adaptive` needs no numbers; `fixed` is TorchServe's batch_size and max_batch_delay.

    Where no policy is named, a batch_size means `fixed`, exactly as upstream; nothing at all means `adaptive`.
    """

    policy: Literal["", "adaptive", "fixed", "single"] = ""
    batch_size: int = 0  # the most rows; 0: the policy's own default
    max_batch_delay: float = 100.0  # ms, as upstream; `fixed` only

    @property
    def rule(self) -> Literal["adaptive", "fixed", "single"]:
        """The policy that is meant."""
        return self.policy or ("fixed" if self.batch_size else "adaptive")

    def __post_init__(self) -> None:
        if not 0 <= self.batch_size <= 65536:
            raise ValueError(f"batch_size must be between 1 and 65536, got {self.batch_size}")
        if not 0 <= self.max_batch_delay <= 3_600_000:
            raise ValueError(f"max_batch_delay is in milliseconds, 0 to 3600000, got {self.max_batch_delay}")


class MicroBatching(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """Slices of a batch moving through the stages, and how many threads each stage has."""

    micro_batch_size: int = 0  # 0: a batch moves as one
    parallelism: dict[Literal["preprocess", "inference", "postprocess"], int] = {}

    def __post_init__(self) -> None:
        if self.micro_batch_size < 0:
            raise ValueError(f"micro_batch_size must be 1 or more, got {self.micro_batch_size}")
        for stage, threads in self.parallelism.items():
            if not 1 <= threads <= 256:
                raise ValueError(f"parallelism.{stage} must be between 1 and 256 threads, got {threads}")


class Recycling(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """When a worker is replaced by a fresh one, which is up before the old one leaves; 0: never for this reason."""

    requests: int = 0  # answered
    age: float = 0.0  # s
    memory: int = 0  # bytes that its resident memory has grown since its first batches
    device_memory: int = 0  # bytes that torch's memory on its device has grown since then
    device_error: bool = True  # at once, when its device gave an error that every later call would get too

    def __post_init__(self) -> None:
        for field in ("requests", "memory", "device_memory"):
            if getattr(self, field) < 0:
                raise ValueError(f"recycle.{field} must be 0 or more, got {getattr(self, field)}")
        if not 0 <= self.age < math.inf:
            raise ValueError(f"recycle.age is in seconds and must be 0 or more, got {self.age}")


class WorkerLimits(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """The most that one worker may take of the machine; 0: as much as the server may."""

    memory: int = 0  # bytes of its own; shared memory does not count
    files: int = 0  # open at once
    file_size: int = 0  # bytes of a file that it writes
    cpu_time: int = 0  # s of computing, then the kernel ends it and it is replaced
    processes: int = 0  # and threads, of all that belongs to its user

    def __post_init__(self) -> None:
        for field in self.__struct_fields__:
            if getattr(self, field) < 0:
                raise ValueError(f"limits.{field} must be 0 or more, got {getattr(self, field)}")


class Canary(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """A share of a name's requests for a version beside the default one, and when it is taken back by itself."""

    weight: float = 10.0  # percent of the requests that name no version
    sticky: bool = False  # requests of one client's address go the same way
    min_requests: int = 20  # of the new version, before it is judged
    max_errors: float = 5.0  # percentage points: how much more of its requests may fail than of the old one's
    max_slowdown: float = 2.0  # times the old one's time, for nine of ten answers; 0: as slow as it likes
    window: float = 60.0  # s that are looked back

    def __post_init__(self) -> None:
        if not 0 < self.weight <= 100:
            raise ValueError(f"canary.weight is in percent, above 0 and at most 100, got {self.weight}")
        if self.min_requests < 1:
            raise ValueError(f"canary.min_requests must be 1 or more, got {self.min_requests}")
        if not 0 <= self.max_errors <= 100:
            raise ValueError(f"canary.max_errors is in percentage points, 0 to 100, got {self.max_errors}")
        if self.max_slowdown != 0 and not 1 <= self.max_slowdown < math.inf:
            raise ValueError(f"canary.max_slowdown must be 1 or more, or 0 for any, got {self.max_slowdown}")
        if not 1 <= self.window <= 86_400:
            raise ValueError(f"canary.window is in seconds, 1 to 86400, got {self.window}")


class TensorSpec(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One input or output of a model that takes and gives tensors; -1 is any size, the batch is not among the dims."""

    name: str
    datatype: str  # in KServe's words: FP32, INT64, BYTES, ...
    dims: list[int]
    is_optional: bool = False
    is_ragged: bool = False  # requests of other shapes may share a batch
    reshape: list[int] | None = None  # the shape that the model itself sees
    labels: list[str] = []  # of an output's classes, by index


class Interface(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What tensors a model takes and gives."""

    inputs: list[TensorSpec]
    outputs: list[TensorSpec]
    max_batch_size: int = 0  # rows; 0: the tensors have no batch dimension
    is_decoupled: bool = False  # a request may have any number of answers


class ModelConfig(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """One version of a model."""

    name: str
    path: str  # a Python file, or a folder with a model.py or handler.py
    handler: str = ""  # a name inside the file; found by itself when empty
    version: str = "1.0"
    batching: Batching = Batching()
    micro_batching: MicroBatching = MicroBatching()
    workers: int = 1  # processes
    max_workers: int = 0  # what describe shows and scaling trims to; 0: as many as `workers`
    instances: int = 1  # threads inside each that share the loaded model
    queue_size: int = 8192
    client_share: float = 1.0  # of the queue, that the requests of one client's address may fill
    response_timeout: float = 120.0  # s a batch may take before its worker is replaced
    startup_timeout: float = 120.0  # s to load
    request_timeout: float = 0.0  # s until a request without a deadline of its own expires; 0: never
    max_attempts: int = 3  # times a request may be given to a worker, should workers die under it
    device: str = "cpu"
    devices: list[str] = []  # one for each worker in turn; empty: `device` for all
    parameters: dict[str, Any] = {}  # handed to the handler as context.parameters
    flavour: Literal["shoal", "torchserve", "mms", "triton"] = "shoal"  # whose rules the handler was written to
    backend: str = ""  # of a model in a Triton repository: onnxruntime, pytorch, python, identity
    interface: Interface | None = None  # of a model that takes and gives tensors
    scheduling: Scheduling | None = None  # Triton's, where the model comes from a repository of its kind
    settings: dict[str, Any] = {}  # of a model in a Triton repository: its completed configuration, in JSON's form
    url: str = ""  # what a registration called it by; empty: its path
    runtime: str = "python"
    envelope: Literal["", "body", "json", "kserve", "kservev2"] = ""  # around the handler, with TorchServe's meaning
    decode_input: bool = True  # JSON and text bodies reach a TorchServe handler decoded
    limit_image_pixels: bool = True
    max_response_size: int = 0  # bytes of one answer; 0: any
    retry_for: float = 300.0  # s of failing restarts after which workers are no longer tried
    prove_batching: bool = False  # the first batches are compared with the same requests run alone
    isolate: bool = True  # a batch that failed runs again in halves until the guilty request is alone
    side_effects: bool = False  # no request is ever run twice
    poison_after: int = 3  # workers lost to one request, alone at last, after which its content is refused; 0: never
    poison_for: float = 600.0  # s that it is remembered
    recycle: Recycling = Recycling()
    canary: Canary | None = None  # this version gets a share of the requests that name none
    job_tickets: bool = False  # TorchServe's useJobTicket: a request needs an idle worker
    continuous: bool = False  # TorchServe's continuousBatching: requests join and leave a running batch
    loaded_at_startup: bool = False
    workflow: str = ""  # that it is a part of
    is_hidden: bool = False  # left out of lists: a function of a workflow
    allow_pickle: bool = False  # weights may carry code that runs when they are read
    python: str = ""  # the workers' interpreter; empty: the server's own
    packages: str = ""  # a folder of packages that only this model's workers see
    hidden_environment: str = ""  # names (a regular expression, matched whole) that workers do not see
    environment: dict[str, str] = {}  # added to the workers' environment
    user: str = ""  # that workers run as: a name or a number; empty: as the server. The server must be root's
    limits: WorkerLimits = WorkerLimits()

    def __post_init__(self) -> None:
        if not self.name or not all(c.isalnum() or c in "._-" for c in self.name) or self.name.startswith("."):
            raise ValueError(f"a model's name is made of letters, digits, '.', '_' and '-', got {self.name!r}")
        if not self.version or not all(c.isalnum() or c in "._-+" for c in self.version):
            raise ValueError(f"a version is made of letters, digits, '.', '_', '-' and '+', got {self.version!r}")
        for field, low in (("workers", 0), ("instances", 1), ("queue_size", 1), ("max_attempts", 1)):
            if getattr(self, field) < low:
                raise ValueError(f"{field} must be {low} or more, got {getattr(self, field)}")
        for field in ("response_timeout", "startup_timeout"):
            if not 0 < getattr(self, field) < math.inf:
                raise ValueError(f"{field} is in seconds and must be above 0, got {getattr(self, field)}")
        if not 0 < self.client_share <= 1:
            raise ValueError(f"client_share is a part of the queue, above 0 and at most 1, got {self.client_share}")
        if self.poison_after < 0:
            raise ValueError(f"poison_after must be 0 or more, got {self.poison_after}")
        for field in ("request_timeout", "poison_for"):
            if not 0 <= getattr(self, field) < math.inf:
                raise ValueError(f"{field} is in seconds and must be 0 or more, got {getattr(self, field)}")
