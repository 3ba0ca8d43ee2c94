"""The process that holds the model while it is measured: user code stays out of the tool, and its death is a result.

It runs batches through the worker's own reading, stages and writing. Where CUDA is in use, each stage is timed until
the device has done its work, not until the call returned.
"""

import contextlib
import dataclasses
import os
import sys
import time
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.payload import Buffer
from shoal.tools.bare import batch_of, channel_of_parent, loaded, pipeline_of
from shoal.tools.profile.messages import Loaded, Ran, RunOnce, decode_order
from shoal.tools.samples import Sample
from shoal.tools.words import Load
from shoal.wire.messages import Answered, Ended, Failure, Pieces
from shoal.worker.failures import OUT_OF_RESOURCES
from shoal.worker.program import Program


def main() -> None:
    """Entry point: SOCKET_FD PARENT_PID."""
    channel = channel_of_parent()
    received = channel.receive()
    load = decode_order(received[0]) if received else None
    if not isinstance(load, Load):
        return
    began = time.perf_counter()
    program = loaded(channel, load, "profile")
    if program is None:
        return
    taken = time.perf_counter() - began
    channel.send(Loaded(program.handler, [stage.name for stage in program.stages], taken, resident()))
    bench = Bench(program, load.samples)
    while received := channel.receive():
        order = decode_order(received[0])
        if isinstance(order, RunOnce):
            channel.send(bench.run(order.size))


class Bench:
    """Runs batches of one program."""

    def __init__(self, program: Program, samples: Sequence[Sample]) -> None:
        stages = tuple(dataclasses.replace(stage, call=_finished(stage.call)) for stage in program.stages)
        self._pipeline = pipeline_of(dataclasses.replace(program, stages=stages))
        self._samples = samples
        self._number = 0

    def run(self, size: int) -> Ran:
        """Run one batch."""
        chosen = [self._samples[(self._number + place) % len(self._samples)] for place in range(size)]
        self._number += size
        ear = Ear()
        batch = batch_of(chosen, ear)
        synchronise()
        reset_peaks()
        began = time.perf_counter()
        self._pipeline.submit(batch)
        total = time.perf_counter() - began
        name, allocated = device_facts()
        failure = ear.failure
        return Ran(
            total,
            ear.stages,
            peak_resident(),
            allocated,
            name,
            failure.message if failure else "",
            failure is not None and failure.status == OUT_OF_RESOURCES,
        )


class Ear:
    """Hears what a front process would: times, and the first failure."""

    is_gone = False

    def __init__(self) -> None:
        self.stages = (0.0, 0.0, 0.0)
        self.failure: Failure | None = None

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        """Take a report of the pipeline."""
        if isinstance(message, Answered | Ended):
            self.stages = message.stages
        if isinstance(message, Ended):
            self.failure = self.failure or message.failure
        elif isinstance(message, Pieces):
            failures = [piece.failure for piece in message.pieces if piece.failure]
            self.failure = self.failure or (failures[0] if failures else None)


def _finished(call: Callable[[Any], Any]) -> Callable[[Any], Any]:
    """A stage that ends when the device has done what the stage asked of it."""

    def run(data: Any) -> Any:
        result = call(data)
        synchronise()
        return result

    return run


def synchronise() -> None:
    """Wait for the GPU, where the model uses one."""
    if (cuda := _cuda()) is not None:
        cuda.synchronize()


def device_facts() -> tuple[str, int]:
    """Give the name of the GPU and the most memory allocated on it since `reset_peaks`."""
    if (cuda := _cuda()) is None:
        return "", 0
    return str(cuda.get_device_name()), int(cuda.max_memory_allocated())


def reset_peaks() -> None:
    """Forget the most memory that was in use."""
    with contextlib.suppress(OSError):
        Path("/proc/self/clear_refs").write_text("5")
    if (cuda := _cuda()) is not None:
        cuda.reset_peak_memory_stats()


def peak_resident() -> int:
    """Give the most bytes resident since `reset_peaks`."""
    try:
        for row in Path("/proc/self/status").read_text().splitlines():
            if row.startswith("VmHWM:"):
                return int(row.split()[1]) * 1024
    except OSError:
        pass
    return resident()


def resident() -> int:
    """Give the bytes resident now."""
    try:
        return int(Path("/proc/self/statm").read_text().split()[1]) * os.sysconf("SC_PAGE_SIZE")
    except OSError:
        return 0


def _cuda() -> Any:
    """torch.cuda, once the model has imported torch and touched a device; we never do it for it."""
    torch: Any = sys.modules.get("torch")
    cuda = getattr(torch, "cuda", None)
    return cuda if cuda is not None and cuda.is_initialized() else None


if __name__ == "__main__":
    main()
