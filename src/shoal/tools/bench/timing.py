"""Server-Timing: what the server says of each answer, read and summed up."""

import re
from collections.abc import Iterable

from shoal.tools.bench.messages import Split
from shoal.tools.histogram import Histogram, merged

_ENTRY = re.compile(r"""([\w-]+)(?:;dur=([0-9.]+))?(?:;desc="?([^",]*)"?)?""")

ORDER = ("queue", "preprocess", "inference", "postprocess")  # others come behind


def note(split: Split, header: str) -> None:
    """Add the words of one answer."""
    for name, duration, told in _ENTRY.findall(header):
        if name == "batch":
            _note_batch(split, told)
        elif duration:
            try:
                taken = float(duration) / 1000
            except ValueError:
                continue
            split.times.setdefault(name, Histogram()).add(taken)


def _note_batch(split: Split, told: str) -> None:
    rows, _, reason = told.partition(" ")
    if rows.isdecimal():
        split.rows[int(rows)] = split.rows.get(int(rows), 0) + 1
    if reason:
        split.reasons[reason] = split.reasons.get(reason, 0) + 1


def together(splits: Iterable[Split]) -> Split:
    """Put samples together."""
    found = list(splits)
    said = dict.fromkeys(name for split in found for name in split.times)
    names = sorted(said, key=lambda name: ORDER.index(name) if name in ORDER else len(ORDER))
    rows: dict[int, int] = {}
    reasons: dict[str, int] = {}
    for split in found:
        for size, count in split.rows.items():
            rows[size] = rows.get(size, 0) + count
        for reason, count in split.reasons.items():
            reasons[reason] = reasons.get(reason, 0) + count
    times = {name: merged(split.times[name] for split in found if name in split.times) for name in names}
    return Split(times, dict(sorted(rows.items())), dict(sorted(reasons.items(), key=lambda pair: -pair[1])))


def mean_rows(rows: dict[int, int]) -> float:
    """The average rows of a batch, from how many answers rode in batches of each size; 0 if nobody said."""
    batches = sum(count / size for size, count in rows.items() if size)
    return sum(rows.values()) / batches if batches else 0.0
