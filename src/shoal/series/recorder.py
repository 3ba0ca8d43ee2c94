"""Recorder: takes what happens and keeps it as TorchServe's metrics: on the page, or as log lines, as the mode says."""

from collections.abc import Callable, Iterable, Sequence
from typing import TYPE_CHECKING, Literal, Protocol

from shoal.series.catalogue import LEGACY, Catalogue, Declared, Kind
from shoal.series.values import Values, page

if TYPE_CHECKING:
    from shoal.core.batch import Batch

Mode = Literal["prometheus", "log", "legacy"]
Log = Literal["TS_METRICS", "MODEL_METRICS"]
Write = Callable[[Log, Sequence[str]], None]
KINDS: tuple[Kind, ...] = ("COUNTER", "GAUGE", "HISTOGRAM")
MOST_DETECTED = 1000  # metrics that were declared nowhere


class Measure(Protocol):
    """A value that a handler reported."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def unit(self) -> str: ...  # noqa: D102
    @property
    def kind(self) -> str: ...  # noqa: D102
    @property
    def value(self) -> float: ...  # noqa: D102
    @property
    def dimensions(self) -> Sequence[tuple[str, str]]: ...  # noqa: D102
    @property
    def request_ids(self) -> str: ...  # noqa: D102


class Recorder:
    """One server's metrics in TorchServe's form. `now` is Unix time."""

    def __init__(
        self,
        mode: Mode,
        catalogue: Catalogue,
        hostname: str,
        write: Write,
        now: Callable[[], float],
        *,
        detects: bool = False,
    ) -> None:
        self._mode = mode
        self._hostname = hostname
        self._write = write
        self._now = now
        self._detects = detects
        self._server = {name: Values(declared) for name, declared in catalogue.server.items()}
        self._model = {name: Values(declared) for name, declared in catalogue.model.items()}
        self._host = {"Level": "Host", "Hostname": hostname}
        self._classes = [0, 0, 0]  # answers of 2xx, 4xx and the rest that were told already

    def page(self, wanted: Iterable[str] = ()) -> str:
        """The metrics page; empty where metrics go to the log."""
        if self._mode == "log":
            return ""
        every = {**self._server, **self._model}
        shown = every.values() if self._mode == "prometheus" else [every[name] for name in LEGACY if name in every]
        return page(shown, wanted)

    def batch(self, model: str, version: str, batch: "Batch", now: float) -> None:
        """Count the requests of a batch that has ended; `now` is the clock that its marks are in."""
        waits = [batch.left - request.arrived for request in batch.requests]
        labels = {"model_name": model, "model_version": version, "hostname": self._hostname}
        taken, stages = now - batch.left, batch.stages
        inside = stages.preprocess + stages.inference + stages.postprocess if stages else taken
        self._tell(
            [
                ("ts_inference_requests_total", len(waits), labels),
                ("ts_inference_latency_microseconds", 1e6 * (sum(waits) + batch.answered * taken), labels),
                ("ts_queue_latency_microseconds", 1e6 * sum(waits), labels),
                *(("QueueTime", 1000 * wait, self._host) for wait in waits),
                ("WorkerThreadTime", 1000 * max(0.0, taken - inside), self._host),
            ]
        )

    def loaded(self, worker: str, seconds: float) -> None:
        """Note how long a worker took to load its model."""
        self._tell([("WorkerLoadTime", 1000 * seconds, {"WorkerName": worker, **self._host})])

    def answers(self, classes: Sequence[int]) -> None:
        """Note how many answers of each class of status there were so far: counts for 0xx to 5xx."""
        good, refused = classes[2], classes[4]
        new = [good, refused, sum(classes) - good - refused]
        names = ("Requests2XX", "Requests4XX", "Requests5XX")
        rows = [
            (name, count - told, self._host)
            for name, count, told in zip(names, new, self._classes, strict=True)
            if count > told
        ]
        self._classes = new
        self._tell(rows)

    def system(self, rows: Sequence[tuple[str, float, dict[str, str]]]) -> None:
        """Note measurements of the machine: name, value, labels besides the host's."""
        self._tell([(name, value, {**self._host, **labels}) for name, value, labels in rows])

    def measured(self, measures: Iterable[Measure]) -> None:
        """Note what a handler reported; what is declared nowhere is dropped unless it is to be detected."""
        lines = []
        for measure in measures:
            values = self._model.get(measure.name)
            if values is None:
                values = self._detected(measure)
            if values is None:
                continue
            labels = dict(measure.dimensions)
            values.take({**labels, "Hostname": self._hostname}, measure.value)
            if self._mode != "prometheus":
                ids = f",requestID:{measure.request_ids}" if measure.request_ids else ""
                lines.append(self._line(values.declared, measure.value, labels, ids))
        if lines:
            self._write("MODEL_METRICS", lines)

    def _detected(self, measure: Measure) -> Values | None:
        if not self._detects or len(self._model) >= MOST_DETECTED:
            return None
        kind: Kind = next((kind for kind in KINDS if kind == measure.kind), "GAUGE")
        names = (*(name for name, _ in measure.dimensions), "Hostname")
        values = self._model[measure.name] = Values(Declared(measure.name, kind, measure.unit, names))
        return values

    def _tell(self, rows: Iterable[tuple[str, float, dict[str, str]]]) -> None:
        lines = []
        for name, value, labels in rows:
            values = self._server.get(name)
            if values is None:
                continue  # the operator's catalogue leaves it out
            values.take(labels, value)
            if self._mode == "log" or (self._mode == "legacy" and name not in LEGACY):
                lines.append(self._line(values.declared, value, labels, ""))
        if lines:
            self._write("TS_METRICS", lines)

    def _line(self, declared: Declared, value: float, labels: dict[str, str], ids: str) -> str:
        pairs = ",".join(f"{name}:{labels.get(name, '')}" for name in declared.dimensions if name.lower() != "hostname")
        return (
            f"{declared.name}.{declared.unit}:{round(value, 3)}|#{pairs}"
            f"|#hostname:{self._hostname}{ids},timestamp:{int(self._now())}"
        )
