"""Crew: the load processes, seen from the tool: started together, told what to do, heard slice by slice."""

import asyncio
import socket
import subprocess
import sys
from collections.abc import Sequence

import msgspec

from shoal.errors import ServingError
from shoal.tools.bench.messages import Halt, Halted, Load, Ready, Report, Slice, decode_report
from shoal.tools.bench.results import add
from shoal.wire.channel import FrameReader, frame

START = 60.0  # s for load processes to be there


class Crew:
    """Load processes. Use with `async with`."""

    def __init__(self, count: int) -> None:
        self._count = count
        self._hands: list[_Hand] = []
        self._slices: dict[int, list[Slice]] = {}
        self._active = 0
        self._heard: asyncio.Queue[Slice | None] = asyncio.Queue()
        self._unanswered = 0
        self._halted = 0
        self._is_over = True  # the end of the load at hand has been given

    async def __aenter__(self) -> "Crew":
        try:
            for number in range(self._count):
                hand = _Hand(number, self)
                self._hands.append(hand)
                await hand.start()
            async with asyncio.timeout(START):
                for hand in self._hands:
                    await hand.is_ready.wait()
        except TimeoutError:
            self._end()
            raise ServingError(f"the load processes did not start in {START:g} s") from None
        except BaseException:
            self._end()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        self._end()

    def begin(self, loads: Sequence[Load]) -> None:
        """Start a load: one part for each of the first processes."""
        self._active, self._halted, self._unanswered = len(loads), 0, 0
        self._is_over = False
        self._slices.clear()
        self._heard = asyncio.Queue()
        for hand, load in zip(self._hands, loads, strict=False):
            hand.send(load)

    async def next(self) -> Slice | None:
        """Give the next slice that all have reported; None once all have ended."""
        found = await self._heard.get()
        self._is_over = found is None
        return found

    async def halt(self) -> tuple[list[Slice], int]:
        """End the load; gives the slices that were not asked for yet, and how many requests got no answer."""
        for hand in self._hands[: self._active]:
            hand.send(Halt())
        rest: list[Slice] = []
        while not self._is_over and (found := await self.next()) is not None:
            rest.append(found)
        return rest, self._unanswered

    def take(self, report: Slice | Halted) -> None:
        """Hear from a process."""
        if isinstance(report, Halted):
            self._unanswered += report.unanswered
            self._halted += 1
            if self._halted == self._active:
                for number in sorted(self._slices):
                    self._heard.put_nowait(add(self._slices[number]))
                self._slices.clear()
                self._heard.put_nowait(None)
            return
        found = self._slices.setdefault(report.number, [])
        found.append(report)
        if len(found) == self._active:
            self._heard.put_nowait(add(self._slices.pop(report.number)))

    def lost(self, number: int) -> None:
        """A process died: what it had to say is over."""
        if number < self._active:
            self.take(Halted(0))

    @property
    def is_whole(self) -> bool:
        """Whether all processes are there."""
        return all(hand.is_there for hand in self._hands)

    def _end(self) -> None:
        for hand in self._hands:
            hand.end()


class _Hand(asyncio.Protocol):
    """One load process."""

    def __init__(self, number: int, crew: Crew) -> None:
        self._number = number
        self._crew = crew
        self._frames = FrameReader()
        self._transport: asyncio.Transport | None = None
        self._process: subprocess.Popen[bytes] | None = None
        self.is_there = False
        self.is_ready = asyncio.Event()

    async def start(self) -> None:
        ours = self._spawn()
        ours.setblocking(False)
        await asyncio.get_running_loop().create_connection(lambda: self, sock=ours)

    def _spawn(self) -> socket.socket:
        ours, theirs = socket.socketpair()
        try:
            self._process = subprocess.Popen(  # noqa: S603 - our own module
                [sys.executable, "-P", "-m", "shoal.tools.bench.agent", str(theirs.fileno())],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                process_group=0,  # Ctrl-C is ours to act on
            )
        except OSError as error:
            ours.close()
            raise ServingError(f"cannot start a load process: {error.strerror}") from None
        finally:
            theirs.close()
        return ours

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        self._transport = transport  # type: ignore[assignment]  # a stream's
        self.is_there = True

    def data_received(self, data: bytes) -> None:
        for message, _ in self._frames.feed(data):
            report: Report = decode_report(message)
            if isinstance(report, Ready):
                self.is_ready.set()
            else:
                self._crew.take(report)

    def connection_lost(self, error: Exception | None) -> None:
        if self.is_there:
            self.is_there = False
            self.is_ready.set()  # nobody has to wait for it
            self._crew.lost(self._number)

    def send(self, word: msgspec.Struct) -> None:
        if self._transport is not None and self.is_there:
            self._transport.writelines(frame(word))

    def end(self) -> None:
        self.is_there = False
        if self._transport is not None:
            self._transport.abort()
        if self._process is not None:
            self._process.kill()
            self._process.wait()
