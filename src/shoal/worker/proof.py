"""Proof: a handler that nobody asked for batches is trusted with them once it has answered together as alone.

Requests of a batch are run one after the other, and each is answered as soon as it can be. Then they are run together
once more, unheard, and the answers compared. What tells nothing proves nothing: different requests that are all
answered alike might as well have been mixed up.
"""

import io
import json
import logging
import math
import sys
import threading
from collections.abc import Sequence
from typing import Any, NamedTuple

import msgspec

from shoal.payload import Buffer
from shoal.wire.memory import ArenaReader
from shoal.wire.messages import Failure, Measured, Piece, Pieces, Proved, Run
from shoal.worker.batch import STREAMED, Answer, Batch, Plain, Sender, Slice, piece, plain
from shoal.worker.items import read_raw_rows
from shoal.worker.pipeline import Poll, apart, run_stages
from shoal.worker.program import Program, Stage

PROOFS = 2  # batches of different requests that must agree
RELATIVE, ABSOLUTE = 1e-3, 1e-5  # how far numbers may be apart: sums in another order end in other digits
SIDE_EFFECTS = "it has side effects, so no request is run twice to find out"
IN_PIECES = "it answers in pieces"
_log = logging.getLogger("shoal.worker")


class Tolerance(NamedTuple):
    """How far numbers may be apart and still be the same."""

    relative: float = RELATIVE
    absolute: float = ABSOLUTE


TOLERANCE = Tolerance()


class Unheard:
    """A sender for requests that were answered already; whoever streams to it is stopped."""

    def __init__(self) -> None:
        self.is_gone = False

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        """Drop it."""
        self.is_gone = True


class Prover:
    """Runs what may be batched together, and everything else one by one, until it knows. Any thread may ask."""

    def __init__(self, sender: Sender, can_batch: bool | None = None, *, side_effects: bool = False) -> None:
        self._sender = sender
        self._can_batch = can_batch
        self._side_effects = side_effects
        self._agreed = 0  # batches of different requests
        self._is_safe_for_equal = False  # requests that are the same to the byte were answered alike
        self._lock = threading.Lock()

    def begin(self) -> None:
        """Say at once what needs no trial."""
        if self._side_effects:
            self._settle(False, SIDE_EFFECTS, "the handler")

    def run(self, cut: Slice, stages: Sequence[Stage], program: Program, arena: ArenaReader | None, poll: Poll) -> None:
        """Run a slice as a whole, or request by request."""
        if self._can_batch or len(cut.places) == 1:
            run_stages(cut, stages, program, arena, poll)
            return
        if self._can_batch is False:
            run_apart(cut, stages, program, arena, poll)
            return
        are_equal = has_equal_inputs(cut, arena)
        if are_equal and self._is_safe_for_equal:
            run_stages(cut, stages, program, arena, poll)
            return
        count, label = len(cut.places), stages[0].label
        alone = run_apart(cut, stages, program, arena, poll)
        if STREAMED in alone:
            self._settle(False, IN_PIECES, label)
        answers = [outcome for outcome in alone if isinstance(outcome, tuple)]
        if self._can_batch is None and len(answers) == count and (are_equal or not all_alike(answers)):
            _log.info("checking that %s can batch: %d requests are run alone and together", label, count)
            together, seconds = run_unheard(cut, stages, program, arena)
            why = difference(answers, together)
            if not why:
                cut.seconds = seconds  # what such a batch costs from now on
            self._judge(why, label, are_equal=are_equal)

    def _judge(self, why: str, label: str, *, are_equal: bool) -> None:
        if why:
            self._settle(False, why, label)
            return
        if are_equal:
            self._is_safe_for_equal = True
            return
        with self._lock:
            self._agreed += 1
        if self._agreed >= PROOFS:
            self._settle(True, "", label)

    def _settle(self, can_batch: bool, why: str, label: str) -> None:
        with self._lock:
            if self._can_batch is not None:
                return
            self._can_batch = can_batch
        if can_batch:
            _log.info("%s answers requests together as alone: they are batched from now on", label)
        else:
            _log.warning("%s is not batched: %s; requests are run one at a time from now on", label, why)
        self._sender.send(Proved(can_batch, why))


def run_apart(
    cut: Slice, stages: Sequence[Stage], program: Program, arena: ArenaReader | None, poll: Poll
) -> list[Plain]:
    """Run and answer request by request; gives what each was answered, None for one that nobody waits for any more."""
    batch = cut.batch
    outcomes: list[Plain] = []
    for one in apart(cut):
        (place,) = one.places
        poll()
        if batch.sender.is_gone or place in batch.cancelled:
            batch.outcomes[place] = STREAMED
            outcomes.append(None)
            continue
        batch.has_begun = False
        run_stages(one, stages, program, arena, poll)
        batch.failure = None  # it is this request's alone
        outcome = plain(batch.outcomes[place])
        outcomes.append(STREAMED if batch.has_begun else outcome)
        _send(batch, place, outcome)
        cut.seconds = [total + more for total, more in zip(cut.seconds, one.seconds, strict=True)]
    cut.places = ()
    return outcomes


def _send(batch: Batch, place: int, outcome: Plain) -> None:
    """Tell one request's outcome now, so that it does not wait for the others."""
    if isinstance(outcome, Failure):
        batch.sender.send(Pieces(batch.number, [Piece(place, True, 0, failure=outcome)]))
    elif isinstance(outcome, tuple):
        batch.sender.send(Pieces(batch.number, [piece(place, True, outcome)]), [outcome[0]])
    batch.outcomes[place] = STREAMED


def run_unheard(
    cut: Slice, stages: Sequence[Stage], program: Program, arena: ArenaReader | None
) -> tuple[list[Plain], list[float]]:
    """Run the requests of a slice once more, together; nobody hears of it, and what it measures does not count."""
    batch, unheard = cut.batch, Unheard()
    if measures := program.take_measures():
        batch.sender.send(Measured(measures))
    shadow = Batch(Run(batch.number, batch.instance, list(cut.items)), batch.data, unheard, batch.limit)
    (again,) = shadow.slices(0)
    run_stages(again, stages, program, arena)
    program.take_measures()
    outcomes: list[Plain] = [STREAMED] * len(cut.items) if unheard.is_gone else [plain(o) for o in shadow.outcomes]
    return outcomes, again.seconds


def difference(alone: Sequence[Answer], together: Sequence[Plain]) -> str:
    """Say how the outcomes of requests run together differ from their answers alone; empty: they do not."""
    count = len(alone)
    for number, (before, after) in enumerate(zip(alone, together, strict=True), 1):
        if isinstance(after, Failure):
            told = (after.traceback.strip().splitlines() or [after.message])[-1]
            return f"{count} requests that were answered alone failed together: {told}"
        if not isinstance(after, tuple):
            return f"{count} requests together were answered in pieces"
        if not alike(before, after):
            return f"of {count} requests together, number {number} was not answered as alone"
    return ""


def all_alike(answers: Sequence[Answer]) -> bool:
    """Whether all got the same answer."""
    return all(alike(answers[0], answer) for answer in answers[1:])


def has_equal_inputs(cut: Slice, arena: ArenaReader | None) -> bool:
    """Whether the requests of a slice are the same in every byte and header that their handler can see."""
    shapes = [([(part.name, part.content_type, part.size) for part in item.parts], item.headers) for item in cut.items]
    if any(shape != shapes[0] for shape in shapes):
        return False
    rows = read_raw_rows(cut.items, cut.batch.data[cut.start :], arena)
    return all(row == rows[0] for row in rows)


def alike(one: Answer, other: Answer, tolerance: Tolerance = TOLERANCE) -> bool:
    """Whether two answers say the same, but for the last digits of their numbers."""
    if one[1] != other[1] or _said(one) != _said(other):
        return False
    before, after = bytes(one[0]), bytes(other[0])
    if before == after:
        return True
    try:
        return close(json.loads(before), json.loads(after), tolerance)
    except (ValueError, RecursionError, OverflowError):
        return _are_close_tensors(before, after, tolerance)


def close(one: Any, other: Any, tolerance: Tolerance = TOLERANCE) -> bool:
    """Whether two values of JSON are the same, fractions within what rounding explains."""
    kinds = {type(one), type(other)}
    if float in kinds and kinds <= {float, int}:
        are_close = math.isclose(one, other, rel_tol=tolerance.relative, abs_tol=tolerance.absolute)
        return are_close or (math.isnan(one) and math.isnan(other))
    if len(kinds) > 1:
        return False
    if isinstance(one, dict):
        return one.keys() == other.keys() and all(close(value, other[key], tolerance) for key, value in one.items())
    if isinstance(one, list):
        return len(one) == len(other) and all(close(a, b, tolerance) for a, b in zip(one, other, strict=True))
    return bool(one == other)


def _said(answer: Answer) -> tuple[int, str, list[tuple[str, str]]]:
    said = answer[2]
    return (200, "", []) if said is None else (said.status, said.reason, sorted(said.headers))


def _are_close_tensors(one: bytes, other: bytes, tolerance: Tolerance) -> bool:
    """Whether both are tensors that torch saved, with the same values; a worker that saved one has torch."""
    torch = sys.modules.get("torch")
    if torch is None or len(one) != len(other) or not one.startswith(b"PK"):
        return False
    try:
        first, second = (torch.load(io.BytesIO(data), weights_only=True) for data in (one, other))
        torch.testing.assert_close(first, second, rtol=tolerance.relative, atol=tolerance.absolute, equal_nan=True)
    except Exception:  # whatever it is, it is not the same
        return False
    return True
