"""`serving`: a real server on free ports for the length of a block, and a small client to it."""

import asyncio
import contextlib
import gc
import http.client
import inspect
import threading
from collections.abc import Iterator, Mapping, Sequence
from concurrent.futures import Future
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

import uvloop

from shoal.app import App
from shoal.archive import find_source, name_of
from shoal.config.load import model_config, server_config
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.errors import ConfigError, ServingError
from shoal.payload import Buffer
from shoal.testing.handlers import Target, decode, encode

LAST_WORDS = 1.0  # seconds


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
def serving(target: Target, **settings: Any) -> Iterator[Client]:
    """Serve a file, folder, handler class or function on free loopback ports while the block runs.

    It is the real server with real workers, run by a thread of this process; settings are those of `shoal.serve`. A
    handler class or function must stand at the top of its file, for workers import it from there.
    """
    quiet = {"port": 0, "management_port": 0, "metrics_port": 0, "page": False, "drain_timeout": 5.0}
    config, model = _configure(target, {**quiet, **settings})
    server = _Background(config, model)
    server.start()
    try:
        yield Client(server.addresses, model.name)
    finally:
        server.stop()


def _configure(target: Target, settings: dict[str, Any]) -> tuple[ServerConfig, ModelConfig]:
    of_server = {key: settings.pop(key) for key in list(settings) if key in ServerConfig.__struct_fields__}
    source, handler = _locate(target)
    of_model = {"name": name_of(source), "path": str(source), "handler": handler, **settings}
    return server_config({}, {}, of_server), model_config(of_model, "settings")


def _locate(target: Target) -> tuple[Path, str]:
    """The file of a model, and the name of the handler in it where the handler itself was given."""
    if isinstance(target, str | Path):
        return find_source(str(target)), ""
    try:
        file = Path(inspect.getfile(target))
    except TypeError:
        file = Path()
    if not file.is_file():
        raise ConfigError(f"{target!r} is not in a file that workers could import; write it into one and name that")
    if "." in target.__qualname__:
        raise ConfigError(f"{target.__qualname__} must stand at the top of {file.name}, where workers can import it")
    return file.resolve(), target.__qualname__


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
        try:
            self._started.result()
        except BaseException:
            self._thread.join()
            raise

    def stop(self) -> None:
        """Finish what was admitted and end every process."""
        self._started.result().call_soon_threadsafe(self._stopping.set)
        self._thread.join()
        gc.unfreeze()  # a server freezes what it finds; this process lives on

    def _run(self) -> None:
        with asyncio.Runner(loop_factory=_Loop) as runner:
            try:
                runner.run(self._serve())
            except BaseException as error:
                if self._started.done():
                    raise
                self._started.set_exception(error)

    async def _serve(self) -> None:
        loop = asyncio.get_running_loop()
        assert isinstance(loop, _Loop)
        try:
            app = App(self._config, [self._model])
            await app.start()
            self.addresses = app.server.addresses
            self._started.set_result(loop)
            await self._stopping.wait()
            await app.drain()
        finally:
            await loop.close_pipes()


class _Loop(uvloop.Loop):
    """A loop that can be closed while this process lives on: the pipes of workers end a moment after the workers."""

    def __init__(self) -> None:
        self._pipes: list[asyncio.ReadTransport] = []

    async def connect_read_pipe(self, protocol_factory: Any, pipe: Any) -> Any:
        made: Any = await super().connect_read_pipe(protocol_factory, pipe)
        self._pipes.append(made[0])
        return made

    async def close_pipes(self) -> None:
        """Read what was printed last, then close; a pipe that something else holds open is not waited for."""
        end = self.time() + LAST_WORDS
        while any(not pipe.is_closing() for pipe in self._pipes) and self.time() < end:  # noqa: ASYNC110 - none tells
            await asyncio.sleep(0.001)
        for pipe in self._pipes:
            pipe.close()
