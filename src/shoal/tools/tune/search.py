"""Search: decides what is looked at next. It measures nothing, reads no clock, and always ends.

All looks together say what is believed of every setting (`Belief`). The one believed best is compared with the one by
which most might be won beside it, and the look is taken that tells most about the two, for what it costs. It ends when
little can be won by any. In the end the few that may be best are looked at in turn with the default, round after
round, and these fresh looks alone say what the best is worth: of many noisy figures the highest is always too high.
"""

from collections.abc import Callable, Iterator, Sequence
from math import log, sqrt

from shoal.tools.tune.belief import Belief, hoped
from shoal.tools.tune.goal import Merit
from shoal.tools.tune.kin import WHOLE, Family, liking
from shoal.tools.tune.looks import Looks
from shoal.tools.tune.setting import KNOBS, Setting
from shoal.tools.tune.space import Space

MOST = 200  # looks before the finals
LITTLE = 0.003  # as a share: where no setting may be expected to bring more, the search ends
RELEVANT = 0.01  # a setting that is better by less does not take the place of the default
ALIKE = 0.03  # settings that differ by less are equally good
MISSED = 0.1  # as a share: how far below the best is what misses a goal, however little
FAILED = 1.0  # and what fails
LESS = 0.3  # of how far a setting is below the best: so much less it says of the best
FINALISTS = 3  # beside the default
ROUNDS = 8  # of the finals, at most
ENOUGH = 2  # rounds after which those that cannot win leave

Cost = Callable[[Setting], float]


class Search:
    """Look at what `explore` and then `finals` give; `record` each before the next is asked for."""

    def __init__(self, default: Setting) -> None:
        self.default = default
        self.best = default
        self.looks = Looks()  # all of them
        self.last = Looks()  # those of the finals
        self.is_final = False
        self._numbers = {default: 0}  # all settings there are
        self._family = Family([default])
        self._believed: Belief | None = None  # None: not worked out since the latest look

    def record(self, setting: Setting, merit: Merit) -> None:
        """Hear what came of a look."""
        self._believed = None
        if setting not in self._numbers:
            self._know([*self._numbers, setting])
        self.looks.add(setting, merit)
        if self.is_final:
            self.last.add(setting, merit)

    def explore(self, space: Space, cost: Cost = lambda setting: 1.0) -> Iterator[Setting]:
        """Give setting after setting; the default has been looked at. It may be left at any moment."""
        self._know([self.default, *space.grid()])
        for _ in range(MOST):
            setting = self._next(cost)
            if setting is None:
                return
            yield setting
            self._crown(self.ranked())

    def finals(self) -> Iterator[Setting]:
        """Give what is looked at in the end, the default last in every round. It may be left at any moment."""
        running = self.finalists()
        self.is_final = True
        for number in range(1, ROUNDS + 1):
            for setting in running:
                yield setting
                if self.last.count(self.default):
                    self._crown([each for each in self.ranked() if self.last.count(each)])
            running = self._left(running) if number >= ENOUGH else running
            if len(running) < 2 or (number >= ENOUGH and self._is_decided(running)):
                return

    def closing(self) -> Iterator[Setting]:
        """Give what is looked at after the finals, to tell what each knob of the best bought."""
        self.is_final = False
        yield from (each for each in self.put_back().values() if not self.looks.count(each))

    def ranked(self) -> list[Setting]:
        """Give all settings that answered, the best first by all that is known."""
        found = [setting for setting in self._numbers if self.looks.merit(setting).rank >= 0]
        means, numbers = self._belief().means, self._numbers
        return sorted(found, key=lambda each: (self.looks.merit(each).rank, means[numbers[each]]), reverse=True)

    def finalists(self) -> list[Setting]:
        """Give those that may be best, as far as one can tell; then the default."""
        ranked = self.ranked()
        rank = self.looks.merit(ranked[0]).rank if ranked else 0
        near = [each for each in ranked if self.looks.merit(each).rank == rank and self._hope(each, ranked[0]) > 0.001]
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

    def _know(self, settings: Sequence[Setting]) -> None:
        known = list(dict.fromkeys([*settings, *self._numbers]))
        self._numbers = {setting: number for number, setting in enumerate(known)}
        self._family = Family(known)
        self._believed = None

    def _belief(self) -> Belief:
        """Work out what all looks say together."""
        if self._believed is None:
            likings = [liking(setting, self.default) for setting in self._numbers]
            belief = Belief(likings, [WHOLE] * len(likings), self._family)
            heights, noise = self._heights(), self.looks.noise
            top = max(heights.values(), default=0.0)
            for setting, height in heights.items():
                variance = noise**2 / self.looks.count(setting) + (LESS * (top - height)) ** 2
                belief.learn(self._numbers[setting], height, variance)
            self._believed = belief
        return self._believed

    def _heights(self) -> dict[Setting, float]:
        """How good each setting was in its looks, on one scale, whatever came of them; the default's is about 0."""
        merits = {each: self.looks.merit(each) for each in self._numbers if self.looks.count(each)}
        rank = max((merit.rank for merit in merits.values()), default=0)
        kept = {each: merit.value if rank else 1 / (1 - merit.value) for each, merit in merits.items() if merit.rank == rank}
        middle = kept.get(self.default) or max(kept.values(), default=1.0)
        found = {each: log(max(value, 1e-9) / middle) for each, value in kept.items()}
        top = max(found.values(), default=0.0)
        for each, merit in merits.items():
            if each not in found:
                found[each] = top - (FAILED if merit.rank < 0 else MISSED + log(1 - merit.value))
        return found

    def _next(self, cost: Cost) -> Setting | None:
        """What to look at: it tells most of who is better, the one believed best or the one that may be."""
        belief, looks = self._belief(), self.looks
        settings = list(self._numbers)
        live = [n for n, each in enumerate(settings) if not looks.count(each) or looks.merit(each).rank >= 0]
        if not live:
            return None
        means, variances = belief.means, belief.variances
        lead = max(live, key=lambda n: means[n])
        with_lead = belief.shared(lead)
        hopes = {n: hoped(means[n] - means[lead], _deviation(variances, with_lead, n, lead)) for n in live if n != lead}
        rival = max(hopes, key=lambda n: hopes[n], default=lead)
        if rival == lead or (hopes[rival] < LITTLE and looks.count(settings[lead])):
            return None
        if not looks.count(settings[lead]):
            return settings[lead]
        with_rival, noise = belief.shared(rival), looks.noise

        def told(n: int) -> float:
            blur = noise**2 + (LESS * (means[lead] - means[n])) ** 2
            return (with_lead[n] - with_rival[n]) ** 2 / (variances[n] + blur) / max(1e-9, cost(settings[n]))

        return settings[max(live, key=told)]

    def _hope(self, setting: Setting, over: Setting) -> float:
        """What may be expected of one beside another, as a share."""
        belief, one, other = self._belief(), self._numbers[setting], self._numbers[over]
        ahead = belief.means[one] - belief.means[other]
        return hoped(ahead, _deviation(belief.variances, belief.shared(other), one, other))

    def _gain(self, setting: Setting, over: Setting) -> tuple[float, float]:
        belief, one, other = self._belief(), self._numbers[setting], self._numbers[over]
        ahead = belief.means[one] - belief.means[other]
        return ahead, _deviation(belief.variances, belief.shared(other), one, other)

    def _crown(self, ranked: Sequence[Setting]) -> None:
        """Take the first as the best, unless it is little better than the default."""
        if ranked:
            is_little = self.default in ranked and self._gain(ranked[0], self.default)[0] <= RELEVANT
            is_same = self.looks.merit(ranked[0]).rank == self.looks.merit(self.default).rank
            self.best = self.default if is_little and is_same else ranked[0]

    def _left(self, running: Sequence[Setting]) -> list[Setting]:
        """Those of the finals that may still be best; the default stays, for the others are compared with it."""
        return [each for each in running if each in (self.default, self.best) or self._hope(each, self.best) > 0.001]

    def _is_decided(self, running: Sequence[Setting]) -> bool:
        """Whether the best is known, or as good as those that are left, and whether it is better than the default."""
        others = [each for each in running if each not in (self.best, self.default)]
        is_known = all(self._hope(each, self.best) < 0.002 for each in others)
        return is_known and (self.best == self.default or abs(self.worth(self.best)) > self.doubt(self.best))


def _deviation(variances: Sequence[float], shared: Sequence[float], one: int, other: int) -> float:
    return sqrt(max(0.0, variances[one] + variances[other] - 2 * shared[one]))
