"""What may become of a request, by its kind and by what was done to its model meanwhile. Pure."""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import Enum

from shoal.config.model import ModelConfig
from tests.chaos.requests import CUT, LEFT, NO_ANSWER, Ask, End


class Verdict(Enum):
    """What an end was worth."""

    RIGHT = "right"
    ALLOWED = "allowed"  # an error that this request may get
    LEFT = "left"  # by the harness
    LOST = "lost"
    WRONG = "wrong"  # an answer, but not this request's
    REFUSED = "refused"  # an error that it may not get


GOOD = (Verdict.RIGHT, Verdict.ALLOWED, Verdict.LEFT)


@dataclass(slots=True)
class Incident:
    """Something the harness did to a model: from when to when requests may have met it."""

    model: str  # with a version where only that is meant
    what: str
    began: float
    ended: float


class Incidents:
    """All of them."""

    def __init__(self) -> None:
        self._by_model: dict[str, list[Incident]] = {}

    def add(self, model: str, what: str, began: float, ended: float | None = None) -> Incident:
        """Note one; without an end it goes on until somebody sets that."""
        incident = Incident(model, what, began, began if ended is None else ended)
        self._by_model.setdefault(model, []).append(incident)
        return incident

    def met(self, ask: Ask, whats: Iterable[str], times: int = 1) -> bool:
        """Whether the request lived while so many of these were done to its model."""
        wanted = set(whats)
        names = (ask.model, f"{ask.model}/{ask.version}")
        return times <= sum(
            incident.what in wanted and ask.began <= incident.ended and incident.began <= ask.ended
            for name in names
            for incident in self._by_model.get(name, ())
        )


@dataclass(frozen=True, slots=True)
class Rule:
    """The errors of one kind of request: those always allowed, and those only where something was done."""

    always: frozenset[int] = frozenset()
    under: tuple[tuple[int, tuple[str, ...]], ...] = ()
    must_fail: bool = False  # an answer would be a wonder
    must_hint: bool = False  # a refusal says when to come back


KILLS = ("kill", "template", "stop")
DEATHS = ("kill", "template")  # each ends a worker, with what it holds
ATTEMPTS = ModelConfig(name="m", path="m.py").max_attempts
RULES: dict[str, Rule] = {
    # a stream that has begun cannot be run again: its client sees it cut, and only then
    "stream": Rule(under=((CUT, KILLS), (500, KILLS))),
    "grpc stream": Rule(under=((CUT, KILLS), (500, KILLS))),
    # what has side effects is never run twice
    "ledger": Rule(under=((500, KILLS),)),
    "grpc ledger": Rule(under=((500, KILLS),)),
    "deadline": Rule(always=frozenset({504})),
    "grpc deadline": Rule(always=frozenset({504})),
    "front killed": Rule(always=frozenset({CUT}), must_fail=True),
    "late": Rule(always=frozenset({504})),  # the ledger tells whether it was run after its time
    "raise": Rule(always=frozenset({500}), must_fail=True),
    "memory": Rule(always=frozenset({500, 507}), must_fail=True),
    "segv": Rule(always=frozenset({500}), must_fail=True),
    "hang": Rule(always=frozenset({504}), must_fail=True),
    "burst": Rule(always=frozenset({503}), must_hint=True),
    "beside the hung": Rule(under=((504, ("stop",)),)),
    "version": Rule(under=((404, ("absent",)), (503, ("absent",)))),
    "grpc version": Rule(under=((404, ("absent",)), (503, ("absent",)))),
}
NOTHING_ELSE = Rule()  # every other kind: the right answer, whatever is done to the server
GIVEN_UP = f"given to at most {ATTEMPTS} of them"  # for any kind, if so many workers were killed while it lived


def judge(ask: Ask, end: End, incidents: Incidents) -> Verdict:
    """Say what this end is worth."""
    rule = RULES.get(ask.kind, NOTHING_ELSE)
    if end.status == LEFT:
        return Verdict.LEFT
    if end.status == NO_ANSWER:
        return Verdict.LOST
    if end.status == 200:
        return Verdict.RIGHT if not rule.must_fail and ask.is_right(end.body) else Verdict.WRONG
    is_allowed = end.status in rule.always or any(
        status == end.status and incidents.met(ask, whats) for status, whats in rule.under
    )
    is_allowed = is_allowed or (end.status == 500 and GIVEN_UP in end.words and incidents.met(ask, DEATHS, ATTEMPTS))
    if is_allowed and not (rule.must_hint and not end.has_hint):
        return Verdict.ALLOWED
    return Verdict.LOST if end.status == CUT else Verdict.REFUSED
