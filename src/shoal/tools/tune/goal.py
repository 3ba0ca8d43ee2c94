"""Goals: what is wanted of a setting, and how well one that was measured does it."""

import re
from collections.abc import Sequence
from typing import Literal

import msgspec

from shoal.errors import InvalidInput
from shoal.tools.bench.results import Level, Piece
from shoal.tools.histogram import middle, quantiles
from shoal.tools.units import seconds, show, show_bytes, show_ms

SHARES = {"p50": 0.5, "p90": 0.9, "p95": 0.95, "p99": 0.99}
LATENCIES = ("mean", *SHARES)
SIZES = {"": 1, "kb": 1000, "mb": 1000**2, "gb": 1000**3, "kib": 1024, "mib": 1024**2, "gib": 1024**3}
_SIZE = re.compile(r"(\d+(?:\.\d+)?)\s*([a-z]*)")


class Goals(msgspec.Struct, frozen=True):
    """Limits that must be kept, and the figure that is made best within them."""

    limits: dict[str, float] = {}  # mean, percentiles: s; memory: bytes
    objective: str = "throughput"  # made largest; or a latency, made smallest

    def __str__(self) -> str:
        kept = [f"{name} {_figure(name, limit)} at most" for name, limit in self.limits.items()]
        best = "the most answers per second" if self.objective == "throughput" else f"the smallest {self.objective}"
        return "; ".join([*kept, best])


class Merit(msgspec.Struct, frozen=True, order=True):
    """How good a setting is: whether it did what it must (1), did it badly (0) or not at all (-1); and how well."""

    rank: Literal[-1, 0, 1]
    value: float  # rank 1: answers/s, or 1/latency; rank 0: below 0, how far beyond the limits


FAILED = Merit(-1, 0.0)


def read_goals(texts: Sequence[str], *, is_open: bool) -> Goals:
    """Read `p99=50ms`, `throughput=max`, `p95=min`, `memory=2GB`; an open loop has its rate, and wants latency."""
    limits: dict[str, float] = {}
    objective = ""
    for text in ",".join(texts).split(",") if texts else []:
        name, equals, value = (part.strip().lower() for part in text.partition("="))
        if (name == "throughput" and value == "max") or (name in LATENCIES and value == "min"):
            if objective:
                raise InvalidInput(f"--goal: {objective} and {name} cannot both be made best; give one of them a limit")
            objective = name
        elif equals and name in LATENCIES:
            limits[name] = seconds(value)
        elif equals and name == "memory":
            limits[name] = _bytes(value)
        else:
            known = ", ".join(f"{each}=50ms" for each in ("p99", "mean"))
            raise InvalidInput(f"--goal is {known} (also p50, p90, p95), memory=2GB or throughput=max; got {text!r}")
    if is_open and objective == "throughput":
        raise InvalidInput("--goal throughput=max means nothing at a --rate: as much comes back as is sent")
    return Goals(limits, objective or ("p99" if is_open else "throughput"))


def figures_of(pieces: Sequence[Piece], each: float) -> dict[str, float]:
    """Sum slices of time up: answers per second and latencies; nothing of no answers."""
    counts: dict[int, int] = {}
    for piece in pieces:
        for bucket, count in piece.counts.items():
            counts[bucket] = counts.get(bucket, 0) + count
    total = sum(counts.values())
    if not total:
        return {}
    found = dict(zip(SHARES, quantiles(counts, SHARES.values()), strict=True))
    mean = sum(middle(bucket) * count for bucket, count in counts.items()) / total
    return {"throughput": sum(piece.answered for piece in pieces) / (len(pieces) * each), "mean": mean, **found}


def merit_of(goals: Goals, level: Level, memory: int) -> Merit:
    """Judge what was measured; a setting that failed requests, or fell behind its rate, did not do what it must."""
    figures = figures_of(level.pieces, level.seconds_each)
    if not figures:
        return FAILED
    failed = level.error_count / max(1, level.error_count + level.answered)
    known = {**figures, "memory": float(memory)}
    over = [known[name] / limit - 1 for name, limit in goals.limits.items()]
    over += [failed * 100] if failed else []
    over += [level.offered / level.throughput - 1] if level.is_behind else []
    if (worst := max(over, default=0.0)) > 0:
        return Merit(0, -worst)
    value = figures[goals.objective]
    return Merit(1, value if goals.objective == "throughput" else 1 / value)


def gain(merit: Merit, over: Merit) -> float:
    """Give how much better one is than another, as a share; without end where only one does what it must."""
    if merit.rank != over.rank:
        return float("inf") if merit.rank > over.rank else float("-inf")
    if merit.rank == 1:
        return merit.value / over.value - 1 if over.value else 0.0
    return (1 - over.value) / (1 - merit.value) - 1  # of how many times what is allowed they take


def show_figures(figures: dict[str, float]) -> str:
    """Write what was measured in a few words."""
    if not figures:
        return "no answers"
    return f"{show(figures['throughput'])}/s, p50 {show_ms(figures['p50'])} ms, p99 {show_ms(figures['p99'])} ms"


def _figure(name: str, value: float) -> str:
    return show_bytes(value) if name == "memory" else f"{show_ms(value)} ms"


def _bytes(text: str) -> float:
    found = _SIZE.fullmatch(text)
    value = float(found[1]) * SIZES.get(found[2], 0) if found else 0.0
    if value <= 0:
        raise InvalidInput(f"an amount of memory is written as 500MB or 2GB, and is above 0; got {text!r}")
    return value
