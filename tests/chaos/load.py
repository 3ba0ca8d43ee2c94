"""The load: many clients, each sending one request after the other by a way drawn anew each time."""

import asyncio
import time
from collections.abc import Awaitable, Callable

from tests.chaos.book import Book
from tests.chaos.requests import CUT, Ask, Asking, End
from tests.chaos.rpc import Rpc
from tests.chaos.wire import Wire, post

WEIGHTS = {
    "keep-alive": 50,
    "short": 6,
    "form": 5,
    "large": 4,
    "big answer": 3,
    "stream": 5,
    "deadline": 5,
    "ledger": 8,
    "beside the hung": 4,
    "rolling": 8,
    "version": 2,
    "grpc": 8,
    "grpc large": 1,
    "grpc stream": 2,
    "grpc deadline": 2,
    "grpc ledger": 2,
    "grpc rolling": 2,
    "grpc version": 1,
}
SIZES = (20_000, 70_000, 300_000, 1_000_000)  # of large bodies: all go through shared memory


class Client:
    """One client: a connection that it keeps, and a gRPC channel that it shares."""

    def __init__(self, ports: dict[str, int], book: Book, rpc: Rpc, asking: Asking) -> None:
        self._port = ports["inference"]
        self._book = book
        self._rpc = rpc
        self._asking = asking
        self._wire: Wire | None = None

    async def run(self, until: float) -> None:
        """Send until then; the last request is seen to its end."""
        draws = self._asking.random
        while time.monotonic() < until:
            (kind,) = draws.choices(list(WEIGHTS), list(WEIGHTS.values()))
            await self.send(kind)
            await asyncio.sleep(draws.uniform(0, 0.02))
        if self._wire is not None:
            await self._wire.close()

    async def send(self, kind: str) -> None:
        """Send one request of this kind."""
        ask = self._made(kind)
        way: Callable[[Ask], Awaitable[End]]
        match kind:
            case "short":
                way = self._short
            case "form":
                way = self._formed
            case "grpc stream":
                way = self._streamed
            case _ if kind.startswith("grpc"):
                way = self._rpc.ask
            case _:
                way = self._kept
        self._book.begin(ask)
        self._book.end(ask, await way(ask))

    def _made(self, kind: str) -> Ask:
        ask, draws = self._asking.ask, self._asking.random
        model = draws.choice(("plain", "staged"))
        match kind:
            case "large" | "grpc large":
                return ask(kind, model, size=draws.choice(SIZES))
            case "big answer":
                return ask(kind, model, deed="big", argument=str(draws.choice((1_000, 20_000, 100_000))))
            case "stream" | "grpc stream":
                return ask(kind, "stream", deed="stream", argument=str(draws.randrange(1, 12)))
            case "deadline" | "grpc deadline":
                return ask(kind, model, timeout_ms=draws.choice((2, 10, 50, 500)))
            case "ledger" | "grpc ledger":
                return ask(kind, "ledger")
            case "beside the hung":
                return ask(kind, "hang")
            case "rolling" | "grpc rolling":
                return ask(kind, "rolling")
            case "version" | "grpc version":
                return ask(kind, "rolling", version=draws.choice(("1.0", "2.0")))
        return ask(kind, model)

    async def _kept(self, ask: Ask) -> End:
        try:
            wire = await self._connection()
        except OSError as error:
            return End(CUT, f"no connection: {error}".encode())
        return await wire.ask(post(ask), ask.token)

    async def _formed(self, ask: Ask) -> End:
        wire = await self._connection()
        return await wire.ask(post(ask, form=True), ask.token)

    async def _short(self, ask: Ask) -> End:
        wire = await Wire.open(self._port, self._book.double)
        end = await wire.ask(post(ask, close=True), ask.token)
        if not await wire.ended():
            self._book.problem(f"the connection of {ask.token} was to be closed after its answer, and was not")
            wire.abort()
        return end

    async def _streamed(self, ask: Ask) -> End:
        end = await self._rpc.stream(ask)
        assert end is not None
        return end

    async def _connection(self) -> Wire:
        if self._wire is None or not self._wire.keeps:
            if self._wire is not None:
                await self._wire.close()
            self._wire = await Wire.open(self._port, self._book.double)
        return self._wire
