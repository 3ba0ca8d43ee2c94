import pytest

from shoal.errors import ConfigError
from shoal.series.catalogue import BUILT_IN, Declared, read_catalogue

TEXT = """
dimensions: [&level Level, &model ModelName]
ts_metrics:
  counter:
    - {name: Requests2XX, unit: Count, dimensions: [*level, Hostname]}
model_metrics:
  histogram:
    - {name: Depth, unit: Count, dimensions: [*model]}
  gauge:
    - {name: Bare, unit: ms}
"""


def test_a_file_is_read_into_kinds_units_and_dimensions() -> None:
    read = read_catalogue(TEXT, "metrics.yaml")

    assert read.server == {"Requests2XX": Declared("Requests2XX", "COUNTER", "Count", ("Level", "Hostname"))}
    assert read.model == {
        "Depth": Declared("Depth", "HISTOGRAM", "Count", ("ModelName", "Hostname")),
        "Bare": Declared("Bare", "GAUGE", "ms", ("Hostname",)),
    }


def test_the_built_in_metrics_have_upstreams_labels_in_upstreams_order() -> None:
    assert BUILT_IN.server["WorkerLoadTime"].dimensions == ("WorkerName", "Level", "Hostname")
    assert BUILT_IN.server["ts_queue_latency_microseconds"].dimensions == ("model_name", "model_version", "hostname")
    assert BUILT_IN.model["PredictionTime"].dimensions == ("ModelName", "Level", "Hostname")
    assert BUILT_IN.model["PredictionTime"].unit == "ms"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("ts_metrics: {counter: [{name: A}]}", "each metric needs a name and a unit"),
        ("ts_metrics: {counter: [{name: '', unit: x}]}", "each metric needs a name and a unit"),
        ("ts_metrics: {summary: []}", "expected lists under counter, gauge and histogram"),
        ("ts_metrics: {gauge: [{name: A, unit: x, dimensions: Level}]}", "dimensions is a list of names"),
        ("just text", "expected the keys ts_metrics and model_metrics"),
        ("a: [", "metrics.yaml"),
    ],
)
def test_a_broken_file_is_refused_with_the_place(text: str, problem: str) -> None:
    with pytest.raises(ConfigError, match=problem):
        read_catalogue(text, "metrics.yaml")
