"""`serving`: a real server on free ports for the length of a block, and a small client to it."""

import asyncio
import contextlib
import gc
import http.client
import threading
from collections.abc import Iterator, Mapping
from concurrent.futures import Future
from typing import Any
from urllib.parse import quote, urlsplit

import uvloop

from shoal.app import App
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.errors import ServingError
from shoal.native import configure
from shoal.payload import Buffer
from shoal.testing.handlers import Target, decode, encode


class PredictionFailed(ServingError):
    """The server answered with an error."""

    def __init__(self, status: int, body: bytes) -> None:
        super().__init__(f"{status}: {body.decode(errors='replace')}")
        self.status = status
        self.body = body


class Client:
    """Talks to a server that `serving` started; from any thread."""

    def __init__(self, addresses: Mapping[str, str], model: str) -> None:
        self.url = addresses["inference"]
        self.management_url = addresses["management"]
        self.metrics_url = addresses["metrics"]
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
    config, model = configure(target, {**quiet, **settings}, environment={})
    server = _Background(config, model)
    server.start()
    try:
        yield Client(server.addresses, model.name)
    finally:
        server.stop()


class _Background:
    """A server on a loop in its own thread."""

    def __init__(self, config: ServerConfig, model: ModelConfig) -> None:
        self.addresses: dict[str, str] = {}
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
        self.addresses = app.apis.server.addresses
        self._started.set_result(asyncio.get_running_loop())
        await self._stopping.wait()
        await app.drain()
