"""A call without a transport, and a model whose instance does what the test says."""

import math
from collections.abc import Callable, Mapping, Sequence

from shoal.config.model import ModelConfig
from shoal.core.batch import Batch, Stages
from shoal.core.model import Life, Model
from shoal.core.repository import Repository
from shoal.core.request import Outcome, Request
from shoal.errors import HandlerFailed, ServingError
from shoal.frontend.client import Client
from shoal.frontend.fragments import Fragments
from shoal.frontend.grpc.calls import Api, Desk
from shoal.frontend.rpc import Code, Service
from shoal.frontend.status import http_status
from shoal.payload import Buffer, Result
from tests.support import Bench, FakeClock, FakePool, StubInstance


class FakeCall:
    """Remembers what the service said; the test plays the client."""

    peer = "test"
    client = Client(7)

    def __init__(self, method: str, *, metadata: Sequence[tuple[bytes, bytes]] = (), timeout: float = math.inf) -> None:
        self.method = method
        self.metadata = metadata
        self.timeout = timeout
        self.is_read = True  # whether the client takes what is sent
        self.sent: list[bytes] = []
        self.status: tuple[Code, str] | None = None
        self.on_message: Callable[[bytes], None] = _unset
        self.on_pieces: Callable[[Fragments], None] | None = None
        self.on_end: Callable[[], None] = _unset
        self.on_gone: Callable[[], None] = _unset

    @property
    def writable(self) -> bool:
        return self.is_read and self.status is None

    def send(self, message: bytes, *more: Buffer) -> None:
        if self.status is None:
            self.sent.append(b"".join((message, *more)))

    def finish(self, code: Code = Code.OK, message: str = "", trailers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        if self.status is None:
            self.status = (code, message)

    def begin(self, services: Mapping[str, Service], *messages: bytes, ends: bool = True) -> "FakeCall":
        services[self.method](self)
        for message in messages:
            self.on_message(message)
        if ends:
            self.on_end()
        return self

    @property
    def code(self) -> Code | None:
        return self.status[0] if self.status else None

    @property
    def words(self) -> str:
        assert self.status is not None, "the call is not over"
        return self.status[1]


class Bed:
    """One ready model, `m`, with one instance, which takes one request at a time."""

    def __init__(self, *, limit: int = 100) -> None:
        self.clock = FakeClock(5.0)
        self.bench = Bench(limit=limit)
        self.bench.now = 5.0
        self.bench.policy.limit = 1
        pool = FakePool()
        pool.size = 1
        self.pool = pool
        self.repository = Repository(lambda config: Model(config, self.bench.scheduler, pool, self.clock))
        self.model = self.repository.add(ModelConfig(name="m", path="m.py"))
        self.model.move(Life.READY)
        self.instance: StubInstance = self.bench.join()
        self.desk = Desk(self.repository, self.clock, describe)

    def running(self) -> list[Request]:
        """The requests that an instance has; what waits is fed first."""
        self.bench.feed()
        return [request for batch in self.instance.batches for request in batch.requests]

    def answer(self, *pieces: Outcome | bytes, ends: bool = True) -> Batch:
        """Deliver pieces for the oldest running request; the last of them is its last unless told otherwise."""
        self.bench.feed()
        batch = self.instance.batches[0]
        outcomes = [Result(piece) if isinstance(piece, bytes) else piece for piece in pieces]
        for index, outcome in enumerate(outcomes, 1):
            is_last = ends and index == len(outcomes)
            if is_last:
                self.instance.batches.pop(0)
                batch.stages = Stages()
                self.bench.scheduler.freed(self.instance, batch, self.bench.now, self.bench.now)
            batch.deliver(0, outcome, is_last, self.bench.now)
        if ends:
            self.bench.scheduler.closed(batch, self.bench.now, lambda: HandlerFailed("no answer"))
        return batch


def describe(error: ServingError, model: str, version: str) -> tuple[int, str, str]:
    """As the server's own dialect does it, and the names it was given where the test wants to see them."""
    status, kind = http_status(error)
    return status, kind, str(error).replace("WHO", f"{model}/{version}")


def anyone(metadata: Sequence[tuple[bytes, bytes]], api: Api) -> None:
    """Let everybody in."""


def _unset(*_: object) -> None:
    raise AssertionError("the service did not say who hears this")
