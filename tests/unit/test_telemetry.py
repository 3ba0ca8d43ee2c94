import io
import json
import logging
import sys
from collections.abc import Iterator

import pytest
from hypothesis import given
from hypothesis import strategies as st
from prometheus_client.parser import text_string_to_metric_families

from shoal.core.batch import Batch
from shoal.errors import HandlerFailed
from shoal.payload import Result
from shoal.telemetry import (
    ROWS,
    SECONDS,
    Histogram,
    JsonLines,
    Metrics,
    ModelFacts,
    ModelStats,
    PlainLines,
    set_up_logs,
)
from tests.support import ask

# -- numbers -------------------------------------------------------------------------------------------------------


def test_a_value_is_counted_at_or_below_its_bound() -> None:
    histogram = Histogram((1, 2, 5))
    for value in (0.5, 1.0, 1.5, 5.0, 9.0):
        histogram.observe(value)

    assert histogram.cumulative() == [("1", 2.0), ("2", 3.0), ("5", 4.0), ("+Inf", 5.0)]
    assert histogram.total == 17.0


@given(values=st.lists(st.floats(0, 100)))
def test_the_counts_of_a_histogram_only_grow_to_the_number_of_values(values: list[float]) -> None:
    histogram = Histogram(SECONDS)
    for value in values:
        histogram.observe(value)
    rows = histogram.cumulative()

    assert [count for _, count in rows] == sorted(count for _, count in rows)
    assert rows[-1] == ("+Inf", float(len(values)))
    for bound, count in rows[:-1]:
        assert count == sum(value <= float(bound) for value in values)


@pytest.mark.parametrize("bounds", [SECONDS, ROWS])
def test_bounds_rise_and_are_written_exactly(bounds: tuple[float, ...]) -> None:
    assert list(bounds) == sorted(set(bounds))
    assert [float(bound) for bound, _ in Histogram(bounds).cumulative()[:-1]] == list(bounds)


def ended_batch() -> Batch:
    requests = [ask(arrived=1.0, rows=2), ask(arrived=1.5), ask(arrived=2.0)]
    batch = Batch(1, requests, "full", 2.0)
    batch.deliver(0, Result(b"yes"), True, 2.25)
    batch.deliver(1, HandlerFailed("no"), True, 2.25)
    requests[2].withdraw(2.1)
    batch.close(2.25, lambda: HandlerFailed("no"))
    return batch


def test_a_batch_is_counted_once_with_all_that_happened_in_it() -> None:
    stats = ModelStats("m", "1.0")
    stats.record(ended_batch(), 2.25)

    assert (stats.answered, stats.failed) == (1, 1)
    assert stats.reasons == {"full": 1}
    assert (stats.batch_rows.total, sum(stats.batch_rows.counts)) == (4, 1)
    assert (stats.compute_time.total, sum(stats.compute_time.counts)) == (0.25, 1)
    assert (stats.queue_time.total, sum(stats.queue_time.counts)) == (1.5, 3)


def samples(*facts: ModelFacts) -> dict[tuple[str, tuple[str, ...]], float]:
    page = Metrics(lambda: facts, 1_700_000_000.0, spent=lambda: 12.5).page().decode()
    return {
        (
            sample.name,
            tuple(value for _, value in sorted(sample.labels.items(), key=lambda item: item[0] == "le")),
        ): sample.value
        for family in text_string_to_metric_families(page)
        for sample in family.samples
    }


def test_the_page_is_what_prometheus_reads() -> None:
    stats = ModelStats("m", "1.0")
    stats.record(ended_batch(), 2.25)
    stats.expired, stats.withdrawn, stats.refused, stats.restarts = 3, 4, 5, 6
    got = samples((stats, 7, 8, 9))
    model = ("m", "1.0")

    for outcome, count in (("answered", 1), ("failed", 1), ("expired", 3), ("withdrawn", 4), ("refused", 5)):
        assert got["shoal_requests_total", (*model, outcome)] == count
    assert got["shoal_batches_total", (*model, "full")] == 1
    assert got["shoal_worker_restarts_total", model] == 6
    assert got["shoal_queue_requests", model] == 7
    assert got["shoal_batches_running", model] == 8
    assert got["shoal_instances", model] == 9
    assert got["shoal_start_time_seconds", ()] == 1_700_000_000
    assert got["shoal_core_cpu_seconds_total", ()] == 12.5
    assert got["shoal_queue_seconds_count", model] == 3
    assert got["shoal_queue_seconds_sum", model] == 1.5
    assert got["shoal_compute_seconds_bucket", (*model, "0.1")] == 0
    assert got["shoal_compute_seconds_bucket", (*model, "0.25")] == 1
    assert got["shoal_batch_rows_bucket", (*model, "3")] == 0
    assert got["shoal_batch_rows_bucket", (*model, "4")] == 1


def test_models_and_versions_are_counted_apart() -> None:
    one, two = ModelStats("m", "1.0"), ModelStats("m", "2.0")
    two.answered = 5
    got = samples((one, 0, 0, 0), (two, 0, 0, 0))

    assert got["shoal_requests_total", ("m", "1.0", "answered")] == 0
    assert got["shoal_requests_total", ("m", "2.0", "answered")] == 5


def test_a_server_without_models_has_a_page() -> None:
    assert samples() == {("shoal_start_time_seconds", ()): 1_700_000_000, ("shoal_core_cpu_seconds_total", ()): 12.5}


@given(name=st.text(st.characters(exclude_categories=["Cs"])))
def test_no_name_can_break_the_page(name: str) -> None:
    stats = ModelStats(name, "1.0")
    page = Metrics(lambda: [(stats, 7, 0, 0)], 0.0).page().decode()
    (line,) = [line for line in page.split("\n") if line.startswith("shoal_queue_requests{")]

    assert line.endswith("} 7.0")


# -- logs ----------------------------------------------------------------------------------------------------------

NASTY = "bad\r\n12:00:00 error   forged\x1b[31m\x00\x7f\x85\x9b31m\u2028\u2029\x0b\x0c\x1c"


def record(
    message: str, fields: dict[str, object] | None = None, *, error: BaseException | None = None
) -> logging.LogRecord:
    exc_info = (type(error), error, error.__traceback__) if error is not None else None
    made = logging.LogRecord("shoal.test", logging.WARNING, __file__, 1, "%s", (message,), exc_info)
    if fields is not None:
        made.fields = fields
    return made


def raised(text: str) -> ValueError:
    try:
        raise ValueError(text)
    except ValueError as error:
        return error


def test_a_json_line_is_one_object_with_the_records_own_fields() -> None:
    line = json.loads(JsonLines().format(record("hello", {"model": "m", "restarts": 2, "path": object})))

    assert line["message"] == "hello"
    assert (line["level"], line["logger"]) == ("warning", "shoal.test")
    assert (line["model"], line["restarts"]) == ("m", 2)
    assert line["path"] == "<class 'object'>"
    assert line["time"].endswith("Z")


def test_a_json_line_keeps_a_traceback_inside_itself() -> None:
    text = JsonLines().format(record("failed", error=raised("why")))

    assert "\n" not in text
    assert json.loads(text)["traceback"].endswith("ValueError: why")


@pytest.mark.parametrize("text", [NASTY, "größe 漢字 🐟", "tab\there", 'quote " and \\'])
def test_a_json_line_gives_back_exactly_what_was_said(text: str) -> None:
    assert json.loads(JsonLines().format(record(text, {"field": text}))) | {"time": ""} == {
        "time": "",
        "level": "warning",
        "logger": "shoal.test",
        "message": text,
        "field": text,
    }


def test_a_plain_line_has_time_level_message_and_fields() -> None:
    text = PlainLines().format(record("hello größe", {"model": "m", "worker": "w", "traceback": ""}))

    assert text[2] == text[5] == ":"
    assert text[9:] == "warning hello größe  [model=m worker=w]"


def test_a_plain_line_without_fields_ends_with_its_message() -> None:
    assert PlainLines().format(record("hello")).endswith("warning hello")


@pytest.mark.parametrize("form", [JsonLines(), PlainLines()])
@given(text=st.text() | st.just(NASTY))
def test_nothing_said_can_begin_another_line_or_steer_a_terminal(form: logging.Formatter, text: str) -> None:
    line = form.format(record(text, {"field": text}))

    assert len(line.splitlines()) == 1
    assert line.replace("\t", "").isprintable()


@pytest.mark.parametrize("origin", ["raised here", "told by a worker"])
def test_nothing_in_a_traceback_can_pass_for_a_line_of_its_own(origin: str) -> None:
    error = raised(NASTY)
    told = f"Traceback (most recent call last):\n  File x\nValueError: {NASTY}"
    made = record("failed", error=error) if origin == "raised here" else record("failed", {"traceback": told})
    first, *rest = PlainLines().format(made).split("\n")

    assert first.endswith("failed")
    assert any("Traceback" in line for line in rest)
    assert any("ValueError: bad" in line for line in rest)
    for line in rest:
        assert line.startswith("    ")
        assert line.isprintable()


@pytest.fixture
def root() -> Iterator[logging.Logger]:
    root = logging.getLogger("shoal")
    before = root.handlers[:], root.level, root.propagate
    yield root
    root.handlers[:], level, root.propagate = before
    root.setLevel(level)


@pytest.mark.parametrize(("form", "kind"), [("json", JsonLines), ("plain", PlainLines)])
def test_logs_go_to_standard_error_in_the_form_asked_for(
    root: logging.Logger, monkeypatch: pytest.MonkeyPatch, form: str, kind: type[logging.Formatter]
) -> None:
    stream = io.StringIO()
    monkeypatch.setattr(sys, "stderr", stream)
    set_up_logs("info", form)
    set_up_logs("warning", form)
    logging.getLogger("shoal.pool").info("quiet")
    logging.getLogger("shoal.pool").warning("loud")

    assert [type(handler.formatter) for handler in root.handlers] == [kind]
    assert stream.getvalue().count("loud") == 1
    assert "quiet" not in stream.getvalue()
    assert not root.propagate
