"""Effects: what each knob does on the whole, so that looks at settings that share a knob lend each other weight."""

from collections.abc import Mapping
from math import exp, log

from shoal.tools.tune.setting import FIELDS, Setting

RIDGE = 1.0  # looks' worth of belief that a knob's value does nothing
OWN = 0.03  # by which a setting differs from what its knobs do on the whole: a standard deviation
NEAR = 0.7  # of the best: what is further below says little of the best
ROUNDS = 6  # of fitting

Mean = tuple[float, int]  # of how many looks


def shared(means: Mapping[Setting, Mean], noise: float) -> dict[Setting, float]:
    """Draw the mean of each setting towards what its knobs do in all of them, the more the fewer looks it had."""
    if not means:
        return {}
    top = max(value for value, _ in means.values())
    near = {setting: (log(value), count) for setting, (value, count) in means.items() if value > NEAR * top}
    middle = sum(value * count for value, count in near.values()) / sum(count for _, count in near.values())
    places = {setting: [_value(setting, knob) for knob in FIELDS] for setting in near}
    moving = [number for number in range(len(FIELDS)) if len({each[number] for each in places.values()}) > 1]
    effects: list[dict[object, float]] = [{} for _ in FIELDS]

    def told(setting: Setting, without: int = -1) -> float:
        values = places[setting]
        return middle + sum(effects[number].get(values[number], 0.0) for number in moving if number != without)

    for _ in range(ROUNDS):
        for number in moving:
            sums: dict[object, tuple[float, float]] = {}
            for setting, (value, count) in near.items():
                total, weight = sums.get(places[setting][number], (0.0, RIDGE))
                sums[places[setting][number]] = total + count * (value - told(setting, number)), weight + count
            effects[number] = {value: total / weight for value, (total, weight) in sums.items()}
    found = {setting: value for setting, (value, _) in means.items()}
    for setting, (value, count) in near.items():
        trust = OWN**2 / (OWN**2 + noise**2 / count)
        found[setting] = exp(trust * value + (1 - trust) * told(setting))
    return found


def _value(setting: Setting, knob: str) -> object:
    return tuple(getattr(setting, field) for field in FIELDS[knob])
