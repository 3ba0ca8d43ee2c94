"""The stages of a program, run one batch after the other or side by side.

`Inline` runs on the caller's thread: a lone request crosses no thread. `Threaded` gives each stage its own threads, so
that preprocessing of one batch overlaps inference of the batch before; a few requests with nothing to overlap stay on
the thread of inference. `Gathered` runs on the thread that the model belongs to. A stage's exception is the failure of
the slice it ran for; no thread ends by one. A slice whose answers come later leaves with the last of them, and holds no
thread until then. What a queue between stages may hold is bounded; what waits before the first stage is bounded by the
front process, which sends no more batches than an instance has places.
"""

import logging
import math
import threading
from collections.abc import Callable, Sequence
from functools import partial
from queue import SimpleQueue
from time import perf_counter
from typing import Final, Generic, Protocol, TypeVar

from shoal.config.model import MicroBatching
from shoal.wire.memory import ArenaReader
from shoal.worker import streams
from shoal.worker.batch import Batch, Slice, rows_of
from shoal.worker.home import Home
from shoal.worker.later import Later
from shoal.worker.lead import Lead
from shoal.worker.program import COLUMNS, Program, Stage
from shoal.worker.requests import Requests

T = TypeVar("T")
Done = Callable[[Batch], None]
Poll = Callable[[], None]
_log = logging.getLogger("shoal.worker")
FEW: Final = 8  # requests for which to change threads costs more than it brings, while nobody else is there
BRIEF: Final = 1e-3  # seconds; the next inference may wait for so short a postprocess


class Pipeline(Protocol):
    """Runs the batches of one instance."""

    def start(self) -> None:
        """Start its threads, if it has any."""
        ...

    def submit(self, batch: Batch) -> None:
        """Run a batch, now or soon; `done` is called once its answers have left."""
        ...


class Runner(Protocol):
    """Runs a slice through stages: `run_stages`, or what stands before it."""

    def __call__(
        self, cut: Slice, stages: Sequence[Stage], program: Program, arena: ArenaReader | None, poll: Poll
    ) -> None:
        """Leave the slice with what is alive, and with nobody once all have ended."""
        ...


def nothing_to_poll() -> None:
    """What is done between pieces where another thread reads the commands."""


class Inline:
    """One stage on the caller's thread. `poll` is called between the pieces of a stream."""

    def __init__(
        self, program: Program, arena: ArenaReader | None, done: Done, poll: Poll, run: Runner | None = None
    ) -> None:
        self._program = program
        self._arena = arena
        self._leave = partial(_leave, done)
        self._poll = poll
        self._run = run or run_stages

    def start(self) -> None:
        """Nothing to start."""

    def submit(self, batch: Batch) -> None:
        """Run it whole, now."""
        (cut,) = batch.slices(0)
        self._run(cut, self._program.stages, self._program, self._arena, self._poll)
        self._leave(cut)


class Threaded:
    """Every stage with threads of its own.

    To hand a slice over takes a tenth of a millisecond where the next thread sleeps on another core, and the data goes
    cold. So a few requests that find nobody inside begin on the thread of inference, and what is alone there after
    its inference stays for a brief postprocess. Inference never leaves its threads: libraries keep things for each.
    With a `lead`, its thread reads the commands too after such a few, while nobody is inside.
    """

    def __init__(
        self,
        program: Program,
        micro: MicroBatching,
        arena: ArenaReader | None,
        done: Done,
        run: Runner | None = None,
        lead: Lead | None = None,
    ) -> None:
        self._program = program
        self._arena = arena
        self._done = done
        self._run = run or run_stages
        self._lead = lead
        if lead is not None:
            lead.grant = self._let_read
        stages = program.stages
        is_staged = len(stages) > 1
        self._slice_size = micro.micro_batch_size if is_staged else 0
        self._threads = [micro.parallelism.get(stage.name, 1) if is_staged else 1 for stage in stages]
        # None among the slices: there is nothing to run, and the commands may be read
        self._hops: list[Hop[Slice | None]] = [
            Hop(0 if column == 0 else 2 * threads) for column, threads in enumerate(self._threads)
        ]
        # a stage runs as often at once as it has threads, whosever they are
        self._gates = [Room(count) for count in self._threads]
        self._home = 1 if is_staged else 0  # the column of inference
        self.brief = BRIEF
        self._inside: set[Slice] = set()  # those that have not left
        self._tail = math.inf  # seconds that the last stage took, the last time

    def start(self) -> None:
        """Start the threads; they end with the process."""
        for column, (stage, count) in enumerate(zip(self._program.stages, self._threads, strict=True)):
            for number in range(count):
                name = f"{stage.name}-{number}"
                threading.Thread(target=self._serve, args=(column,), name=name, daemon=True).start()

    def submit(self, batch: Batch) -> None:
        """Put its slices before the first stage, or what has nothing to overlap before inference."""
        cuts = batch.slices(self._slice_size)
        first = 0
        is_few = len(batch.items) <= FEW
        if self._lead is not None:
            self._lead.may_ask = is_few
        if self._home and not self._inside and len(cuts) == 1 and is_few:
            first = self._home
            self._gates[0].enter()  # nobody overtakes it
        for cut in cuts:
            cut.leave = self._leave
            self._inside.add(cut)
            self._hops[first].put(cut)

    def _let_read(self) -> bool:
        """Let the thread of inference read the commands, as it has asked; not while anybody is inside.

        What is submitted from now on, until it has read, is submitted by that thread.
        """
        if self._inside:
            return False
        self._hops[self._home].put(None)
        return True

    def _serve(self, column: int) -> None:
        hop = self._hops[column]
        while True:
            cut = hop.get()
            try:
                if cut is not None:
                    try:
                        self._pass(cut, column)
                    finally:
                        self._program.context.leave()  # nothing of it stays in memory
                    if self._lead is not None and self._lead.may_ask and not self._inside and column == self._home:
                        self._lead.ask()
                elif self._lead is not None:
                    self._lead.read()
            except BaseException:  # a defect of ours: the thread lives
                _log.exception("a batch could not be answered")

    def _pass(self, cut: Slice, own: int) -> None:
        """Run the stages that are due on the thread of stage `own`, and see the slice on its way.

        A gate before that stage's was passed when the slice was submitted.
        """
        program = self._program
        stages = program.stages
        column, last = cut.column, len(stages) - 1
        at_hand: Requests | None = None
        while True:
            stage, gate = stages[column], self._gates[column]
            if column >= own:
                gate.enter()
            try:
                if not self._home:
                    self._run(cut, stages, program, self._arena, nothing_to_poll)
                else:
                    at_hand = _step(cut, stage, program, self._arena, nothing_to_poll, at_hand)
                    if cut.later is not None:
                        program.context.leave()
                        cut.later(cut, stage)
            finally:
                gate.leave()
            if cut.later is not None:
                return  # it leaves with its last answer
            if column == last:
                self._tail = cut.seconds[COLUMNS[stage.name]]
            if column == last or not cut.places:
                self._leave(cut)
                return
            column = cut.column = column + 1
            if column > own and not (own == self._home and len(self._inside) == 1 and self._tail < self.brief):
                self._hops[column].put(cut)
                return

    def _leave(self, cut: Slice) -> None:
        self._inside.discard(cut)
        _leave(self._done, cut)


class Gathered:
    """Every stage on the one thread that the model belongs to; what would wait there does so on another."""

    def __init__(self, program: Program, home: Home, arena: ArenaReader | None, done: Done) -> None:
        self._program = program
        self._home = home
        self._arena = arena
        self._leave = partial(_leave, done)
        self._waiting: Hop[Slice] = Hop(2)
        stages = program.stages
        middle = next((column for column, stage in enumerate(stages) if stage.would_wait is not None), len(stages))
        self._tail = stages[middle:]  # what may wait, and what comes after it

    def start(self) -> None:
        """Start the thread that waits; it ends with the process."""
        if self._tail:
            threading.Thread(target=self._wait, name="waiting", daemon=True).start()

    def submit(self, batch: Batch) -> None:
        """Let it run there, whole, in its turn."""
        for cut in batch.slices(0):
            cut.leave = self._leave
            self._home.put(self._run, cut)

    def _run(self, cut: Slice) -> None:
        """Run all stages; from the one on that would wait, on the other thread."""
        is_through = _run(cut, self._program.stages, self._program, self._arena, nothing_to_poll, may_wait=False)
        if not is_through:
            self._waiting.put(cut)
        elif cut.later is None:  # else it leaves with its last answer
            self._leave(cut)

    def _wait(self) -> None:
        while True:
            cut = self._waiting.get()
            try:
                run_stages(cut, self._tail, self._program, self._arena)
                if cut.later is None:
                    self._leave(cut)
            except BaseException:  # a defect of ours: the thread lives
                _log.exception("a batch could not be answered")


class Room:
    """Lets so many in at once; a semaphore would be Python, and ten times slower."""

    def __init__(self, limit: int) -> None:
        self._free: SimpleQueue[None] = SimpleQueue()
        for _ in range(limit):
            self._free.put(None)

    def enter(self) -> None:
        """Take a place, once there is one."""
        self._free.get()

    def leave(self) -> None:
        """Give a place back; from any thread."""
        self._free.put(None)


class Hop(Generic[T]):
    """The queue before a stage; `put` waits while it holds `limit` (0: never)."""

    def __init__(self, limit: int) -> None:
        self._queue: SimpleQueue[T] = SimpleQueue()
        self._room = Room(limit) if limit else None

    def put(self, cut: T) -> None:
        """Add a slice, once there is room."""
        if self._room is not None:
            self._room.enter()
        self._queue.put(cut)

    def get(self) -> T:
        """Wait for a slice."""
        cut = self._queue.get()
        if self._room is not None:
            self._room.leave()
        return cut


def run_stages(
    cut: Slice,
    stages: Sequence[Stage],
    program: Program,
    arena: ArenaReader | None,
    poll: Poll = nothing_to_poll,
) -> None:
    """Run a slice through these stages; it is left with what is alive, and with nobody once all have ended."""
    _run(cut, stages, program, arena, poll, may_wait=True)


def _run(
    cut: Slice, stages: Sequence[Stage], program: Program, arena: ArenaReader | None, poll: Poll, *, may_wait: bool
) -> bool:
    """Run these stages; False: the next would wait, which this thread may not."""
    at_hand: Requests | None = None
    for stage in stages:
        if not may_wait and stage.would_wait is not None and stage.would_wait(cut.data):
            program.context.leave()
            return False
        at_hand = _step(cut, stage, program, arena, poll, at_hand)
        if cut.later is not None or not cut.places:
            break
    program.context.leave()
    if cut.later is not None:
        cut.later(cut, stage)
    return True


def _step(
    cut: Slice, stage: Stage, program: Program, arena: ArenaReader | None, poll: Poll, at_hand: Requests | None
) -> Requests | None:
    """Run one stage and note its time; gives what the context speaks of now, which was `at_hand` before."""
    started = perf_counter()
    try:
        at_hand = _run_stage(cut, stage, program, arena, poll, at_hand)
    except BaseException as error:  # SystemExit too: user code does not end the worker
        cut.fail(error, stage.label)
    cut.spend(stage, perf_counter() - started)
    return at_hand


def apart(cut: Slice) -> list[Slice]:
    """Give the requests of a slice that has not begun, each as a slice of its own."""
    singles, start = [], cut.start
    for place, item in zip(cut.places, cut.items, strict=True):
        one = Slice(cut.batch, [place], [item], start)
        start += one.inline_size
        singles.append(one)
    return singles


def _leave(done: Done, cut: Slice) -> None:
    """A slice is through; with the last one its batch is."""
    batch = cut.batch
    if batch.close(cut):
        batch.finish()
        done(batch)


def _run_stage(
    cut: Slice, stage: Stage, program: Program, arena: ArenaReader | None, poll: Poll, at_hand: Requests | None
) -> Requests:
    """Run one stage; gives what the context speaks of now, which was `at_hand` before."""
    if stage is program.stages[0]:
        start = cut.start
        rows = program.read(cut.items, cut.batch.data[start:] if start else cut.batch.data, arena)
        cut.data = cut.drop_failed(rows, "the request")
        if not cut.places:
            return cut.requests
    if cut.requests is not at_hand:
        at_hand = cut.requests
        program.context.enter(at_hand, cut.emit)
    result = stage.call(cut.data)
    if isinstance(result, Later):
        cut.later = result.open
        return at_hand
    if not stage.gives_rows:
        cut.data = cut.drop_failed(result, stage.label)
        return at_hand
    if streams.is_stream(result):
        streams.run(cut, result, stage, poll)
        return at_hand
    results = rows_of(result, len(cut.places), stage.label)
    if stage is program.stages[-1]:
        cut.answer(results, stage.label)
        cut.places = ()
    else:
        cut.data = cut.drop_failed(results, stage.label)
    return at_hand
