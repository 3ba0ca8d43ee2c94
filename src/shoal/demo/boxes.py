"""Finds the lines of text in a detector's probability map. Pure numpy: no image library, no model.

The detector marks the core of each line, so a line is one connected component; its box is the component's, grown back
to the size the training shrank it from. Boxes are upright: a line that runs slantwise gets a box that is too tall.
"""

from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt

THRESHOLD = 0.3  # what counts as text at all
MIN_SCORE = 0.5  # the mean over a component, below which it is no line
MIN_SIDE = 3  # map pixels
GROWTH = 1.6  # the unclip ratio PP-OCR uses with this detector

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Box:
    """An upright rectangle, in pixels; the right and lower edges are not part of it."""

    left: float
    top: float
    right: float
    bottom: float

    @property
    def height(self) -> float:
        """From top to bottom."""
        return self.bottom - self.top

    def grown(self) -> "Box":
        """The line around its core."""
        width, height = self.right - self.left, self.height
        margin = GROWTH * width * height / (2 * (width + height))
        return Box(self.left - margin, self.top - margin, self.right + margin, self.bottom + margin)

    def scaled(self, x: float, y: float) -> "Box":
        """The same box on a picture that is `x` times as wide and `y` times as high."""
        return Box(self.left * x, self.top * y, self.right * x, self.bottom * y)

    def within(self, width: float, height: float) -> "Box":
        """The part of it that lies on a picture of this size."""
        return Box(max(self.left, 0), max(self.top, 0), min(self.right, width), min(self.bottom, height))


def find_boxes(probability: Array) -> list[Box]:
    """The lines of text in a [height, width] map, in no particular order."""
    rows, starts, ends = _runs(probability > THRESHOLD)
    if not len(rows):
        return []
    owner = _components(rows, starts, ends, probability.shape[1])
    count = int(owner.max()) + 1
    totals = np.concatenate([np.zeros((len(probability), 1)), np.cumsum(probability, axis=1, dtype=np.float64)], axis=1)
    mass = np.bincount(owner, totals[rows, ends] - totals[rows, starts], count)
    area = np.bincount(owner, ends - starts, count)
    left, top = np.full(count, np.inf), np.full(count, np.inf)
    right, bottom = np.zeros(count), np.zeros(count)
    np.minimum.at(left, owner, starts)
    np.minimum.at(top, owner, rows)
    np.maximum.at(right, owner, ends)
    np.maximum.at(bottom, owner, rows + 1)
    is_line = (mass / area >= MIN_SCORE) & (right - left >= MIN_SIDE) & (bottom - top >= MIN_SIDE)
    edges = np.stack([left, top, right, bottom], axis=1)[is_line]
    return [Box(*edge).grown() for edge in edges.tolist()]


def reading_order(boxes: list[Box]) -> list[list[int]]:
    """The indices of the boxes, row by row from the top, each row from the left.

    A box belongs to the row whose first box it overlaps by more than half of the lower of the two heights.
    """
    rows: list[list[int]] = []
    for index in sorted(range(len(boxes)), key=lambda index: boxes[index].top + boxes[index].bottom):
        box = boxes[index]
        first = boxes[rows[-1][0]] if rows else None
        if first and min(box.bottom, first.bottom) - max(box.top, first.top) > min(box.height, first.height) / 2:
            rows[-1].append(index)
        else:
            rows.append([index])
    return [sorted(row, key=lambda index: boxes[index].left) for row in rows]


def _runs(mask: Array) -> tuple[Array, Array, Array]:
    """The horizontal runs of a mask, in reading order: row, first column, column after the last."""
    padded = np.zeros((mask.shape[0], mask.shape[1] + 2), np.int8)
    padded[:, 1:-1] = mask
    steps = np.diff(padded, axis=1)
    rows, starts = np.nonzero(steps == 1)
    _, ends = np.nonzero(steps == -1)
    return rows, starts, ends


def _components(rows: Array, starts: Array, ends: Array, width: int) -> Array:
    """For each run the number, from 0, of the component it belongs to; runs that touch by a corner belong together."""
    line = width + 1  # more than any column, so a row and a column make one sortable key
    first = np.searchsorted(rows * line + ends, (rows + 1) * line + starts, "left")
    last = np.searchsorted(rows * line + starts, (rows + 1) * line + ends, "right")
    parent = list(range(len(rows)))

    def root(run: int) -> int:
        while parent[run] != run:
            parent[run] = parent[parent[run]]
            run = parent[run]
        return run

    for run, (begin, end) in enumerate(zip(first.tolist(), last.tolist(), strict=True)):
        for below in range(begin, end):
            parent[root(below)] = root(run)
    _, owner = np.unique([root(run) for run in range(len(rows))], return_inverse=True)
    return owner
