"""SequenceBatcher: requests of one correlation id go to one instance, in their order, one at a time.

A sequence begins with a request whose START flag is set. It takes the first free slot of any instance, or waits in the
backlog, first come first served, with whatever follows. It has ended when its request with the END flag has run, when
it was idle for too long, when one of its requests was withdrawn or expired, or when its instance went. Then its slot is
free. A START within a live sequence begins anew in the same slot, behind what waits there; a START behind an END waits
until the sequence before it has ended.

What a worker is told. `Request.sequence` has the correlation id and the two flags as the client sent them.
`Batch.slots` has one number for each request, in the requests' order: the slot of its sequence within the instance,
from 0. No number comes twice in a batch. The first request that a slot sees of any sequence has its START flag set, so
whoever keeps state by instance and slot, and begins it anew at START, never mixes sequences, and never keeps more than
there are slots; nobody tells it of a sequence that ended without END. An instance is sent one batch at a time.
- direct: the numbers ascend, and they are the rows of the execution. It has rows 0 to `slots[-1]`; every row that is no
  request's is a null request: shapes as the others', any data, START, END and READY false, correlation id 0 or empty,
  its outputs thrown away. Every request is READY.
- oldest: the numbers only say where state is kept; the rows are the requests, in order, and there are no null requests.

State lives in the worker process. When that dies, or the instance is retired, its sequences are over: what they had
waiting fails with SequenceLost, what ran fails with its worker, nothing is run twice, and a client has to begin again
with START.
"""

import heapq
import math
from collections import deque
from collections.abc import Callable
from collections.abc import Sequence as Several
from functools import partial
from itertools import count

from shoal.core.batch import Batch
from shoal.core.batcher import WaitUntil
from shoal.core.policy import Fleet
from shoal.core.request import QUEUED, Request, deadline_passed
from shoal.core.rounds import Round
from shoal.core.slots import Slot, Slots
from shoal.errors import InvalidInput, QueueFull, QueueTimeout, SequenceLost, ServingError, Withdrawn


class Sequence:
    """One sequence from its START to its end."""

    __slots__ = ("before", "deadline", "has_end", "id", "idle_since", "is_over", "running", "slot", "waiting")

    def __init__(self, id: int | str, before: "Sequence | None") -> None:
        self.id = id
        self.before = before
        self.waiting: deque[Request] = deque()
        self.running: Request | None = None
        self.slot: Slot | None = None  # None: in the backlog
        self.deadline = math.inf  # of the whole sequence, as long as it has no slot
        self.has_end = False  # nothing can follow what it has
        self.is_over = False
        self.idle_since = 0.0

    @property
    def follows(self) -> "Sequence | None":
        """The sequence of the same id that has not ended yet and has to, before this one may have a slot."""
        while self.before is not None and self.before.is_over:
            self.before = self.before.before
        return self.before


class SequenceBatcher:
    """Decides what leaves for one model whose requests come in sequences; it is its own queue."""

    is_shared = False  # what waits for a slot's instance is nobody else's
    may_rerun = False

    def __init__(
        self, model: str, limit: int, policy: Round, slots: int, idle: float, id_type: type[int] | type[str] | None
    ) -> None:
        self.model = model
        self.limit = limit
        self.policy = policy
        self.idle = idle
        self.id_type = id_type
        self.fleet = Fleet()
        self.expired = 0
        self.failed = 0
        self._slots = Slots(slots)
        self._sequences: dict[int | str, Sequence] = {}  # the youngest of each id
        self._backlog: deque[Sequence] = deque()
        self._at: dict[str, dict[int, Sequence]] = {}  # by instance and slot
        self._of: dict[Request, Sequence] = {}  # of those that wait or run
        self._idle: dict[Sequence, None] = {}  # that have a slot and no request, the longest idle first
        self._lost: dict[Request, str] = {}  # why they are to be ended once the time is known
        self._times: list[tuple[float, int, Sequence, Request | None]] = []  # a heap of deadlines
        self._order = count()
        self._size = 0
        self._made = 0

    # -- what waits ------------------------------------------------------------------------------------------------

    @property
    def queue(self) -> "SequenceBatcher":
        """What waits."""
        return self

    def __len__(self) -> int:
        return self._size

    def next_deadline(self) -> float:
        """When a request or a sequence should end, whatever happens."""
        heap = self._times
        while heap and not _counts(*heap[0]):
            heapq.heappop(heap)
        first = next(iter(self._idle), None)
        idle_until = math.inf if first is None else first.idle_since + self.idle
        return min(heap[0][0] if heap else math.inf, idle_until)

    def drain(self) -> list[Request]:
        """Take out everybody who waits; their sequences are over."""
        broken = dict.fromkeys(sequence for sequence in self._of.values() if sequence.waiting)
        taken = list(self._lost)
        self._lost.clear()
        for sequence in broken:
            taken += self._cut(sequence)
        for request in taken:
            self._forget(request)
        return taken

    # -- arrivals and departures -----------------------------------------------------------------------------------

    def joined(self, instance: str) -> None:
        """An instance is up: the backlog may have its slots."""
        self._slots.join(instance)
        self._at[instance] = {}
        self._place()

    def left(self, instance: str) -> None:
        """An instance is gone, or will be: so are the sequences that it held."""
        self._slots.leave(instance)
        for sequence in list(self._at.pop(instance).values()):
            why = self._why_lost(sequence, "the instance that kept its state is gone")
            self._lost |= dict.fromkeys(self._cut(sequence), why)
        self._place()

    def offer(self, request: Request, now: float) -> bool:
        """Take the request, or raise InvalidInput or QueueFull and take nothing; whose turn it is, is seen later."""
        mark = request.sequence
        if request.rows != 1:
            why = "must specify batch-size 1 due to requirements of sequence batcher"
            raise InvalidInput(f"inference request to model '{self.model}' {why}")
        if mark is None or not mark.id:
            why = "must specify a non-zero or non-empty correlation ID"
            raise InvalidInput(f"inference request to model '{self.model}' {why}")
        if self.id_type is not None and not isinstance(mark.id, self.id_type):
            kinds = ("a string", "an integer") if self.id_type is str else ("an integer", "a string")
            why = f"takes {kinds[0]} as its correlation ID, got {kinds[1]}: {mark.id!r}"
            raise InvalidInput(f"inference request for sequence {mark.id}: model '{self.model}' {why}")
        self._reap(now)
        sequence = self._sequences.get(mark.id)
        is_new = sequence is None or sequence.has_end
        if is_new and not mark.start:
            why = "must specify the START flag on the first request of the sequence"
            raise InvalidInput(f"inference request for sequence {mark.id} to model '{self.model}' {why}")
        if self._size >= self.limit:
            raise QueueFull(self.model, self._size, 1.0)
        if sequence is None or is_new:
            sequence = self._sequences[mark.id] = Sequence(mark.id, sequence)
            self._backlog.append(sequence)
        self._add(sequence, request)
        sequence.has_end = mark.end
        self._place()
        if sequence.slot is None and request.timeout and request.arrived + request.timeout < sequence.deadline:
            sequence.deadline = request.arrived + request.timeout
            self._watch(sequence.deadline, sequence, None)
        return False

    def withdraw(self, request: Request, now: float) -> int:
        """The client left: what else its sequence has waiting is cancelled. Gives how many ended."""
        sequence = self._of.get(request)
        if not request.withdraw(now):
            return 0
        if sequence is None:
            return 1
        self._lost.pop(request, None)
        if sequence.running is not request:
            self._forget(request)
        others = [other for other in self._cut(sequence) if other is not request]
        self._place()
        why = f"sequence {sequence.id} of model '{self.model}' was cancelled"
        return 1 + self._end(others, partial(Withdrawn, why), now)

    def give_back(self, requests: list[Request]) -> None:
        """No request of a sequence runs twice."""
        assert not requests, "a request of a sequence came back to run again"

    def expire(self, now: float) -> None:
        """End the requests whose time is over, and those whose sequence is lost; idle sequences lose their slots."""
        lost, self._lost = self._lost, {}
        for request, why in lost.items():
            if request.state is QUEUED:
                self.failed += self._end([request], partial(SequenceLost, why), now)
        while self._times and self._times[0][0] <= now:
            entry = heapq.heappop(self._times)
            if _counts(*entry):
                self._expire(entry[2], entry[3], now)
        self._reap(now)

    # -- executions ------------------------------------------------------------------------------------------------

    def take(self, instance: str, now: float, *, is_busy: bool = False) -> Batch | WaitUntil | None:
        """Make the next execution of `instance`, if it has one now."""
        if is_busy:
            return WaitUntil(math.inf, "sequence")
        at = self._at[instance]
        ready = [at[number] for number in sorted(at) if at[number].waiting]
        if not ready:
            return None
        chosen = self.policy.choose([sequence.waiting[0] for sequence in ready], now)
        if isinstance(chosen, WaitUntil):
            return chosen
        requests, slots = [], []
        for sequence in [ready[index] for index in chosen]:
            assert sequence.slot is not None and sequence.running is None
            sequence.running = sequence.waiting.popleft()
            requests.append(sequence.running)
            slots.append(sequence.slot.number)
        self._size -= len(requests)
        self._made += 1
        batch = Batch(self._made, requests, "sequence", now)
        batch.slots = tuple(slots)
        batch.rows = self.policy.rows(batch.slots)
        return batch

    def sent(self, batch: Batch, now: float) -> None:
        """Nothing to note."""

    def done(self, batch: Batch, now: float) -> None:
        """Sequences that ended give their slots back, the others may go on."""
        for request in batch.requests:
            sequence = self._of.pop(request)
            sequence.running = None
            if sequence.has_end and not sequence.waiting:
                self._over(sequence)
            elif not sequence.waiting:
                sequence.idle_since = now
                self._idle[sequence] = None
        self._place()

    # -- how it happens --------------------------------------------------------------------------------------------

    def _add(self, sequence: Sequence, request: Request) -> None:
        sequence.waiting.append(request)
        self._of[request] = sequence
        self._size += 1
        self._idle.pop(sequence, None)
        if request.deadline < math.inf:
            self._watch(request.deadline, sequence, request)

    def _watch(self, time: float, sequence: Sequence, request: Request | None) -> None:
        heapq.heappush(self._times, (time, next(self._order), sequence, request))
        if len(self._times) > 4 * self._size + 1024:
            self._times = [entry for entry in self._times if _counts(*entry)]
            heapq.heapify(self._times)

    def _place(self) -> None:
        """Give free slots to those who wait for one, but to nobody whose id is still in use."""
        blocked: list[Sequence] = []
        while self._backlog:
            sequence = self._backlog.popleft()
            if sequence.follows is not None:
                blocked.append(sequence)
            elif (slot := self._slots.take()) is None:
                self._backlog.appendleft(sequence)
                break
            else:
                sequence.slot = slot
                self._at[slot.instance][slot.number] = sequence
        self._backlog.extendleft(reversed(blocked))

    def _cut(self, sequence: Sequence) -> list[Request]:
        """End a sequence as soon as nothing of it runs; gives what it had waiting, to be ended and forgotten."""
        waiting = list(sequence.waiting)
        sequence.waiting.clear()
        sequence.has_end = True
        if sequence.running is None and not sequence.is_over:
            self._over(sequence)
        return waiting

    def _over(self, sequence: Sequence) -> None:
        """Nothing of this sequence is left."""
        sequence.is_over = True
        self._idle.pop(sequence, None)
        if self._sequences.get(sequence.id) is sequence:
            del self._sequences[sequence.id]
            if (before := sequence.follows) is not None:
                self._sequences[sequence.id] = before
        if sequence.slot is None:
            self._backlog.remove(sequence)
        elif (at := self._at.get(sequence.slot.instance, {})).get(sequence.slot.number) is sequence:
            del at[sequence.slot.number]
            self._slots.give_back(sequence.slot)

    def _expire(self, sequence: Sequence, request: Request | None, now: float) -> None:
        """End what a sequence has waiting, because its time in the backlog or that of one request is over."""
        waiting = self._cut(sequence)
        if request is None:
            why = "timeout of the corresponding sequence has been expired"
            self.expired += self._end(waiting, partial(QueueTimeout, why), now)
            return
        waiting.remove(request)
        self.expired += self._end([request], partial(deadline_passed, request, now), now)
        why = self._why_lost(sequence, "a request of it expired")
        self.failed += self._end(waiting, partial(SequenceLost, why), now)

    def _reap(self, now: float) -> None:
        """Take the slots of sequences that were idle for too long."""
        while self._idle and (first := next(iter(self._idle))).idle_since + self.idle <= now:
            self._over(first)
        self._place()

    def _end(self, requests: Several[Request], error: Callable[[], ServingError], now: float) -> int:
        """End requests that waited; gives how many had not left meanwhile, for whoever hears of it may do anything."""
        for request in requests:
            self._forget(request)
        return sum(request.answer(error(), True, now) for request in requests)

    def _forget(self, request: Request) -> None:
        del self._of[request]
        self._size -= 1

    def _why_lost(self, sequence: Sequence, why: str) -> str:
        again = "begin it again with the START flag"
        return f"sequence {sequence.id} of model '{self.model}' is over: {why}; {again}"


def _counts(time: float, order: int, sequence: Sequence, request: Request | None) -> bool:
    """Whether an entry of the deadlines still means somebody."""
    if request is not None:
        return request.state is QUEUED
    return sequence.slot is None and not sequence.is_over and sequence.deadline == time
