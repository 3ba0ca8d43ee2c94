"""Models of tensors without processes, asked over HTTP and gRPC without sockets."""

import json
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

from shoal.answer import Answer as TensorAnswer
from shoal.answer import Head
from shoal.config.model import Interface, ModelConfig, TensorSpec
from shoal.core.batch import Batch, Stages
from shoal.core.model import Life, Model
from shoal.core.repository import Repository
from shoal.core.request import Outcome, Request
from shoal.errors import HandlerFailed
from shoal.frontend.grpc.kserve import KServe
from shoal.frontend.kserve.access import OPEN, Access
from shoal.frontend.kserve.control import Listed
from shoal.frontend.kserve.describe import About
from shoal.frontend.kserve.desk import Desk
from shoal.frontend.kserve.infer import Infer
from shoal.frontend.kserve.memory import Regions
from shoal.frontend.kserve.parts import Parts
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.routes import Routes
from shoal.frontend.kserve.settings import LogSettings, TraceSettings
from shoal.payload import Block, Result
from shoal.series.triton import Series
from shoal.tensor import ANSWER, WIDTHS, join
from tests.support import Bench, FakeClock, FakePool, StubInstance
from tests.unit.frontend.api_fakes import Answer

LARGEST = 1 << 20
Output = tuple[str, str, Sequence[int], bytes]


def spec(name: str, datatype: str = "FP32", dims: Sequence[int] = (4,), **fields: Any) -> TensorSpec:
    return TensorSpec(name=name, datatype=datatype, dims=list(dims), **fields)


def interface(*inputs: TensorSpec, rows: int = 4, outputs: Sequence[TensorSpec] = (), **fields: Any) -> Interface:
    own = list(inputs) or [spec("IN")]
    given = list(outputs) or [spec(each.name.replace("IN", "OUT"), each.datatype, each.dims) for each in own]
    return Interface(inputs=own, outputs=given, max_batch_size=rows, **fields)


def plan_of(*inputs: TensorSpec, **fields: Any) -> Plan:
    """A plan without a server around it."""
    taken = interface(*inputs, **fields)
    config = ModelConfig(name="m", version="1", path="m", interface=taken)
    return Plan(Model(config, Bench().scheduler, FakePool(), FakeClock()), taken)


def tensors(*outputs: Output, parameters: dict[str, Any] | None = None, **fields: Any) -> Result:
    """What a worker answers."""
    heads = [Head(name, datatype, list(shape), len(data)) for name, datatype, shape, data in outputs]
    return Result(join(TensorAnswer(heads, parameters or {}, **fields), [output[3] for output in outputs]), ANSWER)


class Memory:
    """A lent block that counts its returns."""

    def __init__(self, data: bytes, offset: int = 1000) -> None:
        self.data = bytearray(data)
        self.offset = offset
        self.size = len(data)
        self.released = 0

    @property
    def view(self) -> memoryview:
        assert not self.released, "read after it was given back"
        return memoryview(self.data)

    def release(self) -> None:
        self.released += 1


class FakeControl:
    """Remembers what it was told."""

    def __init__(self) -> None:
        self.mode = "explicit"
        self.told: list[tuple[Any, ...]] = []
        self.error: Exception | None = None

    async def index(self, *, ready: bool = False) -> list[Listed]:
        lines = [Listed("a", "1", "READY", ""), Listed("b", "1", "UNAVAILABLE", "unloaded"), Listed("c", "", "", "")]
        return [line for line in lines if line.state == "READY" or not ready]

    async def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        self.told.append(("load", name, dict(parameters)))
        if self.error is not None:
            raise self.error

    def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        self.told.append(("unload", name, unload_dependents))


class Bed:
    """Several models, each with an instance that holds what it gets."""

    def __init__(
        self,
        folder: Path | None = None,
        *,
        http: Access = OPEN,
        grpc: Access = OPEN,
        shared_memory: bool = True,
        limit: int = 100,
    ):
        self.clock = FakeClock(5.0)
        self.limit = limit
        self.benches: dict[tuple[str, str], Bench] = {}
        self.instances: dict[tuple[str, str], StubInstance] = {}
        self.repository = Repository(self._build)
        self.series = Series(lambda: 1000.0)
        self.lent: list[Memory] = []
        self.regions = Regions(is_on=shared_memory, lend=self._lend, largest=LARGEST, folder=folder or Path("/nowhere"))
        self.desk = Desk(
            self.repository,
            self.clock,
            self.regions,
            lambda model, *rest: self.series.of(model.scheduler.stats).response(*rest),
        )
        self.control = FakeControl()
        self.levels: list[int] = []
        self.is_live = True
        self.parts = Parts(
            self.desk,
            self.control,
            lambda model: self.series.statistics(model.scheduler.stats),
            About("triton", "2.51.0", lambda: self.is_live, self.desk.all_ready),
            TraceSettings(),
            LogSettings(self.levels.append),
            http,
            grpc,
        )
        self.routes = Routes(self.parts, Infer(self.desk, largest=LARGEST, access=http))
        self.services = KServe(self.parts).services()

    def add(self, name: str = "m", *inputs: TensorSpec, version: str = "1", ready: bool = True, **fields: Any) -> Model:
        """Put a model in; settings of its interface are given by name."""
        config = ModelConfig(name=name, version=version, path=name, interface=interface(*inputs, **fields))
        return self.add_config(config, ready=ready)

    def add_config(self, config: ModelConfig, *, ready: bool = True) -> Model:
        model = self.repository.add(config)
        if ready:
            model.move(Life.READY)
            self.instances[config.name, config.version] = self.benches[config.name, config.version].join()
        return model

    def ask(self, target: str, body: Any = None, headers: Mapping[str, str] | None = None, method: str = "") -> Answer:
        """Send a request over HTTP; what is not bytes is sent as JSON."""
        sent = b"" if body is None else body if _is_body(body) else json.dumps(body).encode()
        answer = Answer(target, method or ("GET" if body is None else "POST"), sent, headers)
        assert self.routes.take(answer.exchange), f"{target} is nobody's"
        return answer

    def infer(self, body: Any, headers: Mapping[str, str] | None = None, name: str = "m") -> Answer:
        return self.ask(f"/v2/models/{name}/infer", body, headers)

    def running(self, name: str = "m", version: str = "1") -> list[Request]:
        """The requests that the model's instance has; what waits is fed first."""
        bench = self.benches[name, version]
        bench.feed(self.clock.time)
        return [request for batch in self.instances[name, version].batches for request in batch.requests]

    def reply(self, *pieces: Outcome, name: str = "m", version: str = "1", index: int = 0, ends: bool = True) -> Batch:
        """Deliver pieces to one request of the oldest batch; the last of them is its last unless told otherwise."""
        self.running(name, version)
        bench, instance = self.benches[name, version], self.instances[name, version]
        batch = instance.batches[0]
        for piece in pieces:
            is_last = ends and piece is pieces[-1]
            if is_last and index == len(batch.requests) - 1:
                instance.batches.pop(0)
                batch.stages = Stages(0.001, 0.002, 0.003)
                bench.scheduler.freed(instance, batch, self.clock.time, self.clock.time)
            batch.deliver(index, piece, is_last, self.clock.time)
            if is_last and index == len(batch.requests) - 1:
                bench.scheduler.closed(batch, self.clock.time, lambda: HandlerFailed("no answer"))
        return batch

    def _build(self, config: ModelConfig) -> Model:
        bench = Bench(limit=self.limit)
        bench.policy.limit = 1
        bench.stats.model, bench.stats.version = config.name, config.version
        self.benches[config.name, config.version] = bench
        self.series.watch(bench.stats)
        pool = FakePool()
        pool.size = 1
        return Model(config, bench.scheduler, pool, self.clock)

    def _lend(self, size: int) -> Block | None:
        block = Memory(bytes(size))
        self.lent.append(block)
        return block


def binary(head: dict[str, Any], *data: bytes) -> tuple[bytes, dict[str, str]]:
    """A body of a JSON head and bytes behind it, and the header that says so."""
    text = json.dumps(head).encode()
    return text + b"".join(data), {"Inference-Header-Content-Length": str(len(text))}


def given(name: str = "IN", datatype: str = "FP32", shape: Sequence[int] = (1, 4), **fields: Any) -> dict[str, Any]:
    """An input in JSON."""
    usual: dict[str, Any] = {"name": name, "datatype": datatype, "shape": list(shape)}
    if "data" not in fields and "parameters" not in fields:
        usual["data"] = [1, 2, 3, 4]
    return {key: value for key, value in {**usual, **fields}.items() if value is not ...}


def behind(name: str = "IN", datatype: str = "FP32", shape: Sequence[int] = (1, 4), size: int = -1) -> dict[str, Any]:
    """An input whose bytes are behind the JSON."""
    count = 1
    for dim in shape:
        count *= dim
    return given(name, datatype, shape, parameters={"binary_data_size": count * WIDTHS[datatype] if size < 0 else size})


def _is_body(body: Any) -> bool:
    return isinstance(body, bytes) or hasattr(body, "release")
