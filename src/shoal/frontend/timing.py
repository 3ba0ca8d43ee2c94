"""What a request may say about its time, and what its answer says about where the time went."""

import math

from shoal.core.batch import Batch
from shoal.errors import InvalidInput


def note_of(batch: Batch) -> bytes:
    """Say once for the whole batch how it was made and where its time went, in the words of Server-Timing."""
    why = b'batch;desc="%d %b"' % (batch.rows, batch.reason.encode())
    stages = batch.stages
    if stages is None:
        return why  # still running: a stream's head
    batch.note = b"preprocess;dur=%.3f, inference;dur=%.3f, postprocess;dur=%.3f, %b" % (
        1000 * stages.preprocess,
        1000 * stages.inference,
        1000 * stages.postprocess,
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
