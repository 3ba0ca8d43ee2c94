"""Models without processes and exchanges without connections: what tests of the APIs put around them."""

import asyncio
import json
from collections.abc import Callable, Coroutine, Iterable, Mapping, Sequence
from typing import Any, TypeVar

from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.core.batch import Batch, Stages
from shoal.core.model import Model, WorkerFacts
from shoal.core.repository import Repository
from shoal.core.request import Outcome, Request
from shoal.errors import LoadFailed, ServingError
from shoal.frontend.actions import Actions
from shoal.frontend.client import Client
from shoal.frontend.dialect import Dialect, dialect_of
from shoal.frontend.exchange import Exchange
from shoal.frontend.management import Management
from shoal.frontend.mms import Inference
from shoal.frontend.tokens import Tokens
from shoal.payload import Buffer
from tests.support import Bench, FakeClock, StubInstance

T = TypeVar("T")
HOST = (b"Host", b"here:8081")


class Hub:
    date = b"Date: today\r\n"

    def __init__(self) -> None:
        self.answers = [0] * 10


class FakeLink:
    """A connection that keeps what was sent."""

    def __init__(self) -> None:
        self.blocked = False
        self.send: Callable[[bytes], None] = self._send
        self.send_all: Callable[[Iterable[Buffer]], None] = self._send_all
        self.hub = Hub()
        self.sent = b""
        self.keep: bool | None = None
        self.aborted = False

    def _send(self, data: bytes) -> None:
        self.sent += data

    def _send_all(self, data: Iterable[Buffer]) -> None:
        self.sent += b"".join(data)

    def answered(self, keep: bool) -> None:
        self.keep = keep

    def abort(self) -> None:
        self.aborted = True


class Answer:
    """One exchange and what came of it."""

    def __init__(
        self,
        target: str,
        method: str = "POST",
        body: Any = b"",
        headers: Mapping[str, str] | None = None,
        content_type: str = "",
    ) -> None:
        self.link = FakeLink()
        exchange = self.exchange = Exchange(self.link, Client(1), "peer", target.encode())
        exchange.method = method
        exchange.body = body
        exchange.headers = [HOST, *((name.encode(), value.encode()) for name, value in (headers or {}).items())]
        exchange.content_type = content_type.encode()

    @property
    def _split(self) -> tuple[bytes, bytes]:
        assert self.link.sent, "no answer"
        head, _, body = self.link.sent.partition(b"\r\n\r\n")
        return head, body

    @property
    def status_line(self) -> bytes:
        return self._split[0].split(b"\r\n")[0]

    @property
    def status(self) -> int:
        return int(self.status_line.split(b" ")[1])

    @property
    def headers(self) -> dict[str, str]:
        lines = [line.decode("latin-1").split(": ", 1) for line in self._split[0].split(b"\r\n")[1:]]
        names = [name.lower() for name, _ in lines]
        assert len(names) == len(set(names)), f"a header twice: {names}"
        return dict(zip(names, (value for _, value in lines), strict=True))

    @property
    def body(self) -> bytes:
        return self._split[1]

    @property
    def json(self) -> Any:
        return json.loads(self.body)

    @property
    def error(self) -> tuple[int, str, str]:
        assert self.json["code"] == self.status
        return self.status, self.json["type"], self.json["message"]


class Pool:
    """Workers that come up at once, or fail as told."""

    def __init__(self, config: ModelConfig, fleet: Callable[[], Any]) -> None:
        self.config = config
        self.size = 0
        self.trouble = ""
        self.failure: LoadFailed | None = None
        self.facts: list[WorkerFacts] | None = None
        self.gate: asyncio.Event | None = None
        self._fleet = fleet

    async def start(self) -> None:
        await self.scale(self.config.workers)

    async def scale(self, workers: int) -> None:
        if self.gate is not None:
            await self.gate.wait()
        if self.failure is not None:
            raise self.failure
        self.size = self._fleet().size = workers

    async def stop(self, timeout: float) -> None:
        self.size = 0

    def describe(self) -> Sequence[WorkerFacts]:
        return [worker(number) for number in range(self.size)] if self.facts is None else self.facts


def worker(number: int = 0, **fields: Any) -> WorkerFacts:
    usual = {
        "id": f"w-{number}",
        "pid": 100 + number,
        "state": "ready",
        "since": 1.5,
        "started": 1706666701.622,
        "restarts": 0,
        "memory": 4096,
        "device": "cpu",
        "last_error": "",
    }
    return WorkerFacts(**{**usual, **fields})


class FakeIntake:
    """Makes settings of parameters; remembers what was thrown away."""

    def __init__(self) -> None:
        self.asked: list[dict[str, str]] = []
        self.discarded: list[str] = []
        self.flavour: Any = "shoal"

    async def prepare(self, parameters: Mapping[str, str]) -> ModelConfig:
        self.asked.append(dict(parameters))
        return ModelConfig(
            name=parameters.get("model_name", "m"),
            version=parameters.get("version", "1.0"),
            path="m.py",
            url=parameters.get("url", ""),
            workers=int(parameters.get("initial_workers", 1)),
            flavour=self.flavour,
        )

    def discard(self, config: ModelConfig) -> None:
        self.discarded.append(f"{config.name} {config.version}")


class Desk:
    """Both APIs of one server, over models that the test answers for."""

    def __init__(
        self,
        compat: str = "",
        *,
        tokens: Tokens | None = None,
        drain_within: float = 0.0,
        gpu_usage: Callable[[int], str] = lambda gpu: "N/A",
        open_inference: bool = False,
        limit: int = 100,
        **settings: Any,
    ) -> None:
        self.config = ServerConfig(compat=compat, **settings)  # type: ignore[arg-type]  # one of those it knows
        self.dialect: Dialect = dialect_of(self.config, "9.9")
        self.benches: dict[tuple[str, str], Bench] = {}
        self.pools: dict[tuple[str, str], Pool] = {}
        self.running: dict[tuple[str, str], Request] = {}
        self.on_built: Callable[[Pool], None] = lambda pool: None
        self.limit = limit
        self.repository = Repository(self._build)
        self.intake = FakeIntake()
        self.clock = FakeClock()
        self.actions = Actions(
            self.repository,
            self.intake,
            self.dialect,
            self.clock,
            drain_within=drain_within,
            model_api=self.config.model_api,
            gpu_usage=gpu_usage,
        )

        def authorise(exchange: Exchange) -> None:
            assert tokens is not None
            tokens.check("inference", exchange.header(b"authorization"))

        self.inference = Inference(
            self.repository,
            self.clock,
            self.dialect,
            open_inference=open_inference,
            authorise=authorise if tokens else None,
        )
        self.management = Management(
            self.repository,
            self.actions,
            self.dialect,
            tokens=tokens,
            cors_origin=self.config.cors_origin,
        )

    def _build(self, config: ModelConfig) -> Model:
        bench = Bench(limit=self.limit)
        pool = Pool(config, lambda: bench.fleet)
        self.benches[config.name, config.version] = bench
        self.pools[config.name, config.version] = pool
        self.on_built(pool)
        return Model(config, bench.scheduler, pool, self.clock)

    def add(self, name: str = "m", version: str = "1.0", **fields: Any) -> Model:
        config = ModelConfig(name=name, version=version, path=f"{name}.py", **fields)
        return asyncio.run(self.repository.register(config))

    def ask(self, target: str, *outcomes: Outcome, **kw: Any) -> Answer:
        """Send a prediction; the model gives these pieces, if it was asked."""
        answer = Answer(target, **kw)
        if not self.inference.predict(answer.exchange) and not self.inference.others(answer.exchange):
            self.dialect.not_found(answer.exchange)
        for outcome in outcomes:
            request = self.asked()
            is_last = outcome is outcomes[-1]
            request.batch.deliver(0, outcome, is_last, 1.0)  # type: ignore[union-attr]  # it is running
        return answer

    def asked(self, name: str = "m", version: str = "1.0") -> Request:
        """The request that waits, put into a batch of one."""
        queue = self.benches[name, version].batcher.queue
        lane = queue.head()
        if lane is not None:
            (request,) = queue.pop(lane, 100)
            self.running[name, version] = request
            batch = Batch(1, [request], "idle", 0.25)
            batch.stages = Stages(0.001, 0.002, 0.003)
        return self.running[name, version]

    def manage(self, target: str, method: str = "GET", **kw: Any) -> Answer:
        return asyncio.run(self.managing(target, method, **kw))

    async def managing(self, target: str, method: str = "GET", **kw: Any) -> Answer:
        answer = Answer(target, method, **kw)
        if not self.management.manage(answer.exchange):
            self.dialect.not_found(answer.exchange)
        await asyncio.gather(*self.management._tasks)
        assert answer.exchange.is_answered
        return answer


def run(work: Coroutine[Any, Any, T]) -> T:
    return asyncio.run(work)


def join(desk: Desk, name: str = "m", version: str = "1.0") -> StubInstance:
    """Give a model an instance that holds what it gets."""
    bench = desk.benches[name, version]
    bench.fleet.size = 0
    return bench.join()


def failing(error: ServingError) -> Callable[[Pool], None]:
    def fail(pool: Pool) -> None:
        assert isinstance(error, LoadFailed)
        pool.failure = error

    return fail
