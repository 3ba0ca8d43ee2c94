"""Returns: who comes back after an answer, how soon, and how long it pays to wait for them.

Clients that send their next request as soon as they have an answer come back as a group when a batch ends. Each
connection is remembered by whether its last request came soon after the answer before it; the answered ones that do are
a group that is due. How long whole groups took is kept, and how long each client: of many one is often late, and to
wait for it or to wait for nobody are both wrong. A hold is as long as that history makes worth its price.
"""

import math
from bisect import bisect_left
from collections import deque
from collections.abc import Hashable, Sequence
from typing import Final, NamedTuple

from shoal.core.comeback import MANY, TICK, Comebacks, Group
from shoal.core.request import Request, State

HISTORY: Final = 32  # groups remembered
SINGLES: Final = 256  # returns of single clients remembered
LATE: Final = 1e9  # seconds, in place of how long a group took of which some came back and others not in time
MOST: Final = 0.8  # of the clients, for whom a hold may be at the least
SHARES: Final = (MOST, 0.9, 0.95, 0.98)  # of the clients, for which a hold may be
CONNECTIONS: Final = 65_536  # connections remembered at most
SILENCE: Final = 60.0  # seconds after which a silent connection may be forgotten
SHARE: Final = 0.8  # of the server time a merge saves, the most a hold may last
LONGER: Final = 3.0  # times that, the most it may last while many come back one after the other
LOOP: Final = 0.6  # share of groups that must come back whole for the traffic to count as a closed loop
RARE: Final = 0.01  # share of requests that may come just too late at no regard
SOME: Final = 0.25  # share of requests that come just too late up to which they are some, and above it many
BEHIND: Final = 1.5  # batches for which some of them are taken to wait,
FAR_BEHIND: Final = 2.0  # and many
PART: Final = 0.25  # of the time that a batch takes, within which its clients come back soon
USUAL: Final = 0.9  # share of the newcomers that must have come straight back for others to be expected to
FEW: Final = 0.05  # of the clients that go round, who may have been left behind and soon ride with the others again
LASTING: Final = 1.02  # times what gets done apart that must get done together for those who ride apart to meet
WORTH: Final = 1.08  # times what gets done while all are waited for that must get done with some left behind
GOOD: Final = 0.7  # holds that gain this share of the best gain are as good; the longest of them is taken
SPARE: Final = 2.0  # times the longest return counted on: one who is late by little more would cost a whole batch
STRANGE: Final = 0.02  # weight of the newest arrival in the share of arrivals nobody waited for
MIN_HOLD: Final = 100e-6  # seconds; an event loop cannot time less, so for models this cheap nothing is held


class Connection:
    """What is remembered of one client."""

    __slots__ = ("answered", "first", "group", "is_quick", "owed", "strange")

    def __init__(self, first: int = 0, strange: float = 1.0) -> None:
        self.first = first  # the number of its first request, until it is known whether it comes back; 0: it is
        self.strange = strange  # how strange that one was taken to be, 0 to 1
        self.answered = -math.inf
        self.is_quick = False  # its last request came soon after the answer before it
        self.group: Group | None = None  # where it is expected back
        self.owed = 0  # how often


class Returns:
    """The connections of one model, the groups due, and the history of their return."""

    def __init__(self) -> None:
        self.due: deque[Group] = deque()
        self.strangers = 1.0  # share of arrivals that no group expected
        self._history: deque[float] = deque([math.inf] * 4, maxlen=HISTORY)
        self._sorted: list[float] | None = None
        self._groups = 0  # noted so far
        self._singles: deque[float] = deque(maxlen=SINGLES)
        self._within: list[float] | None = None  # by share: seconds within which so many came back
        self._young: dict[Hashable, Connection] = {}  # seen in this period
        self._old: dict[Hashable, Connection] = {}  # seen in the one before; what is in neither is forgotten
        self._comebacks = Comebacks()
        self._newcomers = 0.0  # share of new clients that come straight back after their first answer
        self._turned = -math.inf  # when this period began
        self._arrivals = 0
        self.is_overlapped = False  # batches overlap, so that clients that ride apart lose little
        self.rode = 0.0  # seconds that the batch lasted whose clients were answered last

    def __len__(self) -> int:
        return len(self._young) + len(self._old)

    def arrived(self, client: Hashable, now: float, soon: float) -> None:
        """Note a request; it is a quick return when it comes within `soon` of the answer before it."""
        due = self.due
        if not self.is_overlapped and PART * self.rode > soon:  # as `_soon` has it, without a call for every request
            soon = PART * self.rode
        if due and now - due[0].since > soon:
            self.expire(now, soon)
        self._arrivals += 1
        group, newcomer, strange = None, None, 1.0
        if client is not None:
            connection = self._young.get(client) or self._old.get(client)
            if connection is None:
                strange = self._meet(client, now)
            else:
                connection.is_quick = now - connection.answered <= soon
                if connection.first and connection.answered > -math.inf:
                    newcomer = connection
                    self._newcomers += STRANGE * (connection.is_quick - self._newcomers)
                group = connection.group
                if group is not None:
                    connection.owed -= 1
                    if not connection.owed:
                        connection.group = None
        is_due = group is not None and group.missing > 0
        if newcomer is not None and newcomer.is_quick:
            self._welcome(newcomer)
        else:
            self.strangers += STRANGE * ((0.0 if is_due else strange) - self.strangers)
        if newcomer is not None:
            newcomer.first = 0
        if group is not None and is_due:
            group.came(now)
            group.newcomers -= newcomer is not None
            self._singles.append(now - group.since)
            if not group.missing:
                self._note(now - group.since)
                self._comebacks.note(group, now)
                due.remove(group)

    def answered(self, requests: Sequence[Request], each: float, now: float) -> None:
        """Note the clients of a batch that ended; the quick ones among them are due."""
        self._turn(now)
        young, old = self._young, self._old
        group = Group(now, each)
        for request in requests:
            client = request.client
            if client is None or request.state is State.WITHDRAWN:
                continue
            connection = young.get(client)
            if connection is None:
                connection = young[client] = old.pop(client) if client in old else Connection()
            connection.answered = now
            if connection.is_quick or (connection.first and self._newcomers > USUAL):
                group.missing += 1
                group.newcomers += connection.first > 0
                connection.owed = connection.owed + 1 if connection.group is group else 1
                connection.group = group
        if group.missing:
            group.clients = group.missing
            self.due.append(group)

    def expire(self, now: float, soon: float) -> None:
        """Stop expecting groups whose time is over."""
        due, soon = self.due, self._soon(soon)
        while due and now - due[0].since > soon:
            group = due.popleft()
            self._singles.extend([math.inf] * group.missing)
            self._newcomers *= (1.0 - STRANGE) ** group.newcomers
            group.missing = 0
            self._note(math.inf if group.is_absent else LATE)
            if not group.is_absent:
                self._comebacks.note(group, now)

    def expected(self) -> int:
        """Rows that are due."""
        rows = 0.0
        for group in self.due:
            rows += group.missing * group.each
        return round(rows)

    def are_many_missing(self, rows: int) -> bool:
        """Whether of those who are due back more are missing, where `rows` have come, than a hold for most leaves."""
        return not self.is_overlapped and rows < MOST * (rows + self.expected())

    def flows_until(self, saved: float, now: float) -> float:
        """Until when to hold on for those just coming back one after the other, where that saves so much; 0: not so.

        The time that has passed is spent; what counts is that the others need less of it, at this rate, than they save.
        """
        if self.is_overlapped or not self.due or self.due[-1].clients < MANY:
            return 0.0
        group, most = self.due[-1], SHARE * saved
        if most < MIN_HOLD:
            return 0.0
        until = min(group.flows_until(), group.last + most, group.since + LONGER * most)
        return until if until > now and group.rest() < most else 0.0

    def is_loop(self) -> bool:
        """Whether most groups came back whole."""
        whole = sum(took < LATE for took in self._history)
        return whole >= LOOP * len(self._history)

    def usual(self) -> float:
        """Seconds within which half of the groups came back that did so whole; 0: none has."""
        took = self._in_order()
        return took[bisect_left(took, LATE) // 2] if took[0] < LATE else 0.0

    def worth(self, apart: float, joint: float, riders: int, before: int = 0, now: float = 0.0) -> float:
        """Seconds after an answer for which it pays to hold a batch for `riders` rows that are due; 0: not at all.

        `before` rows waited when the riders were answered. Who meets waits for a whole batch more, and so do some when
        they part again. So they meet where enough more gets done together by how long all took to come back when they
        last were, at once, and else stay apart; where that is not known, or they are few, as if all had just come.
        """
        whole, most = self._waits(apart, joint, riders)
        both = before + riders
        if most or self.is_overlapped or self.strangers > RARE or not FEW * both <= before <= (1.0 - FEW) * both:
            return most or whole
        took, longest = self._comebacks.of(both, now), SHARE * (apart - joint)
        if took is None:
            return whole
        pays = longest >= MIN_HOLD and apart > LASTING * (joint + took)
        return whole or longest if pays else 0.0

    def _waits(self, apart: float, joint: float, riders: int) -> tuple[float, float]:
        """Seconds that pay to wait for all riders, and for most of them where that is better by far, else 0."""
        took = self._in_order()
        leavers = 0 if self.is_overlapped else len(took) - bisect_left(took, math.inf)
        whole = hold_for(took, apart, joint, riders, self.strangers, leavers)
        if riders < MANY or self._groups < HISTORY or len(self._singles) < SINGLES:
            return whole.seconds, 0.0
        if self._within is None:
            singles = sorted(self._singles)
            self._within = [singles[int(share * SINGLES)] for share in SHARES]
        most = hold_for_most(self._within, took, apart, joint, self.strangers)
        return whole.seconds, most.seconds if 1.0 + most.gain > WORTH * (1.0 + whole.gain) else 0.0

    def _soon(self, least: float) -> float:
        """Seconds within which who comes back is soon: after a long ride with many they are longer on their way."""
        return least if self.is_overlapped else max(least, PART * self.rode)

    def _in_order(self) -> list[float]:
        """How long groups took, shortest first."""
        if self._sorted is None:
            self._sorted = sorted(self._history)
        return self._sorted

    def _meet(self, client: Hashable, now: float) -> float:
        """Remember a new client, where it matters before its first answer; gives how strange it is."""
        if self.is_overlapped:
            return 1.0
        self._turn(now)
        strange = 1.0 - self._newcomers
        self._young[client] = Connection(self._arrivals, strange)
        return strange

    def _welcome(self, newcomer: Connection) -> None:
        """A new client has come straight back: neither this request is a stranger's nor, in hindsight, its first."""
        stays = 1.0 - STRANGE
        since_then = stays ** (self._arrivals - newcomer.first)
        self.strangers = max(0.0, stays * self.strangers - STRANGE * newcomer.strange * since_then)

    def _note(self, took: float) -> None:
        self._groups += 1
        self._history.append(took)
        self._sorted = self._within = None

    def _turn(self, now: float) -> None:
        """Begin a new period when the last is long or crowded: whoever was silent for a whole one is forgotten."""
        if now - self._turned >= SILENCE or len(self._young) >= CONNECTIONS // 2:
            self._young, self._old, self._turned = {}, self._young, now


class Wait(NamedTuple):
    """A hold, and what it gains: how much more the server gets done."""

    gain: float
    seconds: float


def hold_for(
    took: Sequence[float], apart: float, joint: float, riders: int, strangers: float, leavers: int = 0
) -> Wait:
    """How long to hold when served `apart` the rows cost that many seconds and merged only `joint`.

    `took` is how long groups needed to return, shortest first, inf for those that never did; each is a candidate. The
    expected server time must fall, and requests that come just too late, stragglers or strangers, must be rare or
    outweighed by the gain; `leavers` of the groups come no more at all, and so not too late. A hold lasts at most SHARE
    of what the merge saves.
    """
    most = SHARE * (apart - joint)
    if most < MIN_HOLD:
        return Wait(0.0, 0.0)
    count, waited, top = len(took), 0.0, 0.0
    candidates: list[tuple[float, float]] = []
    for index, wait in enumerate(took):
        if wait > most:
            break
        waited += wait
        hit = (index + 1) / count
        miss = 1.0 - hit
        spent = waited / count + miss * (wait + TICK) + hit * joint + miss * apart
        gain = apart / spent - 1.0
        late = (miss - leavers / count) / riders + strangers  # share of requests that would wait a whole batch
        if gain > 0.0 and _is_borne(late, gain, wait, joint, apart):
            candidates.append((gain, wait))
            top = max(top, gain)
    return Wait(top, max((min(SPARE * wait, most) for gain, wait in candidates if gain > GOOD * top), default=0.0))


def hold_for_most(within: Sequence[float], took: Sequence[float], apart: float, joint: float, strangers: float) -> Wait:
    """How long to hold for most of many clients: SHARES of them come back `within` so long.

    The others ride with the next: as much is saved, but only by those who are there. All are back in `took`, and nobody
    is waited for any more.
    """
    most = SHARE * (apart - joint)
    best = Wait(0.0, 0.0)
    if most < MIN_HOLD:
        return best
    for share, wait in zip(SHARES, within, strict=True):
        if wait > most:
            break
        waited = sum([whole if whole <= wait else wait + TICK for whole in took]) / len(took)
        gain = apart / (waited + joint + (apart - joint) * (1.0 / share - 1.0)) - 1.0
        if gain > best.gain and _is_borne(1.0 - share + strangers, gain, wait, joint, apart):
            best = Wait(gain, wait)
    return best


def _is_borne(late: float, gain: float, wait: float, joint: float, apart: float) -> bool:
    """Whether this gain makes up for the share of requests that come too `late` for a hold, and wait longer by it."""
    behind = BEHIND if late <= SOME else FAR_BEHIND
    return late <= RARE or gain + 1.0 > (wait + behind * joint) / apart
