"""Search: decides what is looked at next. It measures nothing, reads no clock, and always ends.

From the best setting known, one knob after the other is changed, and the changed settings race: each gets a look, and
those that chance may have kept below the best get more of them, in turn with the best. The first pass over the knobs
is quick; what it left in doubt is asked again, longer, as far as time goes. Looks at one setting are taken
together, and settings that share a knob lend each other weight. In the end the few that may be best are looked at in
turn with the default, round after round, and these fresh looks alone say what the best is worth: of many noisy figures
the highest is always too high.
"""

from collections.abc import Iterator, Sequence

from shoal.tools.tune.goal import Merit
from shoal.tools.tune.looks import Looks
from shoal.tools.tune.setting import KNOBS, Setting, knob_label
from shoal.tools.tune.space import Space

AGAIN = 2  # settings of a race that may be looked at again
QUICK, THOROUGH = (3, 0.5), (6, 1.0)  # looks at one setting at most, and how far below the best it may be, of the doubt
PASSES = (QUICK, THOROUGH, THOROUGH)  # over all knobs; the first is quick, so that each knob has its turn
RELEVANT = 0.01  # a setting that is better by less does not take the place of the best
ALIKE = 0.03  # settings that differ by less are equally good
FAR = 0.25  # a change that lost by more is not tried again from another base
FINALISTS = 3  # beside the default
ROUNDS = 40  # of the finals, at most
ENOUGH = 2  # rounds after which those that cannot win leave

Change = tuple[str, ...]  # the knobs that a candidate changes, and to what


class Search:
    """Look at what `explore` and then `finals` give; `record` each before the next is asked for."""

    def __init__(self, default: Setting) -> None:
        self.default = default
        self.best = default
        self.looks = Looks()  # all of them
        self.last = Looks()  # those of the finals
        self.is_final = False
        self._pass = QUICK
        self._given_up: set[Change] = set()  # lost by far

    def record(self, setting: Setting, merit: Merit) -> None:
        """Hear what came of a look."""
        self.looks.add(setting, merit)
        if self.is_final:
            self.last.add(setting, merit)

    def explore(self, space: Space) -> Iterator[Setting]:
        """Give setting after setting; the default has been looked at. It may be left at any moment."""
        for self._pass in PASSES:
            before = self.best
            for place in range(len(list(space.groups(self.best)))):
                candidates = list(space.groups(self.best))[place]
                yield from self._race([each for each in candidates if self._change(each) not in self._given_up])
            if self._pass is not QUICK and self.best == before:
                return

    def finals(self) -> Iterator[Setting]:
        """Give what is looked at in the end, the default last in every round. It may be left at any moment."""
        running = self.finalists()
        self.is_final = True
        for number in range(1, ROUNDS + 1):
            for setting in running:
                yield setting
                self._crown()
            running = self._left(running) if number >= ENOUGH else running
            if len(running) < 2 or (number >= ENOUGH and self._is_decided(running)):
                return

    def closing(self) -> Iterator[Setting]:
        """Give what is looked at after the finals, to tell what each knob of the best bought."""
        self.is_final = False
        yield from (each for each in self.put_back().values() if not self.looks.count(each))

    def finalists(self) -> list[Setting]:
        """Give those that may be best, as far as one can tell; then the default."""
        ranked = self.looks.ranked()
        near = [each for each in ranked if self.looks.gain(each, ranked[0]) >= -self.looks.doubt(each, ranked[0])]
        return [*[each for each in near if each != self.default][:FINALISTS], self.default]

    @property
    def changed(self) -> list[str]:
        """The knobs that stand otherwise than in the default."""
        return [knob for knob in KNOBS if not self.best.has_knob(knob, self.default)]

    def put_back(self) -> dict[str, Setting]:
        """Give the best with each changed knob put back alone, by knob."""
        return {knob: self.best.with_knob(knob, self.default) for knob in self.changed}

    def worth(self, setting: Setting) -> float:
        """How much better than the default it is, as a share: by the finals, if both were in them."""
        return self._judged(setting).measured_gain(setting, self.default)

    def doubt(self, setting: Setting) -> float:
        """How much of that chance alone may have made; noise is known best from all looks there were."""
        judged = self._judged(setting)
        return self.looks.doubt_of(judged.count(setting), judged.count(self.default))

    def _judged(self, setting: Setting) -> Looks:
        return self.last if self.last.count(setting) and self.last.count(self.default) else self.looks

    def _race(self, pool: Sequence[Setting]) -> Iterator[Setting]:
        looks = self.looks
        for setting in pool:
            if not looks.count(setting):
                yield setting
            if looks.gain(setting, self.best) < -max(FAR, looks.doubt(setting, self.best)):
                self._given_up.add(self._change(setting))
        ranked = [each for each in looks.ranked() if each in pool]
        for setting in ranked[:AGAIN]:
            yield from self._duel(setting)

    def _duel(self, setting: Setting) -> Iterator[Setting]:
        """Look at one and at the best in turn until it is plain which is better, or there were enough looks."""
        looks, (most, below) = self.looks, self._pass
        while (
            -below * looks.doubt(setting, self.best) < looks.gain(setting, self.best) < looks.doubt(setting, self.best)
        ):
            if looks.count(setting) >= most:
                break
            yield setting
            if looks.count(self.best) < looks.count(setting):
                yield self.best
        if looks.gain(setting, self.best) > RELEVANT:
            self.best = setting

    def _crown(self) -> None:
        """Take the best of the finals once each has had a look there."""
        ranked = [each for each in self.looks.ranked() if self.last.count(each)]
        if ranked and self.last.count(self.default):
            self.best = ranked[0]

    def _left(self, running: Sequence[Setting]) -> list[Setting]:
        """Those of the finals that may still be best; the default stays, for the others are compared with it."""
        looks = self.looks
        return [
            each
            for each in running
            if each == self.default or looks.gain(each, self.best) > -looks.doubt(each, self.best)
        ]

    def _is_decided(self, running: Sequence[Setting]) -> bool:
        """Whether the best is known, or as good as those that are left, and whether it is better than the default."""
        looks = self.looks
        others = [each for each in running if each not in (self.best, self.default)]
        is_alike = all(abs(looks.gain(each, self.best)) + looks.doubt(each, self.best) < ALIKE for each in others)
        return is_alike and (self.best == self.default or abs(self.worth(self.best)) > self.doubt(self.best))

    def _change(self, setting: Setting) -> Change:
        return tuple(f"{knob} {knob_label(setting, knob)}" for knob in KNOBS if not setting.has_knob(knob, self.best))
