"""What a request may say about its time, and what its answer says about where the time went."""

import math
from typing import Final

from shoal.core.batch import Batch
from shoal.errors import InvalidInput

BRIEF: Final = [b"%.3f" % (micro / 1000) for micro in range(1000)]  # milliseconds by microseconds


def milliseconds(seconds: float) -> bytes:
    """Write a duration in milliseconds, to the microsecond; a look-up in place of a float's formatting."""
    if not 0.0 <= seconds < 1e9:
        return b"%.3f" % (1000.0 * seconds)
    micro = int(1e6 * seconds + 0.5)
    return BRIEF[micro] if micro < 1000 else b"%d%b" % (micro // 1000, BRIEF[micro % 1000][1:])


def note_of(batch: Batch) -> bytes:
    """Say once for the whole batch how it was made and where its time went, in the words of Server-Timing."""
    why = b'batch;desc="%d %b"' % (batch.rows, batch.reason.encode())
    stages = batch.stages
    if stages is None:
        return why  # still running: a stream's head
    batch.note = b"preprocess;dur=%b, inference;dur=%b, postprocess;dur=%b, %b" % (
        milliseconds(stages.preprocess),
        milliseconds(stages.inference),
        milliseconds(stages.postprocess),
        why,
    )
    return batch.note


def seconds_of(text: bytes) -> float:
    """Read X-Request-Timeout-Ms."""
    try:
        milliseconds = float(text)
    except ValueError:
        milliseconds = math.nan
    if not 0 < milliseconds < math.inf:
        raise InvalidInput(f"X-Request-Timeout-Ms is a number of milliseconds above 0, got {text.decode('latin-1')!r}")
    return milliseconds / 1000
