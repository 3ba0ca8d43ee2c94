"""Made-up models to search in: what a setting is worth, and what a look at it costs and shows."""

import random
from collections.abc import Callable

from shoal.tools.tune.goal import Merit
from shoal.tools.tune.schedule import Schedule
from shoal.tools.tune.search import Search
from shoal.tools.tune.server import KEPT
from shoal.tools.tune.setting import KNOBS, Setting, knob_label
from shoal.tools.tune.space import Space

Worth = Callable[[Setting], float]
Judge = Callable[[Setting, Callable[[], float]], Merit]  # of a setting, with a factor of chance for each figure
IN_FLIGHT = 64
START, WARM, OVERHEAD = 0.8, 0.3, 0.25  # s


def serving(kind: str, seed: int) -> Worth:
    """Answers per second of a closed loop, as cost of a batch and of a row, cores and the front make them.

    `echo` is bound by the front, `image` by two cores, `device` by nothing but its own time. No two settings are
    quite the same.
    """
    draw = random.Random(f"{kind} {seed}")
    batch, row, front, cores = {
        "echo": (draw.uniform(0.05, 0.3), draw.uniform(0.002, 0.02), draw.uniform(0.03, 0.08), 2),
        "image": (draw.uniform(1, 8), draw.uniform(5, 15), 0.1, 2),
        "device": (draw.uniform(2, 10), draw.uniform(0.05, 0.5), 0.05, 64),
    }[kind]
    odd: dict[object, float] = {}

    def worth(setting: Setting) -> float:
        hands = setting.workers * setting.instances
        busy = min(hands, cores) * (1 - 0.03 * max(0, hands - cores))
        there = IN_FLIGHT / hands
        rows = max(1.0, min(setting.limit or 256, there))
        taken = batch + row * rows
        if setting.delay is not None and setting.limit > there:
            taken += setting.delay
        if 0 < setting.micro < rows:
            taken *= 0.93
        rate = min(1000 * rows / taken * busy, 1000 / front * (1 - 0.01 * hands))
        for knob in KNOBS:
            rate *= odd.setdefault((knob, knob_label(setting, knob)), draw.uniform(0.98, 1))
        return rate * odd.setdefault(setting, draw.uniform(0.99, 1))

    return worth


def crowded(kind: str, seed: int) -> Worth:
    """The same where what one knob does hangs on the others, so that no sum of effects describes it.

    A worker fills most of both cores by itself (`threads`) or hands beyond the cores get in each other's way and many
    rows at once do not fit into a cache that all share (`cache`).
    """
    draw = random.Random(f"{kind} {seed}")
    batch, row, room = draw.uniform(1, 8), draw.uniform(5, 15), draw.uniform(8, 40)
    first = draw.uniform(1.5, 1.95) if kind == "threads" else 1.0
    lost = draw.uniform(0.0, 0.03) if kind == "threads" else draw.uniform(0.03, 0.12)
    odd: dict[object, float] = {}

    def worth(setting: Setting) -> float:
        hands = setting.workers * setting.instances
        busy = first if hands == 1 else 2 * (1 - lost) ** (hands - 2)
        there = IN_FLIGHT / 4 / hands
        rows = max(1.0, min(setting.limit or 256, there))
        taken = batch + row * rows
        if setting.delay is not None and setting.limit > there:
            taken += setting.delay
        if kind == "cache":
            taken *= 1 + 0.01 * max(0.0, rows * hands - room)
        return 1000 * rows / taken * busy * odd.setdefault(setting, draw.uniform(0.98, 1))

    return worth


def answering(worth: Worth) -> Judge:
    """Judge by answers per second."""
    return lambda setting, chance: Merit(1, worth(setting) * chance())


def keeping(worth: Worth, slow: Worth, goal: float) -> Judge:
    """Judge by answers per second among the settings whose latency keeps a goal."""

    def judged(setting: Setting, chance: Callable[[], float]) -> Merit:
        over = slow(setting) * chance() / goal - 1
        return Merit(0, -over) if over > 0 else Merit(1, worth(setting) * chance())

    return judged


class Bench:
    """Looks at settings, each look off by some noise; counts the seconds it would take, servers kept or started."""

    def __init__(self, judge: Judge, look: float, limit: float, noise: float, seed: int) -> None:
        self._judge = judge
        self._look = look
        self._noise = noise
        self._draw = random.Random(seed)
        self._kept: list[Setting] = []
        self.left = limit

    def cost(self, setting: Setting) -> float:
        """The seconds of one look."""
        return OVERHEAD + self._look + (WARM / 3 if setting in self._kept else START + WARM)

    def run(self, setting: Setting) -> Merit:
        """Look once."""
        self.left -= self.cost(setting)
        self._kept = [*(each for each in self._kept if each != setting), setting][-KEPT:]
        return self._judge(setting, lambda: max(0.01, self._draw.gauss(1, self._noise)))


def searched(judge: Judge, space: Space, noise: float, seed: int, share: float = 0.1) -> tuple[Search, Bench]:
    """Search with so large a share of the time that looking at the whole grid for 5 s each would take."""
    limit = share * len(list(space.grid())) * (START + WARM + OVERHEAD + 5.0)
    bench = Bench(judge, min(2.0, limit / 30), limit, noise, seed)
    search = Search(Setting())
    search.record(search.default, bench.run(search.default))
    for setting in Schedule(search, lambda: bench.left, bench.cost).trials(space):
        search.record(setting, bench.run(setting))
    return search, bench
