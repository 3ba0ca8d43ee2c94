"""A stream for each thread, so that copies and kernels of one stage overlap those of another."""

import threading
from collections.abc import Iterator
from contextlib import contextmanager

import torch

FIRST = -5  # the highest priority there is; the default is the lowest
_own = threading.local()


@contextmanager
def own_stream(device: torch.device, priority: int = 0) -> Iterator[None]:
    """Run what is inside on this thread's stream, and wait for it to end; on a CPU nothing needs either."""
    if device.type != "cuda":
        yield
        return
    streams: dict[tuple[torch.device, int], torch.cuda.Stream] | None = getattr(_own, "streams", None)
    if streams is None:
        streams = _own.streams = {}
    stream = streams.get((device, priority))
    if stream is None:
        stream = streams[device, priority] = torch.cuda.Stream(device, priority)  # type: ignore[no-untyped-call]
    with torch.cuda.device(device), torch.cuda.stream(stream):
        yield
    stream.synchronize()
