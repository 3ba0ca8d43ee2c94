"""One run: start, break things under load for a time, bring it to rest, look for leaks, drain, tell."""

import asyncio
import os
import signal
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

from rich.progress import BarColumn, Progress, TextColumn, TimeRemainingColumn

from tests.chaos.book import Book
from tests.chaos.faults import Breaker
from tests.chaos.load import WEIGHTS, Client
from tests.chaos.requests import Ask, Asking
from tests.chaos.rpc import Rpc
from tests.chaos.rules import Verdict
from tests.chaos.schedule import schedule
from tests.chaos.server import ARENA, DRAIN, INSTANCES, Target, processes, serving
from tests.chaos.wire import Wire, call, post

KEPT = 64 * 2**20  # bytes that the server keeps at rest for the next bodies, and each worker for its next answers
GROWTH = 48 * 2**20  # bytes that the front process may have grown by, with all it has learned and counted
PATIENCE = 30.0  # seconds to come to rest


def run(seed: int, seconds: float, clients: int, progress: Progress, folder: Path | None = None) -> Book:
    """Do all of it."""
    book = Book()
    shared_before = set(os.listdir("/dev/shm"))
    with tempfile.TemporaryDirectory(prefix="chaos-") as temporary:
        place = folder or Path(temporary)
        with serving(place) as target:
            asyncio.run(Run(target, book, seed, seconds, clients, progress).all())
            _drained(target, book)
            if folder is None and not book.is_clean:
                kept = Path(tempfile.gettempdir()) / f"chaos-{seed}.log"
                kept.write_bytes(target.log.read_bytes())
                book.facts["server's log"] = str(kept)
        _front_killed(place, book)
        reruns = book.read_ledger(place / "ledger", at_most_once=False)
        book.read_ledger(Path(f"{place / 'ledger'}-once"), at_most_once=True)
        book.facts["noted runs repeated"] = str(reruns)
    if left := set(os.listdir("/dev/shm")) - shared_before:
        book.problem(f"left in /dev/shm: {', '.join(sorted(left))}")
    book.close()
    return book


class Run:
    """What happens while the server lives."""

    def __init__(self, target: Target, book: Book, seed: int, seconds: float, clients: int, progress: Progress) -> None:
        self._target = target
        self._book = book
        self._seed = seed
        self._seconds = seconds
        self._progress = progress
        self._number = clients

    async def all(self) -> None:
        """Warm up, break, rest, look, and leave with requests under way."""
        channels = [Rpc(self._target.ports["grpc inference"]) for _ in range(3)]
        breaker = Breaker(self._target, self._book, channels[0], self._seed)
        await self._warm_up()
        files, memory = self._target.files(), self._target.memory()
        began = time.monotonic()
        clients = [
            Client(self._target.ports, self._book, channels[number % 3], Asking(self._seed, f"client{number}"))
            for number in range(self._number)
        ]
        load = [asyncio.create_task(client.run(began + self._seconds)) for client in clients]
        await asyncio.gather(self._break(breaker, began), self._show(began), *load)
        await breaker.settle()
        for channel in channels:
            await channel.close()
        await self._at_rest(files, memory)
        await self._count()
        await self._leave_while_running()

    async def _warm_up(self) -> None:
        channel = Rpc(self._target.ports["grpc inference"])
        client = Client(self._target.ports, self._book, channel, Asking(self._seed, "warm"))
        for kind in WEIGHTS:
            await client.send(kind)
        await client.run(0.0)
        await channel.close()
        await asyncio.sleep(0.5)

    async def _break(self, breaker: Breaker, began: float) -> None:
        under_way: set[asyncio.Task[None]] = set()
        for fault in schedule(self._seed, self._seconds):
            await asyncio.sleep(max(0.0, began + fault.at - time.monotonic()))
            task = asyncio.create_task(breaker.break_(fault), name=fault.what)
            under_way.add(task)
            task.add_done_callback(under_way.discard)
            task.add_done_callback(self._broken)
        await asyncio.gather(*under_way, return_exceptions=True)

    def _broken(self, task: "asyncio.Task[None]") -> None:
        if not task.cancelled() and (error := task.exception()) is not None:
            self._book.problem(f"fault {task.get_name()!r} could not be done: {type(error).__name__}: {error}")

    async def _show(self, began: float) -> None:
        bar = self._progress.add_task("breaking", total=self._seconds)
        while (passed := time.monotonic() - began) < self._seconds:
            book = self._book
            words = f"{book.faults.total():,} faults, {book.requests:,} requests, {len(book.problems)} problems"
            self._progress.update(bar, completed=passed, description=words)
            await asyncio.sleep(0.5)

    async def _at_rest(self, files: Counter[str], memory: int) -> None:
        """Nothing may be left of what was done."""
        target, book = self._target, self._book
        await self._at_strength()
        await self._eventually(
            lambda: target.files().total() <= files.total(),
            lambda: f"files left open: {dict(target.files() - files)}",
        )
        await self._eventually(
            lambda: max(target.shared().values()) <= KEPT,
            lambda: f"shared memory, of {ARENA:,} bytes for bodies, is not given back: {target.shared()}",
        )
        grown = target.memory() - memory
        if grown > GROWTH:
            book.problem(f"the front process grew by {grown:,} bytes")
        book.facts["front process"] = f"{memory / 2**20:.0f} MiB at first, {grown / 2**20:+.0f} MiB"
        book.facts["files of the front process"] = f"{files.total()} at first, {target.files().total()} at rest"
        shared = target.shared()
        answers = sum(shared.values()) - shared["bodies"]
        book.facts["shared memory at rest"] = f"{shared['bodies'] / 2**20:.1f} MiB, {answers / 2**20:.1f} for answers"

    async def _at_strength(self) -> None:
        """Every worker there should be is back."""
        end = time.monotonic() + PATIENCE
        while (up := await self._metric("shoal_instances")) != INSTANCES:
            if time.monotonic() > end:
                self._book.problem(f"{up:.0f} instances are up at rest, of {INSTANCES}")
                return
            await asyncio.sleep(0.1)

    async def _metric(self, name: str) -> float:
        page = (await call(self._target.ports["metrics"], "GET", "/metrics")).body.decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name + "{"))

    async def _eventually(self, check: Callable[[], bool], what: Callable[[], str]) -> None:
        end = time.monotonic() + PATIENCE
        while not check():
            if time.monotonic() > end:
                self._book.problem(what())
                return
            await asyncio.sleep(0.1)

    async def _count(self) -> None:
        for name, what in (("shoal_reruns_total", "reruns"), ("shoal_worker_restarts_total", "worker restarts")):
            self._book.facts[what] = f"{await self._metric(name):,.0f}, without those of versions that are gone"
        for name in ("shoal_queue_requests", "shoal_batches_running"):
            if left := await self._metric(name):
                self._book.problem(f"{name} is {left:.0f} at rest")
        if self._book.faults["fill a queue"] and not self._book.verdicts["burst", Verdict.ALLOWED]:
            self._book.problem("no request was refused, although queues were filled beyond their bound")
        ping = await call(self._target.ports["inference"], "GET", "/ping")
        if ping.status != 200:
            self._book.problem(f"/ping says {ping.status} at rest: {ping.words}")

    async def _leave_while_running(self) -> None:
        """SIGTERM: who was admitted is answered."""
        asking = Asking(self._seed, "last")
        asks = [asking.ask("at the end", "plain", deed="sleep", argument="0.2") for _ in range(16)]
        wires = [await Wire.open(self._target.ports["inference"], self._book.double) for _ in asks]
        last = [asyncio.create_task(_ask(self._book, ask, wire)) for ask, wire in zip(asks, wires, strict=True)]
        await asyncio.sleep(0.3)
        self._target.process.send_signal(signal.SIGTERM)
        await asyncio.gather(*last)


def _drained(target: Target, book: Book) -> None:
    """The end of the server: in time, with a good exit code, with nothing left behind."""
    began = time.monotonic()
    try:
        code = target.process.wait(DRAIN + 15)
    except Exception as error:
        book.problem(f"SIGTERM did not end the server: {error}")
        return
    book.facts["drain"] = f"exit code {code} after {time.monotonic() - began:.1f} s"
    if code != 0:
        book.problem(f"exit code {code}")
    end = time.monotonic() + 5
    while (left := processes(target.mark)) and time.monotonic() < end:
        time.sleep(0.1)
    if left:
        book.problem(f"{len(left)} processes are left")
    for line in target.mishaps()[:5]:
        book.problem(f"the server's log: {line[:300]}")


def _front_killed(folder: Path, book: Book) -> None:
    """The end that nobody can soften: with the front process every other one goes, busy or not."""
    own = folder / "killed"
    own.mkdir(exist_ok=True)
    with serving(own) as target:
        asyncio.run(_busy_until_killed(target, book))
        target.process.wait()
        book.faults["kill the front process"] += 1
        end = time.monotonic() + 10
        while (left := processes(target.mark)) and time.monotonic() < end:
            time.sleep(0.1)
        if left:
            book.problem(f"{len(left)} processes outlive the front process")


async def _busy_until_killed(target: Target, book: Book) -> None:
    asking = Asking(0, "killed")
    asks = [asking.ask("front killed", "plain", deed="sleep", argument="2") for _ in range(8)]
    wires = [await Wire.open(target.ports["inference"], book.double) for _ in asks]
    ends = [asyncio.create_task(_ask(book, ask, wire)) for ask, wire in zip(asks, wires, strict=True)]
    await asyncio.sleep(0.3)
    target.process.kill()
    await asyncio.gather(*ends)


async def _ask(book: Book, ask: Ask, wire: Wire) -> None:
    book.begin(ask)
    book.end(ask, await wire.ask(post(ask), ask.token))
    await wire.close()


def columns() -> tuple[TextColumn, BarColumn, TimeRemainingColumn]:
    """What the progress line shows."""
    return TextColumn("{task.description}"), BarColumn(), TimeRemainingColumn()
