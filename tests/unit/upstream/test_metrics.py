"""The calls behind `context.metrics`: which value, unit, type, dimensions and requests each of them hands on."""

import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

from shoal.upstream.mms.metrics.metrics_store import MetricsStore as MmsStore
from shoal.upstream.ts.metrics.dimension import Dimension
from shoal.upstream.ts.metrics.metric import Metric
from shoal.upstream.ts.metrics.metric_cache_errors import (
    MetricsCacheIOError,
    MetricsCacheKeyError,
    MetricsCachePyYamlError,
    MetricsCacheTypeError,
    MetricsCacheValueError,
)
from shoal.upstream.ts.metrics.metric_cache_yaml_impl import MetricsCacheYamlImpl
from shoal.upstream.ts.metrics.metric_encoder import MetricEncoder
from shoal.upstream.ts.metrics.metric_type_enum import MetricTypes
from shoal.upstream.ts.metrics.metrics_store import MetricsStore
from shoal.upstream.ts.metrics.unit import Units

MODEL = [("ModelName", "bees"), ("Level", "Model")]
OAK = Dimension("Tree", "oak")


class Cache(MetricsCacheYamlImpl):
    """A cache that keeps what it hands on."""

    def __init__(self, path: str = "") -> None:
        self.noted: list[tuple[Any, ...]] = []
        super().__init__(path, sink=lambda *noted: self.noted.append(noted))
        self.model_name = "bees"
        self.set_request_ids({0: "r0", 1: "r1"})


@pytest.mark.parametrize(
    ("call", "noted"),
    [
        (lambda m: m.add_counter("N", 2), ("N", "Count", "COUNTER", 2, MODEL, "r0,r1")),
        (lambda m: m.add_counter("N", 2, 1), ("N", "Count", "COUNTER", 2, MODEL, "r1")),
        (lambda m: m.add_counter("N", 2, 7), ("N", "Count", "COUNTER", 2, MODEL, "r0,r1")),
        (lambda m: m.add_time("N", 1.5), ("N", "Milliseconds", "GAUGE", 1.5, MODEL, "r0,r1")),
        (lambda m: m.add_time("N", 1.5, 0, "s"), ("N", "Seconds", "GAUGE", 1.5, MODEL, "r0")),
        (lambda m: m.add_size("N", 1), ("N", "Megabytes", "GAUGE", 1, MODEL, "r0,r1")),
        (lambda m: m.add_size("N", 1, None, "kB"), ("N", "Kilobytes", "GAUGE", 1, MODEL, "r0,r1")),
        (lambda m: m.add_size("N", 1, unit="GB"), ("N", "Gigabytes", "GAUGE", 1, MODEL, "r0,r1")),
        (lambda m: m.add_size("N", 1, unit="B"), ("N", "Bytes", "GAUGE", 1, MODEL, "r0,r1")),
        (lambda m: m.add_percent("N", 50), ("N", "Percent", "GAUGE", 50, MODEL, "r0,r1")),
        (lambda m: m.add_error("N", 3), ("N", "unit", "COUNTER", 3, [("Level", "Error")], "")),
        (lambda m: m.add_error("N", 3, [OAK]), ("N", "unit", "COUNTER", 3, [("Tree", "oak"), ("Level", "Error")], "")),
        (lambda m: m.add_metric("N", 3, "count"), ("N", "Count", "COUNTER", 3, MODEL, "r0,r1")),
        (lambda m: m.add_metric("N", 3, "furlongs"), ("N", "furlongs", "COUNTER", 3, MODEL, "r0,r1")),
        (
            lambda m: m.add_metric("N", 3, "ms", None, [OAK], MetricTypes.HISTOGRAM),
            ("N", "Milliseconds", "HISTOGRAM", 3, [("Tree", "oak"), *MODEL], "r0,r1"),
        ),
        (
            lambda m: m.add_counter("N", 1, dimensions=[Dimension("Level", "L"), Dimension("ModelName", "x")]),
            ("N", "Count", "COUNTER", 1, [("Level", "L"), ("ModelName", "x")], "r0,r1"),
        ),
        (
            lambda m: m.add_time("N", 1, metric_type=MetricTypes.COUNTER),
            ("N", "Milliseconds", "COUNTER", 1, MODEL, "r0,r1"),
        ),
    ],
)
def test_each_call_hands_on_what_it_means(call: Callable[[Any], None], noted: tuple[Any, ...]) -> None:
    cache = Cache()
    call(cache)

    (name, unit, kind, value, dimensions, ids) = cache.noted[0]
    assert (name, unit, kind.name, value, dimensions, ids) == noted


def test_dimensions_of_one_call_do_not_stay_for_the_next() -> None:
    cache = Cache()
    cache.add_error("E", 1)
    cache.add_counter("N", 1)

    assert cache.noted[1][4] == MODEL


def test_a_metric_keeps_the_unit_and_dimensions_of_its_first_use() -> None:
    cache = Cache()
    cache.add_time("T", 1, unit="ms", dimensions=[OAK])
    cache.add_time("T", 1, unit="s", dimensions=[Dimension("Bush", "rose")])

    assert cache.noted[1][1] == "Milliseconds"
    assert cache.noted[1][4][0] == ("Tree", "rose")


@pytest.mark.parametrize(
    ("call", "word"),
    [
        (lambda m: m.add_counter("N", -1), "negative"),
        (lambda m: m.add_counter("N", float("nan")), "negative"),
        (lambda m: m.add_counter("N", "many"), "not a number"),
        (lambda m: m.add_time("N", None), "not a number"),
        (lambda m: m.add_metric_to_cache("N", "ms", ["a", "b"]).add_or_update(1, ["x"]), "should correspond"),
        (lambda m: m.add_metric_to_cache("N", "ms", ["a", "b"]).add_or_update(1), "should correspond"),
    ],
)
def test_a_wrong_value_is_logged_and_never_raised(
    call: Callable[[Any], None], word: str, caplog: pytest.LogCaptureFixture
) -> None:
    cache = Cache()
    call(cache)

    assert cache.noted == []
    assert word in caplog.text
    assert caplog.records[0].levelno == logging.ERROR


@pytest.mark.parametrize(
    ("call", "error"),
    [
        (lambda m: m.add_time("N", 1, unit="h"), MetricsCacheValueError),
        (lambda m: m.add_size("N", 1, unit="TB"), ValueError),
        (lambda m: m.add_metric("N", 1, None), MetricsCacheTypeError),
        (lambda m: m.add_counter(3, 1), MetricsCacheTypeError),
        (lambda m: m.add_metric("N", 1, "ms", metric_type="gauge"), MetricsCacheTypeError),
        (lambda m: m.add_metric_to_cache("N", "ms", "ab"), MetricsCacheTypeError),
        (lambda m: m.get_metric("N"), MetricsCacheKeyError),
        (lambda m: m.get_metric("N", "gauge"), MetricsCacheTypeError),
    ],
)
def test_a_wrong_call_is_raised(call: Callable[[Any], None], error: type[Exception]) -> None:
    with pytest.raises(error):
        call(Cache())


def test_a_declared_metric_has_its_own_dimensions_alone() -> None:
    cache = Cache()
    metric = cache.add_metric_to_cache("N", "ms", ["Wing"], MetricTypes.GAUGE)
    metric.add_or_update(3, ["left"], "r9")

    assert cache.noted == [("N", "Milliseconds", MetricTypes.GAUGE, 3, [("Wing", "left")], "r9")]
    assert cache.get_metric("N", MetricTypes.GAUGE) is metric
    assert cache.cache_keys() == ["gauge:N"]


def test_update_replaces_the_dimensions() -> None:
    cache = Cache()
    cache.add_metric_to_cache("N", "ms", ["Wing"]).update(3, "r9", [OAK])

    assert cache.noted[0][3:] == (3, [("Tree", "oak")], "r9")


def test_the_file_declares_metrics_of_models(tmp_path: Path) -> None:
    file = tmp_path / "metrics.yaml"
    file.write_text(
        "dimensions: [&name ModelName]\nts_metrics: {counter: []}\n"
        "model_metrics:\n  gauge:\n    - {name: Flight, unit: s, dimensions: [*name]}\n  histogram:\n"
    )
    cache = Cache(str(file))
    cache.initialize_cache()
    cache.get_metric("Flight", MetricTypes.GAUGE).add_or_update(2, ["bees"])

    assert cache.noted == [("Flight", "Seconds", MetricTypes.GAUGE, 2, [("ModelName", "bees")], "")]


@pytest.mark.parametrize(
    ("text", "error"),
    [
        ("a: [", MetricsCachePyYamlError),
        ("model_metrics: {speed: []}", MetricsCacheTypeError),
        (None, MetricsCacheIOError),
    ],
)
def test_a_wrong_file_is_refused(tmp_path: Path, text: str | None, error: type[Exception]) -> None:
    file = tmp_path / "metrics.yaml"
    if text is not None:
        file.write_text(text)

    with pytest.raises(error, match=r"metrics\.yaml"):
        Cache(str(file)).initialize_cache()


def test_outside_a_worker_values_are_logged_as_lines(caplog: pytest.LogCaptureFixture) -> None:
    cache = MetricsCacheYamlImpl()
    cache.model_name = "bees"
    cache.set_request_ids({0: "r0"})
    with caplog.at_level(logging.INFO):
        cache.add_counter("N", 2)

    assert caplog.messages[0].startswith("[METRICS]N.Count:2|#ModelName:bees,Level:Model|#type:COUNTER|#hostname:")
    assert caplog.messages[0].endswith(",r0")


def test_a_store_keeps_what_it_is_told() -> None:
    store = MetricsStore({0: "r0", 1: "r1"}, "bees")
    store.add_counter("A", 1)
    store.add_counter("A", 2)
    store.add_time("T", 1.5, 1)
    store.add_time("T", 2.5, 1)
    store.add_size("S", 3, unit="GB")
    store.add_percent("P", 4)
    store.add_error("E", "sting", [OAK])
    store.add_metric("M", 5, "ms")

    assert [(metric.name, metric.value, metric.unit, metric.request_id) for metric in store.store] == [
        ("A", 3, "Count", "r0,r1"),
        ("T", 2.5, "Milliseconds", "r1"),
        ("S", 3, "Gigabytes", "r0,r1"),
        ("P", 4, "Percent", "r0,r1"),
        ("E", "sting", "unit", None),
        ("M", 5, "Milliseconds", "r0,r1"),
    ]
    assert [str(dimension) for dimension in store.store[4].dimensions] == ["Tree:oak", "Level:Error"]
    with pytest.raises(ValueError, match="ms"):
        store.add_time("T", 1, unit="h")
    with pytest.raises(ValueError, match="kB"):
        store.add_size("S", 1, unit="h")


def test_mms_takes_the_index_before_the_unit() -> None:
    store = MmsStore({0: "r0", 1: "r1"}, "bees")
    store.add_metric("M", 5, 1, "ms")
    store.add_metric("M", 6)

    assert [(metric.value, metric.unit, metric.request_id) for metric in store.store] == [
        (5, "Milliseconds", "r1"),
        (6, "unit", "r0,r1"),
    ]


def test_a_metric_is_written_as_a_line_and_as_json() -> None:
    metric = Metric("N", 1, "ms", [OAK], "r0")
    metric.update(5)

    assert str(metric).startswith("N.Milliseconds:5|#Tree:oak|#hostname:")
    written = json.loads(json.dumps(metric, cls=MetricEncoder))
    assert written["Dimensions"] == [{"Name": "Tree", "Value": "oak"}]
    assert (written["MetricName"], written["Value"], written["Unit"], written["RequestId"]) == (
        "N",
        5,
        "Milliseconds",
        "r0",
    )
    metric.reset()
    assert metric.value == 0
    with pytest.raises(TypeError):
        json.dumps(object(), cls=MetricEncoder)


def test_units_have_words() -> None:
    assert Units().units["kB"] == "Kilobytes"
    assert Units().units[""] == "unit"
