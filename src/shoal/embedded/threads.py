"""ThreadHost: runs a plain function in threads of its own, for callers in any thread or event loop.

There is no thread that only passes things on. The scheduler is guarded by one lock, and whoever has something to say
(a caller with an item, a worker with results) takes it and feeds the workers before letting go; a lone call crosses two
threads, there and back. A thread that sleeps until a hold is over exists once a policy has asked for one.
"""

import asyncio
import math
import threading
from collections import deque
from collections.abc import Callable
from functools import partial
from queue import SimpleQueue

from shoal.clock import Clock
from shoal.core.batch import Batch, Stages
from shoal.core.request import Outcome, Request
from shoal.embedded.calls import (
    Awaited,
    Done,
    Holder,
    Settings,
    describe,
    finish,
    items_of,
    late,
    make_request,
    make_scheduler,
    outcomes_of,
    task_name,
)
from shoal.errors import ServingError, Unavailable

Function = Callable[[list[object]], object]


class ThreadAlarm:
    """Alarm of a scheduler behind a lock: `soon` is seen by whoever holds it, `at` by a thread that sleeps."""

    def __init__(self, lock: threading.Lock, ring: Callable[[], None], clock: Clock, name: str) -> None:
        self.is_due = False
        self._time = math.inf
        self._wakes = math.inf  # when the thread looks next by itself
        self._changed = threading.Condition(lock)
        self._ring = ring
        self._clock = clock
        self._name = name
        self._thread: threading.Thread | None = None
        self._is_closed = False

    def soon(self) -> None:
        """Feed before the lock is let go."""
        self.is_due = True

    def at(self, time: float) -> None:
        """Feed at that time; one that is later than asked before only lets the thread look in vain."""
        self._time = time
        if time >= self._wakes or self._is_closed:
            return
        self._wakes = time
        if self._thread is None:
            self._thread = threading.Thread(target=self._watch, name=f"{self._name} alarm", daemon=True)
            self._thread.start()
        else:
            self._changed.notify()

    def close(self) -> threading.Thread | None:
        """Never ring again; gives the thread that ends, if there is one."""
        self._is_closed = True
        self._changed.notify()
        return self._thread

    def _watch(self) -> None:
        with self._changed:
            while not self._is_closed:
                now = self._clock.now()
                if now >= self._time:
                    self._time = math.inf
                    self._ring()
                self._wakes = self._time
                self._changed.wait(None if self._time == math.inf else max(0.0, self._time - now))


class Waiter:
    """One thread that waits for the end of its call."""

    __slots__ = ("_gate", "outcome")

    def __init__(self) -> None:
        self._gate = threading.Lock()
        self._gate.acquire()
        self.outcome: Outcome | None = None

    def answered(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        """Let the thread go on."""
        self.outcome = outcome
        self._gate.release()

    def wait(self, timeout: float | None) -> Outcome | None:
        """Sleep until the call has ended; None when the time is over."""
        if not self._gate.acquire(timeout=-1 if timeout is None else min(max(0.0, timeout), threading.TIMEOUT_MAX)):
            return None
        outcome, self.outcome = self.outcome, None  # nothing of it stays with the request
        return outcome


class ThreadHost:
    """The workers of one function, and the scheduler that feeds them."""

    def __init__(self, function: Function, name: str, settings: Settings, clock: Clock) -> None:
        self._function = function
        self._name = name
        self._clock = clock
        self._lock = threading.Lock()
        self._alarm = ThreadAlarm(self._lock, self._feed, clock, name)
        self._scheduler = make_scheduler(name, settings, self._alarm)
        self._inboxes: list[SimpleQueue[Batch | None]] = [SimpleQueue() for _ in range(settings.workers)]
        self._threads: list[threading.Thread] = []
        self._ports: dict[asyncio.AbstractEventLoop, Port] = {}
        self._idle = threading.Event()
        self._is_closed = False

    def start(self) -> None:
        """Start the workers; they hold nothing that would keep the function's owner alive."""
        for number, inbox in enumerate(self._inboxes):
            holder = Holder(number, self._hand_over)
            self._scheduler.join(holder)
            self._threads.append(
                threading.Thread(
                    target=self._work, args=(holder, inbox), name=f"{self._name} worker {number}", daemon=True
                )
            )
        for thread in self._threads:
            thread.start()

    def call(self, item: object, timeout: float | None) -> Outcome:
        """Wait in this thread for what becomes of the item; QueueFull is raised at once."""
        waiter = Waiter()
        request = make_request(item, waiter.answered, self._clock.now(), timeout, threading.get_native_id())
        with self._lock:
            self._admit(request)
            self._settle()
        try:
            outcome = waiter.wait(timeout)
        except BaseException:  # Ctrl-C
            self.withdraw(request)
            raise
        if outcome is None:
            self.withdraw(request)
            outcome = waiter.outcome or late(request, self._clock.now())  # it may have come in this very moment
        return outcome

    async def call_from_loop(self, item: object, timeout: float | None) -> Outcome:
        """Wait in this task for what becomes of the item."""
        loop = asyncio.get_running_loop()
        port = self._ports.get(loop) or self._open_port(loop)
        awaited = Awaited(loop)
        request = make_request(item, partial(port.answered, awaited), self._clock.now(), timeout, task_name())
        port.send(request, awaited)
        return await awaited.outcome(request, self._clock, port.withdraw)

    def offer(self, requests: dict[Request, Awaited]) -> None:
        """Take what one loop has collected; the refused are told so. On the loop's own thread."""
        refused: list[tuple[Awaited, ServingError]] = []
        with self._lock:
            for request, awaited in requests.items():
                try:
                    self._admit(request)
                except Unavailable as error:
                    refused.append((awaited, error))
            self._settle()
        for awaited, refusal in refused:
            awaited.give(refusal)

    def withdraw(self, request: Request) -> None:
        """The caller left: out of the queue, or its result is discarded."""
        with self._lock:
            self._scheduler.withdraw(request, self._clock.now())
            self._settle()

    def describe(self) -> dict[str, object]:
        """Tell what has happened so far and what the policy has learned."""
        with self._lock:
            return describe(self._scheduler)

    def close(self, timeout: float | None) -> None:
        """Take nothing new, finish what was taken, end the threads. What waits longer than `timeout` is refused."""
        end = math.inf if timeout is None else self._clock.now() + timeout
        with self._lock:
            if not self._is_closed:
                self._is_closed = True
                self._scheduler.when_idle(self._idle.set)
        is_inside = threading.current_thread() in self._threads  # the function itself: it cannot wait for itself
        if is_inside or not self._idle.wait(timeout):
            with self._lock:
                self._scheduler.fail_waiting(self._closed_error, self._clock.now())
        self.let_go()
        with self._lock:
            alarm = self._alarm.close()
        for thread in (*self._threads, *([alarm] if alarm else [])):
            if not is_inside:
                thread.join(None if end == math.inf else max(0.0, end - self._clock.now()))

    def let_go(self) -> None:
        """End the workers once they have done what they hold. Takes no lock: a garbage collection may call it."""
        for inbox in self._inboxes:
            inbox.put(None)

    def _hand_over(self, holder: Holder, batch: Batch) -> None:
        self._inboxes[holder.number].put(batch)

    def _work(self, holder: Holder, inbox: "SimpleQueue[Batch | None]") -> None:
        while (batch := inbox.get()) is not None:
            done = self._run(batch)
            with self._lock:
                finish(self._scheduler, holder, batch, done, self._clock.now())
                self._settle()
            del batch, done  # an idle worker keeps no item and no result alive
        with self._lock:
            self._alarm.close()

    def _run(self, batch: Batch) -> Done:
        started = self._clock.now()
        try:
            outcomes = outcomes_of(self._function(items_of(batch)), len(batch), self._name)
        except BaseException as error:  # SystemExit too: it is the callers', no worker ends by it
            return Done.failed(error, len(batch), self._name)
        return Done(outcomes, Stages(inference=self._clock.now() - started))

    def _admit(self, request: Request) -> None:
        try:
            if self._is_closed:
                raise self._closed_error()
            self._scheduler.offer(request, request.arrived)
        except Unavailable:
            self._scheduler.stats.refused += 1
            raise

    def _settle(self) -> None:
        """Feed, if something asked for it; every holder of the lock ends with this."""
        if self._alarm.is_due:
            self._feed()

    def _feed(self) -> None:
        self._alarm.is_due = False
        self._scheduler.feed(self._clock.now())

    def _closed_error(self) -> Unavailable:
        return Unavailable(f"{self._name} is closed")

    def _open_port(self, loop: asyncio.AbstractEventLoop) -> "Port":
        with self._lock:
            for other in [known for known in self._ports if known.is_closed()]:
                del self._ports[other]
            port = self._ports[loop] = Port(loop, self)
        return port


class Port:
    """The calls of one event loop: offered together at the end of its turn, answered together by one wake."""

    def __init__(self, loop: asyncio.AbstractEventLoop, host: ThreadHost) -> None:
        self._loop = loop
        self._host = host
        self._unsent: dict[Request, Awaited] = {}
        self._answers: deque[tuple[Awaited, Outcome]] = deque()
        self._is_told = False

    def send(self, request: Request, awaited: Awaited) -> None:
        """Offer the request with all others of this turn."""
        if not self._unsent:
            self._loop.call_soon(self._flush)
        self._unsent[request] = awaited

    def withdraw(self, request: Request) -> None:
        """The caller left."""
        if self._unsent.pop(request, None) is None:
            self._host.withdraw(request)

    def answered(self, awaited: Awaited, request: Request, outcome: Outcome, is_last: bool) -> None:
        """Take one outcome to the loop; from any thread, one at a time."""
        self._answers.append((awaited, outcome))
        if not self._is_told:
            self._is_told = True
            try:
                self._loop.call_soon_threadsafe(self._hand_out)
            except RuntimeError:  # the loop is closed, so nobody waits
                self._answers.clear()

    def _flush(self) -> None:
        unsent, self._unsent = self._unsent, {}
        self._host.offer(unsent)

    def _hand_out(self) -> None:
        self._is_told = False  # first: what comes from now on wakes the loop again
        while self._answers:
            awaited, outcome = self._answers.popleft()
            awaited.give(outcome)
