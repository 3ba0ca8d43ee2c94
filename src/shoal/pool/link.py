"""The front process's end of one worker: batches out, answers in, and who holds what."""

import asyncio
import logging
from collections.abc import Callable, Iterator, Sequence
from typing import Final, cast

import msgspec

from shoal.clock import Clock
from shoal.core.batch import Batch, Stages
from shoal.core.request import Outcome
from shoal.core.scheduler import Scheduler
from shoal.errors import HandlerFailed, InvalidInput, ProtocolError, ServingError
from shoal.payload import Buffer, Result, total
from shoal.pool.errands import Errands
from shoal.wire.channel import JOIN_BELOW, FrameReader, frame
from shoal.wire.messages import (
    VERSION,
    Answered,
    Ask,
    Begun,
    CallOff,
    Cancel,
    Ended,
    Failure,
    Hello,
    Item,
    Loaded,
    Measured,
    Order,
    PartHead,
    Piece,
    Pieces,
    Proved,
    Report,
    Run,
    Unloadable,
    Used,
    decode_report,
)
from shoal.wire.tray import Tray

log = logging.getLogger("shoal.pool")
BUFFERS: Final = (bytes, bytearray, memoryview)
# While many answers are handed out, more requests come in. For a batch as cheap as that, a worker that idles meanwhile
# costs less than its next batch leaving half full.
MANY: Final = 16  # requests
CHEAP: Final = 0.3e-3  # seconds in the worker


class LinkedInstance:
    """One instance inside a worker process."""

    def __init__(self, id: str, number: int, places: int, link: "WorkerLink") -> None:
        self.id = id
        self.number = number
        self.places = places
        self._most = places
        self._link = link

    def hold(self, is_waiting: bool) -> None:
        """Hold no more than one batch while that one waits for another model."""
        self.places = 1 if is_waiting else self._most

    def run(self, batch: Batch) -> None:
        """Send the batch."""
        self._link.send_batch(self, batch)

    def cancel(self, batch: Batch, index: int) -> None:
        """Tell the worker that nobody waits for this answer."""
        self._link.send(Cancel(batch.number, index))


class WorkerLink(asyncio.Protocol):
    """A connected worker. `on_loaded` hears of it once; `on_lost` once, whatever happened."""

    def __init__(
        self,
        scheduler: Scheduler,
        clock: Clock,
        on_loaded: Callable[[Loaded | Unloadable], None],
        on_lost: Callable[[str], None],
        on_measured: Callable[[Measured], None],
        on_proved: Callable[[Proved], None],
        errands: Errands | None = None,
    ) -> None:
        self._scheduler = scheduler
        self._clock = clock
        self._on_loaded = on_loaded
        self._on_lost = on_lost
        self._on_measured = on_measured
        self._on_proved = on_proved
        self._errands = errands
        self._soon = asyncio.get_running_loop().call_soon
        self._reader = FrameReader()
        self._transport: asyncio.WriteTransport | None = None
        self._problem = ""
        self.tray: Tray | None = None  # where large answers lie
        self.wants_headers = False
        self.answered = 0  # requests of batches that ended
        self.ends_on_lost_device = False
        self.lost: dict[int, Failure] = {}  # batches under which the device was lost
        self.last_failure: Failure | None = None  # of the handler
        self.device_memory = 0  # bytes, where the worker says so
        self.running: dict[int, tuple[LinkedInstance, Batch, float]] = {}  # by batch number; when it began to run

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Remember where to write."""
        self._transport = cast(asyncio.WriteTransport, transport)

    def data_received(self, data: bytes) -> None:
        """Cut messages out of the stream and act on each."""
        try:
            if (whole := self._reader.take_whole(data)) is not None:  # as most come
                self._hear(decode_report(whole[0]), whole[1])
                return
            for message, body in self._reader.feed(data):
                self._hear(decode_report(message), body)
        except (ProtocolError, msgspec.MsgspecError) as error:
            self._problem = f"it sent something that is no message: {error}"
            self.abort()

    def connection_lost(self, error: Exception | None) -> None:
        """The worker is gone, or was let go."""
        if not self._problem and self._reader.is_inside_frame:
            self._problem = "it died in the middle of a message"
        self._transport = self.tray = None
        if self._errands is not None:
            self._errands.close()
        is_plain = error is None or isinstance(error, ConnectionError)  # how its process ended says more
        self._on_lost(self._problem or ("" if is_plain else str(error)))

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        """Send a message; nothing if the worker is gone. Small data is copied into one write, large is gathered."""
        if self._transport is None:
            return
        buffers = frame(message, data)
        if total(buffers) < JOIN_BELOW:
            self._transport.write(b"".join(buffers))
        else:
            self._transport.writelines(buffers)

    def send_batch(self, instance: LinkedInstance, batch: Batch) -> None:
        """Send a batch."""
        items: list[Item] = []
        data: list[bytes | bytearray | memoryview] = []
        wants_headers = self.wants_headers
        for request in batch.requests:
            payload = request.payload
            heads = []
            for part in payload.parts:
                content = part.data
                if isinstance(content, BUFFERS):
                    heads.append(PartHead(part.name, part.content_type, len(content)))
                    data.append(content)
                else:
                    heads.append(PartHead(part.name, part.content_type, content.size, content.offset))
            items.append(Item(heads, request.id, list(payload.headers)) if wants_headers else Item(heads, request.id))
        self.running[batch.number] = (instance, batch, batch.left)
        # one that was lost a moment ago: connection_lost gives the batch back
        freed = self.tray.take_freed() if self.tray is not None else []
        self.send(Run(batch.number, instance.number, items, list(batch.slots), freed), data)

    def excuse(self, seconds: float) -> None:
        """Do not count so much of their time for the batches that run: nobody could hear of their end."""
        for number, (instance, batch, began) in self.running.items():
            self.running[number] = (instance, batch, began + seconds)

    def abort(self) -> None:
        """Cut the connection."""
        if self._transport is not None:
            self._transport.abort()

    def _hear(self, report: Report, body: memoryview) -> None:
        match report:
            case Answered(number, sizes, content_types, stages, offsets):
                whole = _laid(report, body, self.tray) if offsets else _whole(sizes, content_types, body)
                self._finish(number, stages, whole, None)
            case Pieces(number, pieces):
                self._deliver(number, _pieces(pieces, body))
                for piece in pieces:
                    if piece.failure is not None:
                        self._is_lost(number, piece.failure)
            case Ended(number, stages, failure):
                self._finish(number, stages, (), failure)
            case Begun(number):
                self._begin(number)
            case Hello(version, pid):
                if version != VERSION:
                    raise ProtocolError(f"worker {pid} speaks version {version}, this server {VERSION}")
            case Loaded() | Unloadable():
                self._on_loaded(report)
            case Measured():
                self._on_measured(report)
            case Proved():
                self._on_proved(report)
            case Used(device_memory):
                self.device_memory = device_memory
            case Ask() | Order() | CallOff():
                if self._errands is None:
                    raise ProtocolError("this worker's model has nobody to ask")
                self._errands.hear(report, body)

    def _deliver(self, number: int, outcomes: Iterator[tuple[int, Outcome, bool]]) -> None:
        if number not in self.running:
            raise ProtocolError(f"an answer for batch {number}, which this worker does not hold")
        batch, now = self.running[number][1], self._clock.now()
        self.running[number] = (*self.running[number][:2], now)  # a stream may take its time from piece to piece
        for index, outcome, is_last in outcomes:
            batch.deliver(index, outcome, is_last, now)

    def _begin(self, number: int) -> None:
        """Let the next batch have the instance; what is left of this one is timed from now, and by itself."""
        if number not in self.running:
            raise ProtocolError(f"batch {number} has begun, which this worker does not hold")
        instance, batch, _ = self.running[number]
        now = self._clock.now()
        self._start_next(instance, now)
        self._scheduler.begun(instance, batch, now)

    def _start_next(self, instance: LinkedInstance, now: float) -> None:
        """Time those from now that the instance is busy with: until now another was before them."""
        for number, (owner, batch, _) in self.running.items():
            if owner is instance and not batch.has_begun:
                self.running[number] = (owner, batch, now)

    def _finish(
        self,
        number: int,
        stages: tuple[float, float, float],
        outcomes: Sequence[Outcome],
        failure: Failure | None,
    ) -> None:
        if failure is not None and self._is_lost(number, failure):
            return
        held = self.running.get(number)
        if held is None:
            raise ProtocolError(f"an end for batch {number}, which this worker does not hold")
        instance, batch, _ = held
        if len(outcomes) > len(batch):
            raise ProtocolError(f"{len(outcomes)} answers for the {len(batch)} requests of batch {number}")
        del self.running[number]
        self.answered += len(batch)
        batch.stages = Stages(*stages)
        now = self._clock.now()
        if self.running and not batch.has_begun:
            self._start_next(instance, now)
        waiting = len(self._scheduler.batcher.queue)
        if waiting and not (waiting < len(batch) >= MANY and sum(stages) < CHEAP):  # the instance first
            self._scheduler.freed(instance, batch, now, now)
            batch.hand_out(outcomes, now)
            self._close(batch, now, failure)
        else:  # the answers first, all else once they are on the wire
            batch.hand_out(outcomes, now)
            self._soon(self._settle, instance, batch, now, failure)

    def _is_lost(self, number: int, failure: Failure) -> bool:
        """Note a failure; one that leaves the device unusable ends the worker, and its batches run elsewhere."""
        if failure.kind != "input":
            self.last_failure = failure
        if failure.kind != "device" or not self.ends_on_lost_device:
            return False
        self.lost[number] = failure
        self._problem = f"its device is lost: {failure.message}"
        self.abort()
        return True

    def _settle(self, instance: LinkedInstance, batch: Batch, ended: float, failure: Failure | None) -> None:
        if not batch.is_closed:  # the worker may have died since, and its batches been closed for it
            self._scheduler.freed(instance, batch, ended, self._clock.now())
            self._close(batch, ended, failure)

    def _close(self, batch: Batch, now: float, failure: Failure | None) -> None:
        is_short = failure is not None and failure.kind == "memory"
        self._scheduler.closed(batch, now, lambda: error_of(failure), out_of_memory=is_short)


def error_of(failure: Failure | None) -> ServingError:
    """Turn what a worker reported into the error it stands for."""
    if failure is None:
        return HandlerFailed("the worker ended the batch without an answer for this request")
    if failure.kind == "input":
        return InvalidInput(failure.message)
    return HandlerFailed(failure.message, status=failure.status or None, traceback=failure.traceback)


def _whole(sizes: list[int], content_types: list[str], body: memoryview) -> Sequence[Outcome]:
    data: bytes | memoryview = bytes(body) if len(body) < JOIN_BELOW else body
    types = content_types * len(sizes) if len(content_types) == 1 else content_types
    if len(types) != len(sizes):
        raise ProtocolError(f"{len(sizes)} answers came with {len(types)} content types")
    results, start = [], 0
    for place, size in enumerate(sizes):
        end = start + size
        results.append(Result(data[start:end], types[place]))
        start = end
    return results


def _laid(report: Answered, body: memoryview, tray: Tray | None) -> Sequence[Outcome]:
    """Give answers some of which lie in the worker's tray; ProtocolError before the first where they cannot."""
    found: list[Outcome] = []
    sizes, types, offsets, start = report.sizes, report.content_types, report.offsets, 0
    if tray is None or len(offsets) != len(sizes):
        raise ProtocolError(f"{len(sizes)} answers came with {len(offsets)} places in memory")
    if len(types) == 1:
        types = types * len(sizes)
    for index, (size, offset) in enumerate(zip(sizes, offsets, strict=True)):
        if offset >= 0:
            data = tray.read(offset, size)
        else:
            data = memoryview(bytes(body[start : start + size]))
            start += size
        found.append(Result(data, types[index]))
    return found


def _pieces(pieces: list[Piece], body: memoryview) -> Iterator[tuple[int, Outcome, bool]]:
    start = 0
    for piece in pieces:
        end = start + piece.size
        if piece.failure is not None:
            yield piece.index, error_of(piece.failure), True
        else:
            result = Result(bytes(body[start:end]), piece.content_type, piece.status, piece.headers, piece.reason)
            yield piece.index, result, piece.is_last
        start = end
