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
        if not 0 <= self.request_timeout < math.inf:
            raise ValueError(f"request_timeout is in seconds and must be 0 or more, got {self.request_timeout}")
