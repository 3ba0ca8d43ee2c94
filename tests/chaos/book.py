"""The book of a run: every request is opened once and closed once, every fault is counted, and the sums are told."""

import math
import time
from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass, field
from pathlib import Path

from rich.console import Console
from rich.table import Table

from tests.chaos.requests import Ask, End
from tests.chaos.rules import GOOD, Incidents, Verdict, judge

MOST_TOLD = 30
COLUMNS = (Verdict.RIGHT, Verdict.ALLOWED, Verdict.LEFT, Verdict.REFUSED, Verdict.WRONG, Verdict.LOST)


@dataclass(frozen=True, slots=True)
class Behind:
    """A request that nobody waited for any more while the only worker was still busy with another."""

    token: str
    why: str
    busy: str  # token of the other
    over: float  # when nobody waited any more, and the server had seen so
    takes: float  # seconds that the other keeps the worker

    def must_not_run(self, began: float | None) -> bool:
        """Whether all that was so while the worker, which began with the other then, was certainly busy with it."""
        return began is not None and began < self.over < began + self.takes


@dataclass
class Book:
    """What happened."""

    incidents: Incidents = field(default_factory=Incidents)
    faults: Counter[str] = field(default_factory=Counter)
    verdicts: Counter[tuple[str, Verdict]] = field(default_factory=Counter)
    doubled: int = 0
    facts: dict[str, str] = field(default_factory=dict)  # for the table
    problems: list[str] = field(default_factory=list)
    behind: list[Behind] = field(default_factory=list)
    open: dict[str, Ask] = field(default_factory=dict)

    def begin(self, ask: Ask) -> Ask:
        """A request is about to be sent."""
        if ask.token in self.open:
            raise ValueError(f"{ask.token} is under way already")
        ask.began = time.monotonic()
        self.open[ask.token] = ask
        return ask

    def end(self, ask: Ask, end: End) -> Verdict:
        """It has ended."""
        if self.open.pop(ask.token, None) is not ask:
            raise ValueError(f"{ask.token} is not under way")
        ask.ended = time.monotonic()
        verdict = judge(ask, end, self.incidents)
        self.verdicts[ask.kind, verdict] += 1
        if verdict not in GOOD:
            took = ask.ended - ask.began
            self.problem(
                f"{verdict.value}: {ask.kind} {ask.token} of {ask.model}: {end.status} after {took:.2f} s: {end.words}"
            )
        return verdict

    def double(self, what: str) -> None:
        """Something came that nobody had asked for, or came again."""
        self.doubled += 1
        self.problem(f"doubled: {what}")

    def problem(self, text: str) -> None:
        """Something is off; the run has failed."""
        self.problems.append(text)

    def close(self) -> None:
        """No more ends will come."""
        for ask in list(self.open.values()):
            self.end(ask, End(-1))

    def read_ledger(self, path: Path, *, at_most_once: bool) -> int:
        """Check who was run against who may have been; how many were run again."""
        lines = [line.split() for line in path.read_text().splitlines()] if path.exists() else []
        began = {token: float(at) for token, at in reversed(lines)}
        last = {token: float(at) for token, at in lines}
        runs = Counter(token for token, _ in lines)
        for behind in self.behind:
            late = last.get(behind.token, -math.inf) - behind.over  # below zero: not run, or while it was waited for
            if behind.must_not_run(began.get(behind.busy)) and late >= 0.0:
                early = behind.over - began[behind.busy]
                self.problem(
                    f"run for nobody: {behind.token} ({behind.why}) {late:.2f} s after that; "
                    f"the one before it had begun {early:.2f} s earlier"
                )
        again = [token for token, count in runs.items() if count > 1]
        if at_most_once:
            for token in again:
                self.double(f"{token} was run {runs[token]} times, and has side effects")
        return len(again)

    def count(self, *verdicts: Verdict) -> int:
        """How many requests ended so."""
        return sum(number for (_, verdict), number in self.verdicts.items() if verdict in verdicts)

    @property
    def requests(self) -> int:
        return self.verdicts.total()

    @property
    def is_clean(self) -> bool:
        return not self.problems and not self.doubled and not self.open

    def print(self, console: Console) -> None:
        """Tell all of it."""
        console.print(self._faults_table(), self._requests_table(), self._facts_table())
        for text in self.problems[:MOST_TOLD]:
            console.print(f"- {text}", style="red", markup=False, highlight=False, soft_wrap=True)
        if len(self.problems) > MOST_TOLD:
            console.print(f"[red]- and {len(self.problems) - MOST_TOLD} more")

    def _faults_table(self) -> Table:
        table = Table("fault", "times", title="Faults", title_justify="left")
        for what, times in sorted(self.faults.items()):
            table.add_row(what, f"{times:,}")
        table.add_section()
        table.add_row("all", f"{self.faults.total():,}")
        return table

    def _requests_table(self) -> Table:
        table = Table(
            "request", "sent", *(verdict.value for verdict in COLUMNS), title="Requests", title_justify="left"
        )
        for kind in sorted({kind for kind, _ in self.verdicts}):
            table.add_row(kind, *self._numbers([kind]))
        table.add_section()
        table.add_row("all", *self._numbers({kind for kind, _ in self.verdicts}))
        return table

    def _numbers(self, kinds: Iterable[str]) -> list[str]:
        counts = [sum(self.verdicts[kind, verdict] for kind in kinds) for verdict in COLUMNS]
        return [f"{number:,}" for number in (sum(counts), *counts)]

    def _facts_table(self) -> Table:
        table = Table("", "", title="Sums", title_justify="left", show_header=False)
        for verdict in (Verdict.LOST, Verdict.WRONG, Verdict.REFUSED):
            table.add_row(verdict.value.upper(), f"{self.count(verdict):,}")
        table.add_row("DOUBLED", f"{self.doubled:,}")
        for name, value in self.facts.items():
            table.add_row(name, value)
        table.add_row("problems", f"{len(self.problems):,}")
        return table
