"""Schedule: how much of a search there is time for. The finals get theirs first."""

from collections.abc import Callable, Iterator

from shoal.tools.tune.search import ENOUGH, Search
from shoal.tools.tune.setting import Setting
from shoal.tools.tune.space import Space

Seconds = Callable[[], float]
Cost = Callable[[Setting], float]


class Schedule:
    """Gives what to look at, as long as there is time. `left` tells how much, `cost` how long a look will take."""

    def __init__(self, search: Search, left: Seconds, cost: Cost) -> None:
        self._search = search
        self._left = left
        self._cost = cost
        self.is_cut = False  # there was no time for all of the search

    def trials(self, space: Space) -> Iterator[Setting]:
        """Give setting after setting; the default has been looked at. Each is recorded before the next is asked for."""
        search, latest = self._search, self._search.default
        for setting in search.explore(space):
            if self._cost(setting) + self._reserve(latest) > self._left():
                self.is_cut = True
                break
            yield setting
            latest = setting
        first = len(search.finalists())  # these have their look whatever the time
        for number, setting in enumerate(search.finals()):
            if number >= first and self._cost(setting) > self._left():
                break
            yield setting
        yield from (setting for setting in search.closing() if self._cost(setting) <= self._left())

    def _reserve(self, latest: Setting) -> float:
        """The time that the finals need at least; the server of the latest setting is there still."""
        finalists = self._search.finalists()
        return sum(map(self._cost, finalists)) + (ENOUGH - 1) * len(finalists) * self._cost(latest)
