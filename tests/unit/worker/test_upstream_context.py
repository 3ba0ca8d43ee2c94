"""The contexts of other servers inside a worker: whose batch they speak of, and where metrics go."""

import threading
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import HandlerFailed
from shoal.upstream.ts.context import Context
from shoal.upstream.ts.metrics.metric_type_enum import MetricTypes
from shoal.wire.messages import Item, Measure, PartHead
from shoal.worker.handler import RequestView
from shoal.worker.items import Written
from shoal.worker.requests import Requests
from shoal.worker.upstream_context import Batches, Meter, OfMms, OfTorchServe, Processor
from tests.unit.worker.making import config, nothing


def requests(*ids: str) -> Requests:
    return Requests([Item([PartHead("body", "", 1)], id.encode()) for id in ids], RequestView)


@pytest.fixture
def batches() -> Batches:
    return Batches()


@pytest.fixture
def context(batches: Batches) -> OfTorchServe:
    return OfTorchServe(config(device="cuda:2", limit_image_pixels=False), "/m", None, batches, Meter(), "")


def test_it_is_torchserves_context(context: OfTorchServe) -> None:
    assert isinstance(context, Context)
    assert context.manifest is None
    assert context.model_yaml_config == {}
    assert context.system_properties["gpu_id"] == 2
    assert context.system_properties["limit_max_image_pixels"] is False
    assert context.request_ids == {} and context.request_processor == []


def test_each_thread_sees_its_own_batch(context: OfTorchServe, batches: Batches) -> None:
    batches.enter(requests("a", "b"), nothing)
    seen: list[Any] = []

    def elsewhere() -> None:
        seen.append(context.request_ids)  # a thread of the handler's own: the latest batch
        batches.enter(requests("c"), nothing)
        seen.append(context.request_ids)
        batches.leave()

    thread = threading.Thread(target=elsewhere)
    thread.start()
    thread.join()

    assert seen == [{0: "a", 1: "b"}, {0: "c"}]
    assert context.request_ids == {0: "a", 1: "b"}
    batches.leave()
    assert context.request_ids == {}


def test_requests_are_not_the_handlers_to_replace(context: OfTorchServe) -> None:
    with pytest.raises(AttributeError, match="for the worker to say"):
        context.request_ids = {0: "mine"}
    with pytest.raises(AttributeError, match="for the worker to say"):
        context.request_processor = []
    with pytest.raises(AttributeError, match="for the worker to say"):
        context.metrics.set_request_ids({0: "mine"})


def test_any_other_name_is_the_handlers(context: OfTorchServe, batches: Batches) -> None:
    context.requests = context.enter = "mine"  # type: ignore[attr-defined]
    batches.enter(requests("a"), nothing)

    assert context.request_ids == {0: "a"}


def test_looking_at_one_request_touches_no_other(context: OfTorchServe, batches: Batches) -> None:
    made = requests("a", "b")
    batches.enter(made, nothing)
    context.set_response_status(404, "no", 1)

    assert made.said(0) is None
    said = made.said(1)
    assert said is not None and (said.status, said.reason) == (404, "no")


def test_what_a_handler_says_can_travel() -> None:
    processor = Processor(Item([]))
    processor.report_status("404", None)  # type: ignore[arg-type]
    processor.add_response_property("Content-Type", "image/png")
    processor.add_response_property("x", 3)  # type: ignore[arg-type]
    processor.add_response_property("half", "\ud800")

    assert (processor.status, processor.reason, processor.content_type) == (404, "", "image/png")
    assert processor.headers == [("x", "3"), ("half", "?")]
    processor.report_status("teapot")  # type: ignore[arg-type]
    with pytest.raises(HandlerFailed, match="a status is a number"):
        _ = processor.status


def test_pieces_are_for_the_requests_they_name(context: OfTorchServe, batches: Batches) -> None:
    sent: list[Any] = []
    made = requests("a", "b", "c")
    batches.enter(made, sent.append)
    context._send_pieces({0: "x", 2: None}, "more", 200)
    batches.end_streams()

    assert sent == [[Written(b"x"), None, Written(b"null")]]
    assert made.said(1) is None
    assert context.get_response_headers(2) == {"ts_stream_next": "false"}


def test_a_piece_that_cannot_be_written_fails_the_batch(context: OfTorchServe, batches: Batches) -> None:
    batches.enter(requests("a"), nothing)
    with pytest.raises(HandlerFailed, match="Unsupported"):
        context._send_pieces({0: object()}, "more", 200)


def test_counters_add_up_gauges_keep_the_last_and_histograms_all() -> None:
    meter = Meter()
    for kind in (MetricTypes.COUNTER, MetricTypes.GAUGE, MetricTypes.HISTOGRAM):
        for value in (1, 2):
            meter.note(kind.value, "Count", kind, value, [("a", "b")], "r")
    meter.note("counter", "Count", MetricTypes.COUNTER, 4, [("a", "c")], "r")

    dimensions = [("a", "b")]
    assert meter.take() == [
        Measure("counter", "Count", "COUNTER", 3, dimensions, "r"),
        Measure("gauge", "Count", "GAUGE", 2, dimensions, "r"),
        Measure("counter", "Count", "COUNTER", 4, [("a", "c")], "r"),
        Measure("histogram", "Count", "HISTOGRAM", 1, dimensions, "r"),
        Measure("histogram", "Count", "HISTOGRAM", 2, dimensions, "r"),
    ]
    assert meter.take() == []


def test_values_of_many_threads_are_all_counted() -> None:
    meter = Meter()

    def count() -> None:
        for _ in range(500):
            meter.note("n", "Count", MetricTypes.COUNTER, 1, [], "")

    threads = [threading.Thread(target=count) for _ in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()

    assert [measure.value for measure in meter.take()] == [2000]


def test_mms_metrics_that_are_no_numbers_are_left_out(caplog: pytest.LogCaptureFixture) -> None:
    meter, batches = Meter(), Batches()
    context = OfMms(config(), "/m", {}, batches, meter)
    batches.enter(requests("a"), nothing)
    context.metrics.add_error("Stings", "ouch")
    context.metrics.add_error("Stings", 2)

    assert meter.take() == [Measure("Stings", "unit", "GAUGE", 2, [("Level", "Error")], "")]
    assert "ouch" in caplog.text


def test_a_metrics_file_that_is_wrong_is_refused(tmp_path: Path) -> None:
    with pytest.raises(OSError, match=r"nope\.yaml"):
        OfTorchServe(config(), "/m", None, Batches(), Meter(), str(tmp_path / "nope.yaml"))
