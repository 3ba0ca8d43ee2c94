"""Measuring: what a server tells of itself: its own series always, TorchServe's where it stands in for it."""

import asyncio
import contextlib
import socket
import time
from collections.abc import Callable, Iterable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING

from shoal.config.server import ServerConfig
from shoal.errors import ConfigError
from shoal.series.catalogue import BUILT_IN, Catalogue, read_catalogue
from shoal.series.recorder import Measure, Recorder, Write
from shoal.series.system import Machine
from shoal.telemetry import Metrics, ModelStats

if TYPE_CHECKING:
    from shoal.core.batch import Batch

TICK = 1.0  # s between two looks at how many answers there were


class Measuring:
    """Feeds the recorder of TorchServe's metrics, if there is one, and makes the metrics page."""

    def __init__(
        self,
        config: ServerConfig,
        metrics: Metrics,
        answers: Callable[[], Sequence[int]],
        write: Write,
        *,
        gpus: int = 0,
        is_default: Callable[[str, str], bool] = lambda model, version: False,
        wall: Callable[[], float] = time.time,
    ) -> None:
        self._metrics = metrics
        self._answers = answers
        self._is_default = is_default
        self._interval = config.metric_time_interval
        self._machine = None if config.disable_system_metrics else Machine(gpus=gpus)
        self._recorder: Recorder | None = None
        self._task: asyncio.Task[None] | None = None
        if config.compat == "torchserve":
            self._recorder = Recorder(
                config.metrics_mode,
                _catalogue(config.metrics_config),
                socket.gethostname(),
                write,
                wall,
                detects=config.model_metrics_auto_detect,
            )

    def page(self, wanted: Iterable[str] = ()) -> bytes:
        """Give the metrics page; with names, only those of TorchServe's series."""
        names = list(wanted)
        if self._recorder is None:
            return self._metrics.page()
        self._recorder.answers(self._answers())
        series = self._recorder.page(names).encode()
        return series if names else series + self._metrics.page()

    def watch(self, stats: ModelStats) -> None:
        """Hear of the batches of a model; requests for the version that a bare name means are counted as `default`."""
        recorder, is_default = self._recorder, self._is_default

        def hear(stats: ModelStats, batch: "Batch", now: float) -> None:
            assert recorder is not None
            version = "default" if is_default(stats.model, stats.version) else stats.version
            recorder.batch(stats.model, version, batch, now)

        if recorder is not None:
            stats.on_batch.append(hear)

    def measured(self, measures: Iterable[Measure]) -> None:
        """Take what a handler reported."""
        if self._recorder is not None:
            self._recorder.measured(measures)

    def loaded(self, worker: str, seconds: float) -> None:
        """Take how long a worker took to load its model."""
        if self._recorder is not None:
            self._recorder.loaded(worker, seconds)

    def start(self) -> None:
        """Begin to look at the machine and at the answers now and then."""
        if self._recorder is not None:
            self._task = asyncio.get_running_loop().create_task(self._look(self._recorder))

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _look(self, recorder: Recorder) -> None:
        due = 0.0
        while True:
            recorder.answers(self._answers())
            if self._machine is not None and (now := time.monotonic()) >= due:
                due = now + self._interval
                recorder.system(await asyncio.to_thread(self._machine.read))
            await asyncio.sleep(TICK)


def _catalogue(path: str) -> Catalogue:
    if not path:
        return BUILT_IN
    try:
        return read_catalogue(Path(path).read_text("utf-8"), path)
    except (OSError, UnicodeDecodeError) as error:
        raise ConfigError(f"cannot read metrics_config {path}: {error}") from None
