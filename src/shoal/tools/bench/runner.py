"""Runs the levels of a bench: each until its windows agree, or there have been enough and something came back."""

import asyncio
import math
import time
from collections.abc import Callable, Sequence

import msgspec

from shoal.tools.bench.crew import Crew
from shoal.tools.bench.messages import Slice
from shoal.tools.bench.plan import Settings, Step, loads
from shoal.tools.bench.results import NEEDED, Level, sum_up
from shoal.tools.bench.stability import Window, is_dead, is_enough, spread, window_of
from shoal.tools.calls import Site

OnSlice = Callable[[Step, Slice, int], None]  # the level, its newest slice, windows so far


class Findings(msgspec.Struct):
    """What has been found so far; whole at any moment, so that an interruption loses nothing."""

    levels: list[Level] = []
    problem: str = ""


class Runner:
    """Runs levels against one server. `stopping` ends it at the next slice."""

    def __init__(
        self, site: Site, requests: Sequence[bytes], settings: Settings, on_slice: OnSlice, block: bytes = b""
    ) -> None:
        self._site = site
        self._block = block
        self._requests = requests
        self._settings = settings
        self._on_slice = on_slice
        self.stopping = asyncio.Event()
        self.findings = Findings()

    async def run(self, steps: Sequence[Step]) -> None:
        """Run all levels; the findings say why if not all of them were."""
        async with Crew(self._settings.processes) as crew:
            await self.run_with(crew, steps)

    async def run_with(self, crew: Crew, steps: Sequence[Step]) -> None:
        """Run all levels with load processes that are there already."""
        for step in steps:
            await self._run(crew, step)
            if self.stopping.is_set() and not self.findings.problem:
                self.findings.problem = "interrupted"
            if self.findings.problem:
                return

    async def _run(self, crew: Crew, step: Step) -> None:
        settings = self._settings
        parts = loads(step, settings, self._site, self._requests, self._block)
        crew.begin(parts)
        is_trace = step.kind == "trace"
        warm = 0 if is_trace else math.ceil(settings.warmup / settings.slice)
        each = round(settings.window / settings.slice)
        longest = settings.most_windows + math.ceil(settings.timeout / settings.window)
        slices: list[Slice] = []
        windows: list[Window] = []
        while (slice := await self._next(crew)) is not None:
            slices.append(slice)
            self._on_slice(step, slice, len(windows))
            if is_dead(slices, settings.slice, settings.patience):
                self.findings.problem = f"{self._site.url} stopped answering: {_last_error(slices)}"
                slices = alive(slices)
                windows = windows[: max(0, len(slices) - warm) // each]
                break
            if not is_trace and len(slices) - warm == (len(windows) + 1) * each:
                windows.append(window_of(slices[-each:], settings.slice))
                counted = _measured(slices, warm, each, len(windows))
                if spread(windows) <= settings.stability or is_enough(windows, counted, settings.most_windows, longest):
                    break
        rest, unanswered = await crew.halt()
        if not crew.is_whole and not self.findings.problem:
            self.findings.problem = "a load process died"
        is_early = self.stopping.is_set() and not any(each.answered for each in slices)  # before a slice was whole
        if is_trace or is_early:
            level = sum_up([*slices, *rest], settings.slice, seconds=time.monotonic() - parts[0].begin)
        else:
            level = sum_up(_measured(slices, warm, each, len(windows)), settings.slice)
        self._keep(step, level, windows, unanswered)

    async def _next(self, crew: Crew) -> Slice | None:
        """The next slice; None at the end, or when it shall end."""
        waiting = asyncio.ensure_future(crew.next())
        stopping = asyncio.ensure_future(self.stopping.wait())
        done, _ = await asyncio.wait({waiting, stopping}, return_when=asyncio.FIRST_COMPLETED)
        stopping.cancel()
        if waiting in done:
            return waiting.result()
        waiting.cancel()
        return None

    def _keep(self, step: Step, level: Level, windows: Sequence[Window], unanswered: int) -> None:
        if not level.answered and not level.errors:
            return
        found = spread(windows) if windows else 0.0
        is_trace = step.kind == "trace"
        self.findings.levels.append(
            msgspec.structs.replace(
                level,
                label=step.label,
                kind=step.kind,
                windows=[window.throughput for window in windows],
                is_stable=is_trace or found <= self._settings.stability,
                spread=0.0 if is_trace else found,
                unanswered=unanswered if step.kind != "closed" else 0,
                offered=level.offered if step.kind != "closed" else 0.0,
                concurrency=step.concurrency,
            )
        )


def _measured(slices: Sequence[Slice], warm: int, each: int, windows: int) -> Sequence[Slice]:
    """The slices that count: those of the last windows; of a level that was cut short, what came after the warm-up,
    or all of it if nothing was answered later.
    """
    if windows:
        end = warm + windows * each
        return slices[max(warm, end - NEEDED * each) : end]
    later = slices[warm:]
    return later if any(each.answered for each in later) else slices


def alive(slices: Sequence[Slice]) -> list[Slice]:
    """What was seen while the server was there, and the slice in which it left."""
    last = max((place for place, each in enumerate(slices) if each.answered), default=-1)
    return list(slices[: last + 2])


def _last_error(slices: Sequence[Slice]) -> str:
    kinds = next((each.errors for each in reversed(slices) if each.errors), {})
    return {"refused": "connection refused", "reset": "connection reset", "closed": "connection closed"}.get(
        next(iter(kinds), ""), next(iter(kinds), "no answer")
    )
