"""For tests, users' and our own: time that stands still, instances that do as told, handlers without a server, servers.

`run_handler` puts items through the same reading, stages and writing as a worker does; `serving` starts the real thing.
"""

import asyncio
import contextlib
import gc
import http.client
import json
import math
import os
import sys
import threading
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import msgspec
import uvloop

from shoal.app import App
from shoal.config.load import model_config
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.core.batch import Batch, Stages
from shoal.core.request import Outcome, Request
from shoal.core.scheduler import Scheduler
from shoal.errors import HandlerFailed, ServingError
from shoal.payload import Buffer, Result
from shoal.pool.link import error_of
from shoal.serving import Target, configure
from shoal.wire.messages import Answered, Ended, Failure, Item, PartHead, Pieces, Run
from shoal.worker import batch as worker_batch
from shoal.worker import forms
from shoal.worker.backends import python
from shoal.worker.handler import Context
from shoal.worker.items import form_of, write
from shoal.worker.pipeline import Inline
from shoal.worker.program import Program

# -- the core, with time in your hands -----------------------------------------------------------------------------


class FakeClock:
    """A clock that stands still until told."""

    def __init__(self, now: float = 0.0) -> None:
        self._now = now

    def now(self) -> float:
        """Give the moment it stands at."""
        return self._now

    def advance(self, seconds: float) -> None:
        """Let time pass; it never goes back."""
        if seconds < 0:
            raise ValueError(f"time does not go back, asked for {seconds} s")
        self._now += seconds


class FakeAlarm:
    """Alarm of a scheduler that rings when the test says so."""

    def __init__(self, clock: FakeClock) -> None:
        self.is_due = False
        self.time = math.inf  # when it would ring by itself
        self._clock = clock
        self._call: Callable[[float], None] = _nothing

    def connect(self, call: Callable[[float], None]) -> None:
        """Say what to call, with the time as its argument: `scheduler.feed`."""
        self._call = call

    def soon(self) -> None:
        """Ring at the next `settle`."""
        self.is_due = True

    def at(self, time: float) -> None:
        """Ring at the first `settle` at or after that time."""
        self.time = time

    def settle(self) -> None:
        """Ring as long as something is due at this moment."""
        while self.is_due or self.time <= self._clock.now():
            self.is_due = False
            self.time = math.inf
            self._call(self._clock.now())


class Answers:
    """Hears what requests are told: give it as `on_answer`, then look at `of(request)`."""

    def __init__(self) -> None:
        self._heard: dict[Request, list[Outcome]] = {}

    def __call__(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        """Note one piece of a request's answer."""
        self._heard.setdefault(request, []).append(outcome)

    def of(self, request: Request) -> list[Outcome]:
        """Give all that a request was told, in order."""
        return self._heard.get(request, [])


class StubInstance:
    """An instance that keeps its batches until the test finishes them."""

    def __init__(self, scheduler: Scheduler, clock: FakeClock, id: str = "stub", places: int = 1) -> None:
        self.id = id
        self.places = places
        self.held: list[Batch] = []
        self.cancelled: list[tuple[Batch, int]] = []
        self._scheduler = scheduler
        self._clock = clock

    def run(self, batch: Batch) -> None:
        """Take a batch and keep it."""
        self.held.append(batch)

    def cancel(self, batch: Batch, index: int) -> None:
        """Remember whose answer is not wanted any more."""
        self.cancelled.append((batch, index))

    def finish(self, outcomes: Sequence[Outcome | bytes] | None = None, *, seconds: float = 0.0) -> Batch:
        """End the oldest batch, with an empty result for each request unless told otherwise."""
        batch = self.held.pop(0)
        batch.stages = Stages(inference=seconds)
        now = self._clock.now()
        self._scheduler.freed(self, batch, now)
        for index, outcome in enumerate([b""] * len(batch) if outcomes is None else outcomes):
            batch.deliver(index, Result(outcome) if isinstance(outcome, bytes) else outcome, True, now)
        self._scheduler.closed(batch, now, lambda: HandlerFailed("the stub gave no outcome for this request"))
        return batch

    def die(self, message: str = "the stub died") -> None:
        """Leave with whatever it holds."""
        self.held.clear()
        self._scheduler.leave(self, self._clock.now(), lambda batch: HandlerFailed(message))


def _nothing(now: float) -> None:
    """Stands where no scheduler was connected."""


# -- a handler without a server ------------------------------------------------------------------------------------


def run_handler(target: Target | object, items: Sequence[object], **config: Any) -> list[Any]:
    """Give what clients would get for these items as one batch; an item that fails has its error in its place.

    The target is a file, folder, class, object or function; `config` is a model's settings, such as `parameters`.
    An item is bytes, str, or what JSON can say, and results come back likewise: as a client would read them.
    """
    bodies = [encode(item) for item in items]
    heads = [Item([PartHead("body", content_type, len(body))]) for body, content_type in bodies]
    listener = _Listener(len(items))
    with _program(target, config) as program:
        run = Run(1, 0, heads)
        data = memoryview(b"".join(body for body, _ in bodies))
        Inline(program, None, _ignore, _never).submit(worker_batch.Batch(run, data, listener))
    return listener.results()


@contextlib.contextmanager
def _program(target: Target | object, config: Mapping[str, Any]) -> Iterator[Program]:
    """Load a handler; whatever loading does to this process is undone."""
    is_path = isinstance(target, str | Path)
    name = Path(str(target)).stem if is_path else getattr(target, "__name__", type(target).__name__)
    named = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    values = {"name": named or "model", "path": str(target) if is_path else "", **config}
    settings = model_config(values, "config")
    folder, path, modules, environment = Path.cwd(), list(sys.path), set(sys.modules), dict(os.environ)
    try:
        yield python.load(settings, "testing") if is_path else _loaded(target, name, settings)
    finally:
        os.chdir(folder)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)
        for module in [module for module in sys.modules if module.startswith("shoal_model_")]:
            if module not in modules:
                del sys.modules[module]


def _loaded(target: object, name: str, settings: ModelConfig) -> Program:
    os.environ.update(settings.environment)
    manifest = {"model": {"modelName": settings.name, "modelVersion": settings.version, "handler": name}}
    context = Context(settings, "testing", str(Path.cwd()), manifest)
    handler = target() if isinstance(target, type) else target
    forms.initialize(handler, context)
    return forms.make_program(handler, name, context)


class _Listener:
    """Where the pipeline sends what a front process would hear."""

    is_gone = False

    def __init__(self, count: int) -> None:
        self._bodies: list[bytes] = [b""] * count
        self._types = [""] * count
        self._failures: list[Failure | None] = [None] * count
        self._open = set(range(count))

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        bodies = iter(data)
        if isinstance(message, Answered):
            types = message.content_types * (len(message.sizes) if len(message.content_types) == 1 else 1)
            for index, content_type in enumerate(types):
                self._add(index, content_type, bytes(next(bodies)), is_last=True)
        elif isinstance(message, Pieces):
            for piece in message.pieces:
                self._failures[piece.index] = piece.failure
                has_body = piece.failure is None and (piece.size or piece.content_type)
                self._add(piece.index, piece.content_type, bytes(next(bodies)) if has_body else b"", piece.is_last)
        elif isinstance(message, Ended):
            for index in self._open:
                self._failures[index] = message.failure or Failure("handler", "the handler gave no answer")

    def results(self) -> list[Any]:
        return [
            error_of(failure) if failure else decode(body, content_type)
            for body, content_type, failure in zip(self._bodies, self._types, self._failures, strict=True)
        ]

    def _add(self, index: int, content_type: str, body: bytes, is_last: bool) -> None:
        self._types[index] = self._types[index] or content_type
        self._bodies[index] += body
        if is_last:
            self._open.discard(index)


def _ignore(batch: worker_batch.Batch) -> None:
    """Nobody counts batches here."""


def _never() -> None:
    """Nobody cancels here."""


# -- a server ------------------------------------------------------------------------------------------------------


class PredictionFailed(ServingError):
    """The server answered with an error."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body.decode(errors='replace')}")
        self.status = status
        self.body = body


class Client:
    """Talks to a server that `serving` started; from any thread."""

    def __init__(self, addresses: Sequence[str], model: str) -> None:
        self.url = addresses[0]
        self.management_url = addresses[min(1, len(addresses) - 1)]  # listeners set to one port share it
        self.metrics_url = addresses[-1]
        self.model = model

    def predict(
        self, data: object, *, content_type: str = "", headers: Mapping[str, str] | None = None, timeout: float = 30.0
    ) -> Any:
        """Give the model's answer as its content type says; PredictionFailed when there is none."""
        body, usual_type = encode(data)
        sent = {"content-type": content_type or usual_type, **(headers or {})}
        path = f"/predictions/{quote(self.model)}"
        status, answer_type, answer = self.send("POST", path, body, headers=sent, timeout=timeout)
        if status >= 400:
            raise PredictionFailed(status, answer)
        return decode(answer, answer_type)

    def send(
        self,
        method: str,
        path: str,
        body: Buffer = b"",
        *,
        headers: Mapping[str, str] | None = None,
        timeout: float = 30.0,
    ) -> tuple[int, str, bytes]:
        """Send any request to the inference port; gives status, content type and body."""
        address = urlsplit(self.url)
        connection = http.client.HTTPConnection(address.hostname or "", address.port, timeout=timeout)
        try:
            connection.request(method, path, bytes(body), dict(headers or {}))
            response = connection.getresponse()
            return response.status, response.getheader("content-type", ""), response.read()
        finally:
            connection.close()


@contextlib.contextmanager
def serving(target: Target, **options: Any) -> Iterator[Client]:
    """Serve a file, folder, handler class or function on free loopback ports while the block runs.

    It is the real server with real workers, run by a thread of this process; options are those of `shoal.serve`. A
    handler class or function must stand at the top of its file, for workers import it from there.
    """
    quiet = {"port": 0, "management_port": 0, "metrics_port": 0, "page": False, "drain_timeout": 5.0}
    config, model = configure(target, {**quiet, **options})
    server = _Background(config, model)
    server.start()
    try:
        yield Client(server.addresses, model.name)
    finally:
        server.stop()


class _Background:
    """A server on a loop in its own thread."""

    def __init__(self, config: ServerConfig, model: ModelConfig) -> None:
        self.addresses: list[str] = []
        self._config = config
        self._model = model
        self._started: Future[asyncio.AbstractEventLoop] = Future()
        self._stopping = asyncio.Event()
        self._thread = threading.Thread(target=self._run, name=f"serving {model.name}", daemon=True)

    def start(self) -> None:
        """Come back when the model is ready, or raise what was wrong."""
        self._thread.start()
        self._started.result()

    def stop(self) -> None:
        """Finish what was admitted and end every process."""
        self._started.result().call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        gc.unfreeze()  # a server freezes what it finds; this process lives on

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                if self._started.done():
                    raise
                self._started.set_exception(error)

    async def _serve(self) -> None:
        app = App(self._config, [self._model])
        await app.start()
        self.addresses = app.server.addresses
        self._started.set_result(asyncio.get_running_loop())
        await self._stopping.wait()
        await app.drain()


# -- what is sent and what is read ---------------------------------------------------------------------------------


def encode(data: object) -> tuple[Buffer, str]:
    """Bytes and content type of an item: bytes and str as they are, anything else as JSON."""
    return write(data)


def decode(body: bytes, content_type: str) -> Any:
    """What a body says: an object, text or bytes by its content type."""
    match form_of(content_type):
        case "json":
            return json.loads(body)
        case "text":
            return body.decode()
        case _:
            return body
