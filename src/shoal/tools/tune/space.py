"""Space: every setting that may be tried, and which of them are worth a look from where the search stands."""

from collections.abc import Iterator, Sequence
from itertools import product

import msgspec

from shoal.tools.tune.setting import Setting, Threads

LIMITS = (1, 2, 4, 8, 16, 32, 64, 128, 256)
DELAYS = (1.0, 5.0, 20.0, 50.0)  # ms
MICRO = (0, 4, 16)
THREADS: tuple[Threads, ...] = ((1, 1, 1), (2, 1, 2), (2, 2, 2))
COARSE = 3  # one in so many batch limits is looked at first; their neighbours later


class Space(msgspec.Struct, frozen=True):
    """The values of each knob."""

    limits: Sequence[int] = LIMITS
    delays: Sequence[float] = DELAYS
    workers: Sequence[int] = (1, 2, 4)
    instances: Sequence[int] = (1, 2)
    micro: Sequence[int] = MICRO
    threads: Sequence[Threads] = THREADS
    has_adaptive: bool = True  # batches may also leave as Shoal sees fit

    def grid(self) -> Iterator[Setting]:
        """Give every setting there is, the default first."""
        for threads, micro, instances, workers in product(self.threads, self.micro, self.instances, self.workers):
            for limit, delay in self._batchings():
                yield Setting(limit, delay, workers, instances, micro, threads)

    def within(self, *, in_flight: int, is_staged: bool, most_workers: int) -> "Space":
        """Leave out what cannot help: batches larger than the requests there are, stages of a model without them."""
        enough = next((limit for limit in self.limits if limit >= in_flight), max(self.limits)) if in_flight else 0
        return msgspec.structs.replace(
            self,
            limits=[limit for limit in self.limits if not in_flight or limit <= enough],
            workers=[count for count in self.workers if count <= most_workers] or [1],
            micro=self.micro if is_staged else (0,),
            threads=self.threads if is_staged else ((1, 1, 1),),
        )

    def groups(self, base: Setting) -> Iterator[list[Setting]]:
        """Give the races of one pass, each from the same base with one thing changed; `base` is never in them."""
        yield self._others(base, [msgspec.structs.replace(base, workers=count) for count in self.workers])
        yield self._others(base, [msgspec.structs.replace(base, instances=count) for count in self.instances])
        yield self._others(base, [_batched(base, limit, delay) for limit, delay in self._coarse()])
        staged = [msgspec.structs.replace(base, micro=size) for size in self.micro]
        yield self._others(base, [*staged, *(msgspec.structs.replace(base, threads=each) for each in self.threads)])
        yield self._others(base, self._near(base))

    def _batchings(self) -> Iterator[tuple[int, float | None]]:
        if self.has_adaptive:
            yield 0, None
        if 1 in self.limits:
            yield 1, 0.0
        larger = [limit for limit in self.limits if limit > 1]
        if self.has_adaptive:
            yield from ((limit, None) for limit in larger)
        yield from product(larger, self.delays)

    def _coarse(self) -> Iterator[tuple[int, float | None]]:
        """A batching of each kind: adaptive, none, and fixed ones far apart; the largest limit is among them."""
        if self.has_adaptive:
            yield 0, None
        if 1 in self.limits:
            yield 1, 0.0
        larger = [limit for limit in self.limits if limit > 1]
        far = larger[::-1][::COARSE]
        middle = self.delays[(len(self.delays) - 1) // 2] if self.delays else None
        yield from ((limit, middle) for limit in far if middle is not None)

    def _near(self, base: Setting) -> Iterator[Setting]:
        """The neighbours of a batching: the next limits and delays; of an adaptive one, limits far apart."""
        if base.delay is None:
            larger = [limit for limit in self.limits if limit > 1]
            yield from (_batched(base, limit, None) for limit in larger[::-1][1::COARSE])
            return
        if base.limit > 1:
            yield from (
                _batched(base, int(limit), base.delay) for limit in _beside(self.limits, base.limit) if limit > 1
            )
            yield from (_batched(base, base.limit, delay) for delay in _beside(self.delays, base.delay))

    @staticmethod
    def _others(base: Setting, settings: "Iterator[Setting] | list[Setting]") -> list[Setting]:
        return [setting for setting in dict.fromkeys(settings) if setting != base]


def _batched(base: Setting, limit: int, delay: float | None) -> Setting:
    return msgspec.structs.replace(base, limit=limit, delay=delay)


def _beside(values: Sequence[float], value: float) -> list[float]:
    """The next smaller and the next larger."""
    lower, higher = [v for v in values if v < value], [v for v in values if v > value]
    return [*lower[-1:], *higher[:1]]
