"""The trial: each sample alone, twice; then all of them in batches of several sizes and orders."""

import time
from collections.abc import Callable, Iterator, Sequence
from random import Random

import msgspec

from shoal.config.model import ModelConfig
from shoal.errors import LoadFailed
from shoal.tools.check.messages import Loaded, LoadToJudge, RunThese, Verdict
from shoal.tools.profile.measure import Gone, Holder
from shoal.tools.samples import Sample
from shoal.tools.words import Unloadable
from shoal.worker.proof import Tolerance

SIZES = (2, 3, 4, 8, 16)
SHUFFLES = 3  # orders of each size besides the plain ones
MOST_TOLD = 2  # differences of a size that are told in full
MOST_NAME = 40  # characters of a text that is its own name


class Difference(msgspec.Struct, frozen=True):
    """One answer that is not what it should be."""

    size: int
    place: int  # in the batch, from 1
    sample: str
    text: str
    order: list[int]  # the numbers of the samples in that batch, from 1


class Row(msgspec.Struct):
    """What became of the batches of one size; size 1: each sample asked again, alone."""

    size: int
    batches: int = 0
    answers: int = 0
    wrong: int = 0


class Checked(msgspec.Struct):
    """What has been found so far; whole at any moment."""

    model: str
    handler: str = ""
    samples: int = 0
    refused: list[str] = []  # samples that fail alone, and why; they are left out of batches
    rows: list[Row] = []
    differences: list[Difference] = []
    notes: list[str] = []

    @property
    def is_fine(self) -> bool:
        """Whether all was as it should be, and something was looked at."""
        return bool(self.rows) and not any(row.wrong for row in self.rows) and self.rows[0].answers > 0


def orders(samples: Sequence[int], size: int, random: Random) -> Iterator[list[int]]:
    """Give batches of a size: the samples in turn, backwards, moved on by one, and shuffled; none twice."""
    seen: set[tuple[int, ...]] = set()
    plain = [samples[place % len(samples)] for place in range(size)]
    moved = [samples[(place + 1) % len(samples)] for place in range(size)]
    shuffled = [[random.choice(samples) for _ in range(size)] for _ in range(SHUFFLES)]
    for order in (plain, plain[::-1], moved, *shuffled):
        if tuple(order) not in seen:
            seen.add(tuple(order))
            yield order


def name_of(sample: Sample) -> str:
    """Call a sample by its file's name, and a text that was typed by itself."""
    if sample.name != "text":
        return sample.name
    text = " ".join(sample.body.decode(errors="replace").split())
    return text if len(text) <= MOST_NAME else f"{text[: MOST_NAME - 3]}..."


def load(holder: Holder, config: ModelConfig, samples: Sequence[Sample], tolerance: Tolerance) -> str:
    """Have the model loaded; gives its handler's name, LoadFailed says what is wrong with it."""
    word = LoadToJudge(msgspec.to_builtins(config), list(samples), tolerance.relative, tolerance.absolute)
    try:
        report = holder.ask(word, config.startup_timeout)
    except Gone as error:
        raise LoadFailed(f"{config.name} could not be loaded: {error}") from None
    if isinstance(report, Unloadable):
        raise LoadFailed(report.message, report.traceback)
    assert isinstance(report, Loaded)
    return report.handler


class Trial:
    """One run over a model that is loaded."""

    def __init__(self, holder: Holder, samples: Sequence[Sample], found: Checked, *, within: float) -> None:
        self._holder = holder
        self._names = [f"input {number} ({name_of(sample)})" for number, sample in enumerate(samples, 1)]
        self._found = found
        self._end = time.monotonic() + within

    def run(self, sizes: Sequence[int], seed: int, on_batch: Callable[[int], None] = lambda size: None) -> None:
        """Fill in what is found; it ends early, and says so, when time is up or the model's process has died."""
        self._found.samples = len(self._names)
        try:
            usable = self._alone(on_batch)
            if usable:
                self._together(usable, sizes, Random(seed), on_batch)
        except Gone as error:
            row = self._found.rows[-1] if self._found.rows else Row(1)
            self._found.rows = self._found.rows or [row]
            row.wrong += 1
            self._found.notes.append(f"batch size {row.size}: {error}")
        except TimeoutError:
            self._found.notes.append("the time that was given is up; what is above was checked")

    def _alone(self, on_batch: Callable[[int], None]) -> list[int]:
        """Ask each sample alone, and again; gives those that are answered."""
        usable = []
        for number, name in enumerate(self._names):
            on_batch(1)
            (verdict,) = self._ask([number])
            if verdict.kind == "refused":
                self._found.refused.append(f"{name}: {verdict.text}")
            else:
                usable.append(number)
        row = self._row(1)
        for number in usable:
            on_batch(1)
            self._judge(row, [number], self._ask([number]))
        if usable and self._ask([])[0].text:
            self._found.notes.append(
                "every input has the same answer alone, so that mixed-up answers could not be seen; give different ones"
            )
        return usable

    def _together(
        self, usable: Sequence[int], sizes: Sequence[int], random: Random, on_batch: Callable[[int], None]
    ) -> None:
        for size in sizes:
            row = self._row(size)
            for order in orders(usable, size, random):
                on_batch(size)
                self._judge(row, order, self._ask(order))

    def _row(self, size: int) -> Row:
        self._found.rows.append(Row(size))
        return self._found.rows[-1]

    def _ask(self, order: list[int]) -> list[Verdict]:
        left = self._end - time.monotonic()
        if left <= 0:
            raise TimeoutError
        verdicts: list[Verdict] = self._holder.ask(RunThese(order), left + 10.0).verdicts
        return verdicts

    def _judge(self, row: Row, order: list[int], verdicts: list[Verdict]) -> None:
        row.batches += 1
        told = sum(each.size == row.size for each in self._found.differences)
        for place, (number, verdict) in enumerate(zip(order, verdicts, strict=True), 1):
            row.answers += 1
            if verdict.kind == "same":
                continue
            row.wrong += 1
            told += 1
            if told <= MOST_TOLD:
                shown = [each + 1 for each in order]
                self._found.differences.append(
                    Difference(row.size, place, self._names[number], self._text(verdict), shown)
                )

    def _text(self, verdict: Verdict) -> str:
        if verdict.kind == "mixed":
            return f"it got the answer of {self._names[verdict.of]}"
        return f"it failed: {verdict.text}" if verdict.kind == "failed" else verdict.text
