"""Search: decides what is measured next. It measures nothing, reads no clock, and always ends.

From the best setting known, one knob after the other is changed; the changed settings race. A race is successive
halving: all get a short look, the better half a longer one, until one is left, and those that the best known one beats
beyond doubt leave at once. Only a setting that had the longest look and was better takes the place of the best, so the
best known is never worse than the one before it.
"""

from collections.abc import Generator, Sequence

import msgspec

from shoal.tools.tune.goal import Merit, chance, gain
from shoal.tools.tune.setting import KNOBS, Setting, knob_label
from shoal.tools.tune.space import Space

TOP = 2  # the rung with the longest look
LAST = 3  # a second look of that length, at the end
PASSES = 3  # over all knobs
DOUBT = 0.05  # chance to be better, below which a setting leaves its race
RELEVANT = 0.01  # a setting that is better by less does not take the place of the best
FAR = 0.25  # a change that lost by more is not tried again from another base


class Trial(msgspec.Struct, frozen=True):
    """A setting and how long it is looked at: the rung."""

    setting: Setting
    rung: int


class Outcome(msgspec.Struct, frozen=True):
    """What came of a trial: how good it was, and how good it might have been."""

    trial: Trial
    merit: Merit
    draws: Sequence[Merit] = ()


Steps = Generator[Trial, Outcome, None]
Change = tuple[str, ...]  # the knobs that a candidate changes, and to what


class Search:
    """Ask `next` what to measure, `record` what came of it, until there is nothing more."""

    def __init__(self, default: Setting) -> None:
        self.default = default
        self.best = default  # of those that had the longest look
        self._outcomes: dict[Trial, Outcome] = {}
        self._given_up: set[Change] = set()  # lost by far, beyond doubt

    def begin(self) -> Trial:
        """Give what is measured before anything else."""
        return Trial(self.default, TOP)

    def record(self, outcome: Outcome) -> None:
        """Hear what came of a trial."""
        self._outcomes[outcome.trial] = outcome

    def explore(self, space: Space) -> Steps:
        """Give trial after trial; whoever runs them sends the outcome of each. It may be left at any moment."""
        for _ in range(PASSES):
            before = self.best
            for place in range(len(list(space.groups(self.best)))):
                candidates = list(space.groups(self.best))[place]
                yield from self._race([each for each in candidates if self._change(each) not in self._given_up])
            if self.best == before:
                return

    def closing(self) -> list[Trial]:
        """Give what is measured at the end: the best with each knob put back, then the best and the default again."""
        back = [self.best.with_knob(knob, self.default) for knob in self.changed]
        trials = [Trial(setting, TOP) for setting in dict.fromkeys(back) if setting != self.default]
        again = [Trial(self.best, LAST)] if self.best != self.default else []
        fresh = [trial for trial in trials if trial not in self._outcomes]
        return [*fresh, *again, Trial(self.default, LAST)]

    @property
    def changed(self) -> list[str]:
        """The knobs that stand otherwise than in the default."""
        return [knob for knob in KNOBS if not self.best.has_knob(knob, self.default)]

    def outcome(self, setting: Setting, rung: int = TOP) -> Outcome | None:
        """Tell what came of a trial; None if there was none."""
        return self._outcomes.get(Trial(setting, rung))

    def _race(self, pool: Sequence[Setting]) -> Steps:
        incumbent = self.outcome(self.best)
        if incumbent is None:
            return
        rung = 0
        while pool:
            found: list[Outcome] = []
            for setting in pool:
                trial = Trial(setting, rung)
                if trial not in self._outcomes:
                    self.record((yield trial))
                found.append(self._outcomes[trial])
            found.sort(key=lambda outcome: outcome.merit, reverse=True)
            if rung == TOP:
                self._crown(found, incumbent)
                return
            pool = [outcome.trial.setting for outcome in self._hopeful(found, incumbent)]
            rung = rung + 1 if len(pool) > 1 else TOP  # one that is left alone needs no more short looks

    def _hopeful(self, found: Sequence[Outcome], incumbent: Outcome) -> Sequence[Outcome]:
        """Those that may still win, the better half at most."""
        kept = []
        for outcome in found:
            if outcome.merit.rank >= 0 and chance(outcome.draws, incumbent.draws) >= DOUBT:
                kept.append(outcome)
            elif gain(outcome.merit, incumbent.merit) < -FAR:
                self._given_up.add(self._change(outcome.trial.setting))
        return kept[: (len(found) + 1) // 2]

    def _change(self, setting: Setting) -> Change:
        return tuple(f"{knob} {knob_label(setting, knob)}" for knob in KNOBS if not setting.has_knob(knob, self.best))

    def _crown(self, found: Sequence[Outcome], incumbent: Outcome) -> None:
        if found and gain(found[0].merit, incumbent.merit) > RELEVANT:
            self.best = found[0].trial.setting
