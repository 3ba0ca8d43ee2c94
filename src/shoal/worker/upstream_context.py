"""The contexts of TorchServe and MMS inside a worker: their classes, speaking of the batch at hand."""

import logging
import threading
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.config.model import ModelConfig
from shoal.errors import HandlerFailed
from shoal.upstream import mms, ts
from shoal.upstream.mms.context import Context as MmsContext
from shoal.upstream.mms.metrics.metrics_store import MetricsStore
from shoal.upstream.ts.context import Context as TorchServeContext
from shoal.upstream.ts.context import RequestProcessor
from shoal.upstream.ts.metrics.dimension import Dimension
from shoal.upstream.ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl
from shoal.upstream.ts.metrics.metric_type_enum import MetricTypes
from shoal.upstream.ts.metrics.unit import word
from shoal.wire.messages import Item, Measure
from shoal.worker.handler import Bound, Emit, gpu_id
from shoal.worker.requests import Requests
from shoal.worker.upstream_answers import write

STREAM_HEADER = "ts_stream_next"
_log = logging.getLogger("shoal.worker")


class Processor(RequestProcessor):
    """One request of a batch, and what the handler says about its answer."""

    def __init__(self, item: Item) -> None:
        super().__init__(request_headers(item))

    @property
    def status(self) -> int:
        """The status the handler chose."""
        try:
            return int(self._status_code)
        except (TypeError, ValueError):
            raise HandlerFailed(f"a status is a number, and the handler chose {self._status_code!r}") from None

    @property
    def reason(self) -> str:
        """The reason phrase the handler chose; empty when it chose none."""
        return _text(self._reason_phrase or "")

    @property
    def content_type(self) -> str:
        """The content type the handler chose; empty when it chose none."""
        return next((_text(value) for key, value in self._response_header.items() if _is_content_type(key)), "")

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers the handler chose, without the content type."""
        return [(_text(key), _text(value)) for key, value in self._response_header.items() if not _is_content_type(key)]


def request_headers(item: Item) -> dict[str, Any]:
    """A request's headers as upstream shows them: with an entry for each part, which a real header overrides."""
    headers: dict[str, Any] = {
        part.name or "body": {"content-type": part.content_type.partition(";")[0].strip()} for part in item.parts
    }
    for key, value in item.headers:
        headers[key.decode("latin-1")] = value.decode("latin-1")
    return headers


class Batches(Bound):
    """The batch at hand, as both servers show it."""

    def enter(self, requests: Requests, emit: Emit) -> None:
        """Make these the batch at hand."""
        requests.show_as(Processor)
        super().enter(requests, emit)

    def ids(self) -> dict[int, str]:
        """Index to id of each request."""
        requests = self.requests
        return {index: requests.id(index) for index in range(len(requests))}

    def processors(self) -> list[Processor]:
        """All requests."""
        requests = self.requests
        return [requests.view(index) for index in range(len(requests))]

    def processor(self, idx: int) -> Processor:
        """One request."""
        view: Processor = self.requests.view(idx)
        return view

    def send_pieces(self, values: Mapping[int, Any], message: str, code: int) -> None:
        """Send a piece of these requests' answers; a code other than 200 fails the batch instead."""
        if code != 200:
            raise HandlerFailed(str(message), status=code)
        requests, emit = self._at_hand
        pieces: list[Any] = [None] * len(requests)
        for index, value in values.items():
            pieces[index] = write(value)
            requests.view(index).add_response_property(STREAM_HEADER, "true")
        emit(pieces)

    def end_streams(self) -> None:
        """Say of the answers that were begun in pieces that what comes now is their last."""
        requests = self.requests
        if requests.is_untouched:
            return
        for index in range(len(requests)):
            view = requests.said(index)
            if isinstance(view, Processor) and STREAM_HEADER in view.get_response_headers():
                view.add_response_property(STREAM_HEADER, "false")


class _WithIds:
    """Whoever has the ids of the batch at hand."""

    _batches: Batches

    @property
    def request_ids(self) -> Any:
        """Index to id of each request."""
        return self._batches.ids()

    @request_ids.setter
    def request_ids(self, ids: Any) -> None:
        _only_the_worker(ids)


class _OfBatch(_WithIds):
    """What both contexts take from the batch at hand; every other name on them is the handler's to use."""

    @property
    def _request_processor(self) -> Any:
        return self._batches.processors()

    @_request_processor.setter
    def _request_processor(self, processors: Any) -> None:
        _only_the_worker(processors)

    def _processor(self, idx: int) -> Processor:
        return self._batches.processor(idx)

    def _send_pieces(self, values: Mapping[int, Any], message: str, code: int) -> None:
        self._batches.send_pieces(values, message, code)


class OfTorchServe(_OfBatch, TorchServeContext):
    """TorchServe's context."""

    def __init__(
        self,
        config: ModelConfig,
        model_dir: str,
        manifest: dict[str, Any] | None,
        batches: Batches,
        meter: "Meter",
        metrics_file: str,
    ) -> None:
        self._batches = batches
        super().__init__(
            config.name,
            model_dir,
            manifest,
            config.batching.batch_size or 1,
            gpu_id(config.device),
            ts.__version__,
            config.limit_image_pixels,
            _Metrics(batches, config.name, meter, metrics_file),
            config.parameters,
        )


class OfMms(_OfBatch, MmsContext):
    """MMS's context."""

    def __init__(
        self,
        config: ModelConfig,
        model_dir: str,
        manifest: dict[str, Any] | None,
        batches: Batches,
        meter: "Meter",
    ) -> None:
        self._batches = batches
        batch_size = config.batching.batch_size or 1
        super().__init__(config.name, model_dir, manifest, batch_size, gpu_id(config.device), mms.__version__)
        self.model_yaml_config = config.parameters
        self.metrics = _Store(batches, config.name, meter)


UpstreamContext = OfTorchServe | OfMms


class Meter:
    """The handler's metrics since they were last taken: sums of counters, last values of gauges, all of histograms."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._latest: dict[tuple[Any, ...], Measure] = {}
        self._all: list[Measure] = []

    def note(
        self, name: str, unit: str, kind: MetricTypes, value: Any, dimensions: Sequence[tuple[str, str]], ids: str
    ) -> None:
        """Take one value; one that cannot be is logged, for a metric never fails a prediction."""
        try:
            number = float(value)
        except (TypeError, ValueError):
            _log.error("metric %s was given %r, which is not a number", name, value)
            return
        measure = Measure(name, unit, kind.name, number, list(dimensions), ids)
        if kind is MetricTypes.HISTOGRAM:
            with self._lock:
                self._all.append(measure)
            return
        key = (name, unit, kind, tuple(dimensions), ids)
        with self._lock:
            if kind is MetricTypes.COUNTER and (before := self._latest.get(key)) is not None:
                measure = Measure(name, unit, kind.name, before.value + measure.value, list(dimensions), ids)
            self._latest[key] = measure

    def take(self) -> list[Measure]:
        """Hand over what there is."""
        if not self._latest and not self._all:
            return []
        with self._lock:
            taken = [*self._latest.values(), *self._all]
            self._latest, self._all = {}, []
        return taken


class _Metrics(_WithIds, MetricsCacheYamlImpl):
    """`context.metrics` of TorchServe: values go to the meter, with the ids of the batch at hand."""

    def __init__(self, batches: Batches, model_name: str, meter: Meter, metrics_file: str) -> None:
        self._batches = batches
        super().__init__(metrics_file, sink=meter.note)
        self.model_name = model_name
        if metrics_file:
            self.initialize_cache()


class _Store(_WithIds, MetricsStore):
    """`context.metrics` of MMS: values go to the meter, with the ids of the batch at hand."""

    def __init__(self, batches: Batches, model_name: str, meter: Meter) -> None:
        self._batches = batches
        self._meter = meter
        super().__init__(None, model_name)

    def _keep(
        self,
        name: str,
        value: Any,
        request_id: str | None,
        unit: str | None,
        labels: list[Dimension],
        method: str | None,
    ) -> None:
        kind = MetricTypes.COUNTER if method == "counter" else MetricTypes.GAUGE
        dimensions = [(label.name, str(label.value)) for label in labels]
        self._meter.note(name, word(unit), kind, value, dimensions, request_id or "")


def _only_the_worker(value: object) -> None:
    if value is not None:
        raise AttributeError("which requests are at hand is for the worker to say")


def _is_content_type(name: Any) -> bool:
    return str(name).lower() == "content-type"


def _text(value: Any) -> str:
    """A value as text that can travel."""
    return str(value).encode(errors="replace").decode()
