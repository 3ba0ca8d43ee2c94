"""Adaptive: the rule that needs no settings. A batch leaves at once unless a measured reason says that waiting pays.

A hold is planned when an instance is free and rows wait, and has an end that arrivals only bring nearer. When it ends
and many are still due back, another may be worth it: the more have come, the more it saves to go with the others.

| reason       | of a Hold: what is waited for                            | of a Leave                                |
|--------------|----------------------------------------------------------|-------------------------------------------|
| idle         |                                                          | an instance is free, nothing better comes |
| full         |                                                          | the cap or the size held for is reached   |
| return       | clients just answered, who usually come straight back    |                                           |
| volley       | followers of a lone arrival, as history has it           |                                           |
| spacing      | the even share of the time until the next instance frees |                                           |
| return-over  |                                                          | that hold's time ended                    |
| volley-over  |                                                          | that hold's time ended                    |
| spacing-over |                                                          | that hold's time ended                    |
| oldest       |                                                          | the volley that came first, not the next  |
| deadline     |                                                          | a smaller batch, so the head is saved     |
| probe        |                                                          | a size not tried, or refused often: learn |

Bounds of a hold, in seconds: `return` 0.8 of the server time that merging saves, counted from the answer, and up to
three times that while many come back one by one and the others need less than is saved; `volley` half of t(1);
`spacing` the time until the next instance frees; none ends after the head's deadline can be met, and none is tried when
it would be shorter than an event loop can time (`returns.MIN_HOLD`).
"""

import math
from collections.abc import Mapping
from typing import Final

from shoal.clock import EARLY
from shoal.core.batch import Batch
from shoal.core.cost import CostCurve
from shoal.core.cuts import GAP, even_share, oldest_first
from shoal.core.halves import Halves, at_most
from shoal.core.lessons import Ended, Lessons
from shoal.core.plan import Plan
from shoal.core.policy import ALONE, Decision, Fleet, Hold, Lane, Leave, Refuse
from shoal.core.request import Request
from shoal.core.returns import MIN_HOLD, Returns
from shoal.core.running import Running
from shoal.core.spread import Slot, even_wait, rows_for_one, slots_of
from shoal.core.triage import MARGIN, is_hopeless, is_in_time, triage
from shoal.core.volleys import Volleys, is_worth

SOON: Final = 2.0  # times t(1), or more after long batches: later after its answer a client is not coming back
SPAN: Final = 0.5  # times t(1): what comes this soon after a lone arrival belongs to its volley
RATE_OVER: Final = 8.0  # times t(1): the arrival rate is taken over about this long
LEAST_SPACING: Final = 0.02  # times t(1): shorter spacing is not worth a timer
CHEAP: Final = 0.25e-3  # seconds; so short a batch is not split: each batch more costs the front process about as much
TINY: Final = 2e-3  # seconds; a batch this short is not cut to let the oldest go first: another one costs about as much
LEAD: Final = 0.2e-3  # seconds before an instance needs its next batch that the batch is handed over
PROBE_AFTER: Final = 8  # refusals without a batch, after which one leaves although it looks too late


class Adaptive:
    """Knob-free batching; learns what batches cost and who comes back. `profile` ({rows: seconds}) starts it warm."""

    def __init__(self, limit: int = 256, profile: Mapping[int, float] | None = None) -> None:
        self.limit = limit
        self.curve = CostCurve(limit, profile)
        self.returns = Returns()
        self.volleys = Volleys()
        self.rate = 0.0  # rows a second
        self._rated = 0.0  # when the rate was last brought up to date
        self._running = Running()
        self._plan: Plan | None = None
        self._is_first = False  # the lane holds a lone arrival that nothing was decided about yet
        self._is_loop = False  # most answered groups come back whole
        self._is_only = False  # there is one instance
        self._returns_pay = False  # merging two lone clients pays
        self._last_deadline = -math.inf  # of all requests seen
        self._refused = 0  # since a batch left
        self._tries = 0  # rows of the size that the batch decided about is to try; 0: none
        self._turn = 0  # batches that have left
        self._lessons = Lessons()
        self._edges = self._lessons.edges
        self._halves = Halves(self.curve, self._edges)
        self._is_late = False  # what waits was to be sent ahead, and the batch before it ended sooner
        self._ahead_of: int | None = None  # the batch that what waits is to be sent ahead of

    @property
    def enough(self) -> int:
        """The best size, as far as it is known."""
        return self.curve.cap

    def arrived(self, request: Request, lane: Lane, fleet: Fleet, now: float) -> None:
        """Learn the rate, who came back, and which arrivals come close together."""
        if request.deadline < math.inf:
            self._note_deadline(request)
        table = self.curve.seconds
        if not table:
            return
        single = table[1]
        over = RATE_OVER * single
        rows = request.rows
        if now > self._rated:
            self.rate *= math.exp((self._rated - now) / over)
            self._rated = now
        self.rate += rows / over
        self.returns.arrived(request.client, now, SOON * single)
        if not self.volleys.followed(rows, now, SPAN * single) and fleet.idle and len(lane) == 1:
            self.volleys.opened(now)
            self._is_first = True
            self._plan = None

    def decide(self, lane: Lane, fleet: Fleet, now: float) -> Decision:
        """Leave at once, unless a return, a volley or even spacing is worth a bounded wait."""
        rows, curve = lane.rows, self.curve
        cap = curve.cap
        self._tries = 0
        if not curve.seconds:
            return Leave(min(rows, cap), "idle")
        if now <= self._last_deadline:
            verdict = self._saving(lane, fleet, now)
            if not isinstance(verdict, int):
                return verdict
            cap = verdict
        elif rows >= cap:
            cap = self._most(rows + self.returns.expected())
        reason = "idle"
        if rows >= cap:
            if 0 < curve.beyond <= rows and is_in_time(lane, curve.beyond, now + MARGIN * self._predict(curve.beyond)):
                return self._try(curve.beyond)
            reason = "full" if cap >= curve.cap else "deadline"
        else:
            plan = self._plan_for(lane, fleet, now)
            if plan is not None:
                if rows < plan.size and now < plan.until - EARLY:
                    return Hold(plan.until, plan.reason)
                reason = "full" if rows >= plan.size else plan.reason + "-over"
        if rows == 1:
            return ALONE if reason == ALONE.reason else Leave(1, reason)
        if self._is_single_wanted(lane, now):
            return self._try(1)
        if fleet.size > 1 or now <= self._last_deadline:
            return Leave(self._first_of(min(cap, self._wanted(rows, fleet, now))), reason)
        most = self._round_share(rows) if rows >= curve.cap else self._first_of(at_most(rows, self._half(lane)))
        most = cap if rows >= cap > curve.cap else most
        count = self._oldest(lane, most, now)
        return Leave(count, reason if count == most else "oldest")

    def ahead(self, lane: Lane, instance: str, now: float) -> float | None:
        """At once when the lane fills a batch or nobody else comes, else ready as the running one's inference ends."""
        runs = self._running.of(instance)
        self.returns.is_overlapped = True
        self._ahead_of = None
        if not runs or not self.curve.seconds:
            return None
        run = runs[0]
        if lane.rows >= self._most(lane.rows + run.rows):
            return now
        half = self._half(lane)
        if len(runs) > 1 or (not half and self._merge_beats_overlap(lane.rows, run.rows)):
            return None
        known = len(self.returns)  # connections of a pool come back as well as those that wait or run, and others too
        if self._is_loop and not self.returns.expected() and known <= len(lane) + self._running.requests:
            return now
        self._ahead_of = run.number
        edges, rows = self._edges, at_most(lane.rows, half)
        before, after = edges.before(rows), edges.after(rows)
        if after > self._predict(rows) - before - after:  # its answers take longest: more rows would save nothing
            return now
        # inference ends earlier than the batch: by its own answers, which keep the groups of a loop even, or, behind
        # another batch, by that one's
        last = run.rows if self._is_loop or not run.behind else run.behind
        return max(now, run.end - edges.after(last) - before - LEAD)

    def sent(self, batch: Batch, fleet: Fleet, now: float) -> None:
        """Predict when the instance will be free; there is time to learn now."""
        self._plan = None
        self._is_first = self._is_late = False
        self._refused, self._turn = 0, self._turn + 1
        if self._tries:
            self.curve.probed(self._tries)
        self._tries = 0
        self._is_only = fleet.size == 1
        self._learn()
        took = self._predict(batch.rows)
        if self._running.of(batch.instance):
            took = max(0.0, took - self._edges.hidden(batch.rows))
        self._running.begin(batch, took, fleet.size, now)

    def done(self, batch: Batch, now: float) -> None:
        """Note whom to expect back, and what the batch took; a failed batch teaches nothing.

        What follows from its time is left until the next batch is on its way, unless it is news: whoever has just been
        answered may ask again at once, and would wait for it.
        """
        self._plan = None
        self._is_late = batch.number == self._ahead_of
        took, behind = self._running.end(batch, now)
        if batch.stages is None:
            return
        self.returns.rode = took
        if self.returns.is_overlapped:
            self._halves.ended(batch.rows, behind, now)
        self._lessons.add(Ended(batch.rows, batch.stages, took, behind, now))
        self.returns.answered(batch.requests, batch.rows / max(1, len(batch)), now)
        if self.curve.is_young(batch.rows):
            self._learn()

    def retry_after(self, waiting: int, fleet: Fleet) -> float:
        """Give the time the waiting rows take, or a second while that is unknown."""
        return self._share(waiting) / max(1, fleet.size) if self.curve.seconds else 1.0

    def is_hopeless(self, request: Request, ahead: int, fleet: Fleet, now: float) -> bool:
        """Ask the learned cost of the rows ahead and of its own."""
        hidden = self._edges.hidden(ahead)
        return is_hopeless(self.curve, request.deadline - now, ahead, request.rows, fleet.size, hidden)

    def profile(self) -> dict[int, float]:
        """Give the learned seconds by rows: to show, and to keep with the model for a warm start."""
        self._learn()
        return self.curve.profile()

    def describe(self) -> dict[str, object]:
        """Tell the cap, the learned milliseconds by rows, the arrival rate and who comes back."""
        profile = self.profile()  # first: it learns what there is to learn
        return {
            "rule": "adaptive",
            "batch_size_limit": self.limit,
            "cap": self.curve.cap,
            "milliseconds": {rows: round(1e3 * seconds, 4) for rows, seconds in profile.items()},
            "rows_per_second": round(self.rate, 1),
            "is_closed_loop": self._is_loop,
            "strangers": round(self.returns.strangers, 3),
            "connections": len(self.returns),
        }

    # -- holds -----------------------------------------------------------------------------------------------------

    def _plan_for(self, lane: Lane, fleet: Fleet, now: float) -> Plan | None:
        """Give the hold in force for a lane, brought up to date, or a new one; None: leave."""
        plan = self._plan
        head = lane[0]
        if plan is None or plan.group != head.group:
            plan = self._plan = self._look(lane, fleet, now)
        elif plan.reason == "spacing":
            plan.until = min(plan.until, now + self._spacing(lane.rows, fleet, now))
        elif plan.may_be_followed(lane.rows, now):
            more = self._plan_flow(lane, fleet, now)
            if more is None and self.returns.are_many_missing(lane.rows):
                more = self._plan_return(lane, fleet, now)  # the more have come, the more it saves
            plan = self._plan = more or plan
        if plan is not None and plan.until + MARGIN * self._predict(plan.size) > head.deadline:
            plan = self._plan = None
        return plan

    def _look(self, lane: Lane, fleet: Fleet, now: float) -> Plan | None:
        """Find a reason to hold."""
        is_first, self._is_first = self._is_first, False
        plan = None if self._is_late else self._plan_return(lane, fleet, now) or self._plan_flow(lane, fleet, now)
        if plan is None and is_first:
            plan = self._plan_volley(lane, fleet, now)
        if plan is None and fleet.size > 1:
            plan = self._plan_spacing(lane, fleet, now)
        return plan

    def _plan_return(self, lane: Lane, fleet: Fleet, now: float) -> Plan | None:
        returns = self.returns
        returns.expire(now, SOON * self.curve.seconds[1])
        if not returns.due:
            return None
        rows, both = lane.rows, lane.rows + returns.expected()
        size = at_most(self._wanted(both, fleet, now), self._half(lane))
        if size <= rows:
            return None
        total, since = self.curve.total if fleet.idle else self._share, returns.due[-1].since
        both = size if size < self.curve.cap else both
        apart, joint = total(rows) + total(both - rows), total(both)
        before = rows if lane[0].arrived < since else 0
        until = since + returns.worth(apart, joint, both - rows, before, now)
        return Plan(until, size, "return", lane[0].group, rows) if until > now + EARLY else None

    def _plan_flow(self, lane: Lane, fleet: Fleet, now: float) -> Plan | None:
        """Hold on where others are just coming back."""
        rows, due, total = lane.rows, self.returns.expected(), self.curve.total
        if not due or self._wanted(rows + due, fleet, now) < rows + due:
            return None
        until = self.returns.flows_until(total(rows) + total(due) - total(rows + due), now)
        return Plan(until, rows + due, "return", lane[0].group, rows) if until > now + EARLY else None

    def _plan_volley(self, lane: Lane, fleet: Fleet, now: float) -> Plan | None:
        more, until = self.volleys.to_come(SPAN * self.curve.seconds[1])
        if not more or until - now < MIN_HOLD:
            return None
        rows = lane.rows
        size = self._wanted(rows + more, fleet, now)
        if size <= rows or not is_worth(self.curve.seconds, rows, size, until - now):
            return None
        return Plan(until, size, "volley", lane[0].group, rows)

    def _plan_spacing(self, lane: Lane, fleet: Fleet, now: float) -> Plan | None:
        wait = self._spacing(lane.rows, fleet, now)
        return Plan(now + wait, self.curve.cap, "spacing", lane[0].group, lane.rows) if wait > 0.0 else None

    def _spacing(self, rows: int, fleet: Fleet, now: float) -> float:
        """Seconds by which to put off a batch that finds several instances idle; 0 in a closed loop."""
        if self._returns_pay or fleet.idle >= fleet.size:
            return 0.0
        table = self.curve.seconds
        wait = even_wait(table, self._slots(fleet, now), fleet.idle, rows, self.rate)
        return wait if wait > max(MIN_HOLD, LEAST_SPACING * table[1]) else 0.0

    def _merge_beats_overlap(self, rows: int, running: int) -> bool:
        """Whether holding for the running batch's clients takes less time than two batches that overlap."""
        if not self._is_loop:
            return False
        both, share = rows + running, self._share
        return self.returns.worth(share(rows) + share(running), self.curve.total(both), running) > 0.0

    def _share(self, rows: int) -> float:
        """Server time for `rows` while batches overlap."""
        return max(0.0, self.curve.total(rows) - self._edges.hidden(rows))

    def _learn(self) -> None:
        """Learn from the batches that have ended, if any have."""
        if self._lessons.learn(self.curve):
            self._is_loop = self.returns.is_loop()
            self._returns_pay = self.returns.worth(2.0 * self.curve.total(1), self.curve.total(2), 1) > 0.0

    # -- sizes -----------------------------------------------------------------------------------------------------

    def _wanted(self, rows: int, fleet: Fleet, now: float) -> int:
        """Rows for one batch out of `rows`: all up to the cap, or this instance's share of them."""
        if rows > 1 and fleet.size > 1 and self._predict(rows) > CHEAP:
            slots = self._slots(fleet, now)
            rows = rows_for_one(self.curve.seconds, slots, rows, self.rate, self._is_loop)
        return min(rows, self._most(rows))

    def _most(self, rows: int) -> int:
        """The most to send together of so many: the cap, or all of a closed loop of one instance with few more."""
        return self.curve.most(rows) if self._is_loop and self._is_only else self.curve.cap

    def _half(self, lane: Lane) -> int:
        """Half of a closed loop where the only instance does more in two batches that overlap than in one; else 0."""
        if not (self._is_loop and self._is_only and self.returns.is_overlapped):
            return 0
        return self._halves.half(lane.rows + self._running.rows + self.returns.expected(), self.returns.usual())

    def _is_single_wanted(self, lane: Lane, now: float) -> bool:
        """Whether one of the few that wait, and are all there are, is sent to learn what it takes; nothing cheap is."""
        rows, curve = lane.rows, self.curve
        if not curve.wants_single(rows) or curve.seconds[rows] <= CHEAP:
            return False
        return len(lane) == rows and now > self._last_deadline and not self.returns.expected()

    def _try(self, rows: int) -> Leave:
        self._tries = rows
        return Leave(rows, "probe")

    def _first_of(self, rows: int) -> int:
        """Rows to begin with of those that would leave together; what is cheap is not parted."""
        return self.curve.first_of(rows) if self.curve.seconds[rows] > CHEAP else rows

    def _round_share(self, rows: int) -> int:
        """Rows that the only instance starts with when there are enough: the cap, or an even share of a closed loop."""
        due = self.returns.expected()
        if not due and not self._is_loop:
            return self.curve.cap
        return min(rows, even_share(self.curve.seconds, rows + due + self._running.rows, self.curve.cap, self._turn))

    def _oldest(self, lane: Lane, rows: int, now: float) -> int:
        """Rows that the only instance starts with of so many: all of them, or the volley that came first."""
        table, whole = self.curve.seconds, self.curve.seconds[rows]
        if lane.rows != len(lane) or whole < TINY or lane[rows - 1].arrived - lane[0].arrived < GAP * whole:
            return rows
        if self._is_loop:  # its clients come together as well, but as those who come back
            return rows
        return oldest_first(table, [lane[index].arrived for index in range(rows)], now, self._lessons.load.price)

    def _slots(self, fleet: Fleet, now: float) -> list[Slot]:
        return slots_of(self._running.ends(), fleet.idle, fleet.size, now)

    def _predict(self, rows: int) -> float:
        table = self.curve.seconds
        return table[min(rows, self.limit)] if table else 0.0

    # -- deadlines -------------------------------------------------------------------------------------------------

    def _note_deadline(self, request: Request) -> None:
        self._last_deadline = max(self._last_deadline, request.deadline)
        plan = self._plan
        if plan is not None:
            plan.end_by(request.deadline - MARGIN * self._predict(plan.size))

    def _saving(self, lane: Lane, fleet: Fleet, now: float) -> Decision | int:
        """Refuse what cannot be saved, or give the most rows that save the head."""
        next_free = None
        if fleet.size > 1:
            slots = self._slots(fleet, now)
            next_free = slots[1][0] if len(slots) > 1 else None
        lost, rows = triage(lane, self.curve, now, next_free, self.rate)
        if not lost:
            return rows
        is_stuck = self._refused >= PROBE_AFTER and fleet.idle >= fleet.size and lane[0].deadline > now
        if is_stuck:  # the curve may be wrong, and only a batch can set it right
            return Leave(min(self.limit, lane[0].rows), "probe")
        self._refused += lost
        return Refuse([lane[index] for index in range(lost)])
