"""Measures a model: starts the process that holds it, asks for batch after batch, keeps what came back."""

import contextlib
import os
import signal
import socket
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator, Sequence
from typing import IO, Any

import msgspec

from shoal.config.environment import environment_of
from shoal.config.model import ModelConfig
from shoal.errors import LoadFailed, ProtocolError, ServingError
from shoal.tools.machine import available_memory
from shoal.tools.profile.messages import Loaded, Ran, RunOnce, decode_report
from shoal.tools.profile.rules import Limits, Row, can_repeat, disturbed, is_enough, row_of, why_stop
from shoal.tools.samples import Sample
from shoal.tools.words import Load, Unloadable
from shoal.wire.channel import BlockingChannel

STAGES = ("preprocess", "inference", "postprocess")
PATIENCE = 60.0  # s over the time limit before a batch that does not end is given up


class Gone(ServingError):
    """The process that held the model has ended."""


class Measured(msgspec.Struct):
    """What has been found so far; whole at any moment, so that an interruption loses nothing."""

    handler: str
    loading: float  # s
    memory: int  # bytes that the loaded model takes
    device: str = ""
    rows: list[Row] = []
    stopped: str = ""  # why it ended before the last size; empty: it did not


class Holder:
    """The process with the model in it."""

    def __init__(
        self, process: "subprocess.Popen[bytes]", sock: socket.socket, log: IO[bytes], decode: Callable[[Any], Any]
    ) -> None:
        self._decode = decode
        self._process = process
        self._socket = sock
        self._channel = BlockingChannel(sock)
        self._log = log

    def ask(self, word: msgspec.Struct, timeout: float) -> Any:
        """Say something and wait for the answer; Gone when there will be none."""
        self._socket.settimeout(timeout)
        try:
            self._channel.send(word)
            received = self._channel.receive()
        except TimeoutError:
            raise Gone(f"it gave no answer in {timeout:.0f} s") from None
        except (OSError, ProtocolError):
            received = None
        if received is None:
            raise Gone(self._how())
        return self._decode(received[0])

    def _how(self) -> str:
        try:
            code = self._process.wait(10)
        except subprocess.TimeoutExpired:
            return "it closed its connection"
        if code == -signal.SIGKILL:
            return "its process was killed, most likely for want of memory"
        how = f"was ended by {signal.Signals(-code).name}" if code < 0 else f"exited with code {code}"
        self._log.seek(0)
        lines = self._log.read().decode(errors="replace").strip().splitlines()
        return f"its process {how}" + (f": {lines[-1]}" if lines else "")


@contextlib.contextmanager
def holding(
    config: ModelConfig, child: str = "shoal.tools.profile.child", decode: Callable[[Any], Any] = decode_report
) -> Iterator[Holder]:
    """Start a process for the model; it is gone when the block is left, whatever it was doing."""
    ours, theirs = socket.socketpair()
    with tempfile.TemporaryFile() as log, ours:
        try:
            process = subprocess.Popen(  # noqa: S603 - our own module
                [
                    *(config.python or sys.executable, "-P", "-m", child),
                    *map(str, (theirs.fileno(), os.getpid())),
                ],
                pass_fds=[theirs.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                env=environment_of(config, os.environ),
                process_group=0,  # Ctrl-C is ours to act on
            )
        finally:
            theirs.close()
        try:
            yield Holder(process, ours, log, decode)
        finally:
            process.kill()
            process.wait()


def load(holder: Holder, config: ModelConfig, samples: Sequence[Sample]) -> Measured:
    """Have the model loaded; LoadFailed says what is wrong with it."""
    try:
        report = holder.ask(Load(msgspec.to_builtins(config), list(samples)), config.startup_timeout)
    except Gone as error:
        raise LoadFailed(f"{config.name} could not be loaded: {error}") from None
    if isinstance(report, Unloadable):
        raise LoadFailed(report.message, report.traceback)
    assert isinstance(report, Loaded)
    return Measured(report.handler, report.seconds, report.memory)


def measure(
    holder: Holder,
    found: Measured,
    sizes: Sequence[int],
    limits: Limits,
    on_run: Callable[[int, float], None],
) -> None:
    """Fill in `found`, size after size; `on_run` hears of each run the size and how far that size is."""
    began = time.monotonic()
    size = 0
    try:
        for size in sizes:
            found.stopped = why_stop(found.rows, size, time.monotonic() - began, limits, available_memory())
            if found.stopped:
                break
            found.rows.append(_measure_size(holder, found, size, limits, on_run))
        for row in disturbed(found.rows):
            if not can_repeat(row, time.monotonic() - began, limits):
                break
            size = row.size
            again = _measure_size(holder, found, size, limits, on_run)
            if again.total < row.total:
                found.rows[found.rows.index(row)] = again
    except (Gone, Refused) as error:
        found.stopped = f"batch size {size}: {error}"


class Refused(ServingError):
    """The handler failed a batch."""


def _measure_size(
    holder: Holder, found: Measured, size: int, limits: Limits, on_run: Callable[[int, float], None]
) -> Row:
    def run() -> Ran:
        report = holder.ask(RunOnce(size), limits.total + PATIENCE)
        assert isinstance(report, Ran)
        if report.failure:
            raise Refused("out of memory" if report.is_out_of_memory else report.failure)
        return report

    for _ in range(1 if found.rows else max(1, limits.warmup)):
        run()
        on_run(size, 0.0)
    totals: list[float] = []
    stages: dict[str, list[float]] = {name: [] for name in STAGES}
    memory = device_memory = 0
    while not is_enough(totals, limits):
        ran = run()
        totals.append(ran.total)
        for name, taken in zip(STAGES, ran.stages, strict=True):
            stages[name].append(taken)
        memory = max(memory, ran.memory - found.memory)
        device_memory = max(device_memory, ran.device_memory)
        found.device = ran.device
        on_run(size, min(len(totals) / limits.least_runs, sum(totals) / limits.per_size, 1.0))
    return row_of(size, totals, stages, memory, device_memory)
