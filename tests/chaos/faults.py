"""The breaker's hands: each fault of the schedule, done to the running server."""

import asyncio
import contextlib
import json
import os
import signal
import time
from collections.abc import Awaitable, Callable, Collection

from tests.chaos.book import Behind, Book
from tests.chaos.requests import LEFT, Ask, Asking, End
from tests.chaos.rpc import Rpc
from tests.chaos.schedule import Fault
from tests.chaos.server import ARENA, HANG, Target, parent
from tests.chaos.wire import Wire, call, post

VICTIMS = ("plain", "staged", "stream", "ledger", "rolling")
MATES = 7  # requests beside a poisoned one
BUSY = 1.5  # seconds that a worker is kept busy for those who wait behind
NOTICED = 1.0  # seconds in which the server must have seen that a process is gone
HTTP_GARBAGE = (
    b"\x00\xff\x01\x02" * 50,
    b"GET\r\n\r\n",
    b"POST /predictions/plain HTTP/1.1\r\nHost: x\r\nContent-Length: 5\r\nContent-Length: 6\r\n\r\nhello",
    b"POST /predictions/plain HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\nZZ\r\n",
    b"GET / HTTP/9.9\r\nHost: x\r\n\r\n",
    b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n" + bytes(64),
    b"GET / HTTP/1.1\r\nHost: x\r\n" + b"A: b\r\n" * 20_000 + b"\r\n",
    b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc\x03\x03" + bytes(200),
)
PREFACE = b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"
HTTP2_GARBAGE = (
    b"\x00\xff\x01\x02" * 50,
    b"GET / HTTP/1.1\r\nHost: x\r\n\r\n",
    PREFACE + b"\xff" * 100,
    PREFACE + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]) + bytes([0, 0, 8, 1, 5, 0, 0, 0, 1]) + b"\xff" * 8,
    PREFACE + bytes([0, 0, 0, 4, 0, 0, 0, 0, 0]) + bytes([0, 0, 4, 8, 0, 0, 0, 0, 0]) + bytes(4),
    PREFACE + bytes([0, 0, 5, 4, 0, 0, 0, 0, 0]) + bytes(5),
    PREFACE + bytes([0x7F, 0xFF, 0xFF, 0, 0, 0, 0, 0, 1]),
)


class Breaker:
    """Does to the server what the schedule says."""

    def __init__(self, target: Target, book: Book, rpc: Rpc, seed: int) -> None:
        self._target = target
        self._book = book
        self._rpc = rpc
        self._asking = Asking(seed, "breaker")
        self._port = target.ports["inference"]
        self._alone = asyncio.Lock()
        self._rolling = asyncio.Lock()
        self._absence = {"2.0": book.incidents.add("rolling/2.0", "absent", 0.0, float("inf"))}
        self._hands: dict[str, Callable[[Fault], Awaitable[None]]] = {
            "kill worker": self._kill_worker,
            "kill template": self._kill_template,
            "stop worker": self._stop_worker,
            "hang worker": self._hang_worker,
            "poison: raises": lambda fault: self._poison(fault, "raise"),
            "poison: no memory": lambda fault: self._poison(fault, "memory"),
            "poison: segfault": lambda fault: self._poison(fault, "segv"),
            "poison: hangs": lambda fault: self._poison(fault, "hang"),
            "drop in the body": self._drop_in_body,
            "drop in the answer": self._drop_in_answer,
            "drop with a reset": self._drop_with_reset,
            "cancel a call": self._cancel_call,
            "slow writer": self._slow_writer,
            "slow reader": self._slow_reader,
            "fill a queue": self._fill_queue,
            "fill shared memory": self._fill_memory,
            "scale": self._scale,
            "rollout": self._roll_out,
            "leave the queue": self._leave_queue,
            "deadline in the queue": self._late,
            "garbage to HTTP": lambda fault: self._garbage(fault, "inference", HTTP_GARBAGE),
            "garbage to HTTP/2": lambda fault: self._garbage(fault, "grpc inference", HTTP2_GARBAGE),
        }

    async def break_(self, fault: Fault) -> None:
        """Do it, and see to the end what it did."""
        self._book.faults[fault.what] += 1
        await self._hands[fault.what](fault)

    async def settle(self) -> None:
        """Bring back what was there at the start: two workers of `plain`, one version of `rolling`."""
        async with self._rolling:
            if await self._manage("GET", "/models/rolling/2.0", also={404}):
                await self._retreat()
        await self._manage("PUT", "/models/plain?min_worker=2&max_worker=2&synchronous=true")

    async def workers(self, model: str) -> list[int]:
        """The processes of a model that are up."""
        end = await call(self._target.ports["management"], "GET", f"/models/{model}")
        described = json.loads(end.body)[0] if end.status == 200 else {"workers": []}
        return [worker["pid"] for worker in described["workers"] if worker["pid"] > 0]

    # processes

    async def _victim(self, fault: Fault, models: tuple[str, ...] = VICTIMS) -> tuple[str, int]:
        model = fault.random.choice(models)
        pids = await self.workers(model)
        return model, pids[fault.draw % len(pids)] if pids else -1

    async def _kill_worker(self, fault: Fault) -> None:
        model, pid = await self._victim(fault)
        self._signal(model, "kill", pid, signal.SIGKILL, lasts=NOTICED)

    async def _kill_template(self, fault: Fault) -> None:
        model, pid = await self._victim(fault)
        template = parent(pid)
        if pid > 0 and template not in (-1, 1, self._target.pid):
            self._signal(model, "template", template, signal.SIGKILL, lasts=NOTICED)

    async def _stop_worker(self, fault: Fault) -> None:
        _, pid = await self._victim(fault)
        self._signal("", "", pid, signal.SIGSTOP)
        await asyncio.sleep(fault.random.uniform(0.05, 0.5))
        self._signal("", "", pid, signal.SIGCONT)

    async def _hang_worker(self, fault: Fault) -> None:
        model, pid = await self._victim(fault, ("hang",))
        self._signal(model, "stop", pid, signal.SIGSTOP, lasts=3 * HANG)
        await asyncio.sleep(3 * HANG)
        self._signal("", "", pid, signal.SIGCONT)  # where nobody waited for it, it was not replaced

    def _signal(self, model: str, what: str, pid: int, number: signal.Signals, lasts: float = 0.0) -> None:
        if pid <= 0:
            return
        now = time.monotonic()
        if what:
            self._book.incidents.add(model, what, now, now + lasts)
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, number)

    # items

    async def _poison(self, fault: Fault, deed: str) -> None:
        """One bad item among good ones, which are all answered: in a busy model, or in one with a single worker."""
        model, kind = fault.random.choice(("staged", "fragile")), "beside poison"
        if deed == "hang":
            model, kind = "hang", "beside the hung"
        asks = [self._asking.ask(kind, model) for _ in range(MATES)]
        place = fault.random.choice((0, fault.random.randrange(MATES + 1)))  # the first of a batch is the hardest case
        asks.insert(place, self._asking.ask(deed, model, deed=deed))
        await asyncio.gather(*(self._ask(ask) for ask in asks))

    async def _ask(self, ask: Ask) -> End:
        """Send on a connection of its own."""
        self._book.begin(ask)
        wire = await Wire.open(self._port, self._book.double)
        end = await wire.ask(post(ask), ask.token)
        self._book.end(ask, end)
        await wire.close()
        return end

    # clients that leave or are slow

    async def _leave(self, ask: Ask, wire: Wire, *, reset: bool) -> None:
        self._book.end(ask, End(LEFT) if not wire.is_answered else await wire.answer())
        wire.abort(reset=reset)

    async def _drop_in_body(self, fault: Fault) -> None:
        size = fault.random.choice((100, 30_000, 500_000))
        ask = self._book.begin(self._asking.ask("leaver", "plain", size=size))
        wire = await Wire.open(self._port, self._book.double)
        request = post(ask)
        wire.expect(ask.token)
        wire.write(request[: fault.random.randrange(1, len(request))])
        await asyncio.sleep(fault.random.uniform(0, 0.1))
        await self._leave(ask, wire, reset=fault.random.random() < 0.5)

    async def _drop_in_answer(self, fault: Fault) -> None:
        deed, count = fault.random.choice((("stream", 50), ("big", 300_000)))
        ask = self._book.begin(self._asking.ask("leaver", "stream", deed=deed, argument=str(count)))
        wire = await Wire.open(self._port, self._book.double, small_buffer=True)
        wire.expect(ask.token)
        wire.write(post(ask))
        for _ in range(200):
            if wire.received or wire.is_answered:
                break
            await asyncio.sleep(0.005)
        await self._leave(ask, wire, reset=fault.random.random() < 0.5)

    async def _drop_with_reset(self, fault: Fault) -> None:
        ask = self._book.begin(self._asking.ask("leaver", "staged", size=fault.random.choice((100, 50_000))))
        wire = await Wire.open(self._port, self._book.double)
        wire.expect(ask.token)
        wire.write(post(ask))
        await asyncio.sleep(fault.random.uniform(0, 0.01))
        await self._leave(ask, wire, reset=True)

    async def _cancel_call(self, fault: Fault) -> None:
        ask = self._asking.ask("grpc stream", "stream", deed="stream", argument="50")
        self._book.begin(ask)
        end = await self._rpc.stream(ask, leave_after=fault.random.randrange(1, 10))
        self._book.end(ask, end or End(LEFT))

    async def _slow_writer(self, fault: Fault) -> None:
        ask = self._book.begin(self._asking.ask("slow writer", "plain", size=fault.random.choice((200, 60_000))))
        wire = await Wire.open(self._port, self._book.double)
        request = post(ask)
        wire.expect(ask.token)
        step = len(request) // 20 + 1
        for at in range(0, len(request), step):
            wire.write(request[at : at + step])
            await asyncio.sleep(0.05)
        self._book.end(ask, await wire.answer())
        await wire.close()

    async def _slow_reader(self, fault: Fault) -> None:
        ask = self._book.begin(self._asking.ask("slow reader", "plain", deed="big", argument="200000"))
        wire = await Wire.open(self._port, self._book.double, small_buffer=True)
        wire.expect(ask.token)
        wire.pause()
        wire.write(post(ask))
        for _ in range(10):
            await asyncio.sleep(0.1)
            wire.resume()
            await asyncio.sleep(0)
            if not wire.is_answered:
                wire.pause()
        wire.resume()
        self._book.end(ask, await wire.answer())
        await wire.close()

    # overload

    async def _fill_queue(self, fault: Fault) -> None:
        await asyncio.gather(*(self._ask(self._asking.ask("burst", "small")) for _ in range(48)))

    async def _fill_memory(self, fault: Fault) -> None:
        size = fault.random.choice((5, 9, 12)) * 2**20
        count = ARENA // size // 2 + 2  # the arena lends in powers of two, so this is more than it has
        asks = [self._asking.ask("pressure", "plain", size=size, deed="sleep", argument="0.05") for _ in range(count)]
        await asyncio.gather(*(self._ask(ask) for ask in asks))

    # what waits behind a busy worker

    async def _leave_queue(self, fault: Fault) -> None:
        """Nothing is computed for a client that left while it waited."""
        async with self._alone:
            busy, ended = await self._keep_busy()
            ask = self._book.begin(self._asking.ask("leaver", "alone", size=fault.random.choice((10, 50_000))))
            wire = await Wire.open(self._port, self._book.double)
            wire.expect(ask.token)
            wire.write(post(ask))
            await self._seen()
            await self._leave(ask, wire, reset=fault.random.random() < 0.5)
            await self._seen()
            self._book.behind.append(Behind(ask.token, "client left", busy, time.monotonic(), BUSY))
            await ended

    async def _late(self, fault: Fault) -> None:
        """Nothing is computed after its deadline."""
        async with self._alone:
            busy, ended = await self._keep_busy()
            ask = self._book.begin(self._asking.ask("late", "alone", timeout_ms=150))
            wire = await Wire.open(self._port, self._book.double)
            wire.expect(ask.token)
            wire.write(post(ask))
            await self._seen()
            over = time.monotonic() + ask.timeout_ms / 1000
            self._book.behind.append(Behind(ask.token, "deadline passed", busy, over, BUSY))
            self._book.end(ask, await wire.answer())
            await wire.close()
            await ended

    async def _seen(self) -> None:
        """Wait until the server has answered something: it has seen all that was done before."""
        await call(self._port, "GET", "/ping")

    async def _keep_busy(self) -> tuple[str, Awaitable[End]]:
        ask = self._asking.ask("busy", "alone", deed="sleep", argument=str(BUSY))
        ended = asyncio.create_task(self._ask(ask))
        await asyncio.sleep(0.2)
        return ask.token, ended

    # management

    async def _scale(self, fault: Fault) -> None:
        """More workers or fewer; a new one that is killed while it starts is a failed scaling, and told as one."""
        workers = fault.random.randrange(1, 5)
        await self._manage(
            "PUT", f"/models/plain?min_worker={workers}&max_worker={workers}&synchronous=true", also={500}
        )

    async def _roll_out(self, fault: Fault) -> None:
        """Bring a second version, move everybody to it, take the first away, or all in one; and back the next time."""
        if self._rolling.locked():
            return
        async with self._rolling:
            is_second = await self._manage("GET", "/models/rolling/2.0", also={404})
            new, old = ("1.0", "2.0") if is_second else ("2.0", "1.0")
            await (self._replace if fault.random.random() < 0.5 else self._move)(new, old)

    async def _replace(self, new: str, old: str) -> None:
        """The server does the moving."""
        wave = asyncio.create_task(self._wave("rolling"))
        absence = self._book.incidents.add("rolling/" + old, "absent", time.monotonic(), float("inf"))
        if await self._register(new, "&replace=true"):
            self._absence[old] = absence
        else:
            absence.ended = time.monotonic()
        await wave

    async def _retreat(self) -> None:
        await self._move("1.0", "2.0")

    async def _move(self, new: str, old: str) -> None:
        """Everybody who comes meanwhile is answered by one or the other."""
        await self._register(new)
        wave = asyncio.create_task(self._wave("rolling"))
        await asyncio.sleep(0.02)
        await self._manage("PUT", f"/models/rolling/{new}/set-default")
        await self._remove(old)
        await wave

    async def _wave(self, model: str) -> None:
        asks = []
        for _ in range(30):
            asks.append(asyncio.create_task(self._ask(self._asking.ask("rolling", model))))
            await asyncio.sleep(0.003)
        await asyncio.gather(*asks)

    async def _register(self, version: str, how: str = "") -> bool:
        query = f"url=deeds.py&handler=slowly&model_name=rolling&model_version={version}&initial_workers=1{how}"
        for _ in range(5):
            if await self._manage("POST", f"/models?{query}", also={500}):  # a start that met a kill is tried again
                self._absence[version].ended = time.monotonic()
                return True
        self._book.problem(f"version {version} of rolling could not be registered")
        return False

    async def _remove(self, version: str) -> None:
        self._absence[version] = self._book.incidents.add(
            "rolling/" + version, "absent", time.monotonic(), float("inf")
        )
        await self._manage("DELETE", f"/models/rolling/{version}")

    async def _manage(self, method: str, path: str, also: Collection[int] = ()) -> bool:
        end = await call(self._target.ports["management"], method, path)
        if end.status != 200 and end.status not in also:
            self._book.problem(f"{method} {path}: {end.status}: {end.words}")
        return end.status == 200

    # bytes that are no request

    async def _garbage(self, fault: Fault, port: str, kinds: tuple[bytes, ...]) -> None:
        """The server answers with a refusal or closes; it is not impressed otherwise."""
        wire = await Wire.open(self._target.ports[port], lambda _: None)
        wire.expect("garbage")
        garbage = fault.random.choice(kinds)
        wire.write(garbage)
        if not await wire.ended(within=30):
            self._book.problem(f"a connection that sent {garbage[:60]!r} was kept")
            wire.abort()
