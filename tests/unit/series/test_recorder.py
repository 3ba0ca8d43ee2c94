from collections.abc import Sequence
from types import SimpleNamespace
from typing import Any

import pytest

from shoal.series.catalogue import BUILT_IN
from shoal.series.recorder import Mode, Recorder
from shoal.wire.messages import Measure

LABELS = 'model_name="m",model_version="1.0",hostname="vm",'


class Told:
    """A recorder and what it wrote."""

    def __init__(self, mode: Mode, *, detects: bool = False) -> None:
        self.lines: list[tuple[str, str]] = []
        self.recorder = Recorder(mode, BUILT_IN, "vm", self._write, lambda: 1794708597.9, detects=detects)

    def _write(self, log: str, lines: Sequence[str]) -> None:
        self.lines += [(log, line) for line in lines]

    def texts(self) -> list[str]:
        return [line for _, line in self.lines]


def batch() -> Any:
    requests = [SimpleNamespace(arrived=9.0), SimpleNamespace(arrived=9.5)]
    stages = SimpleNamespace(preprocess=0.25, inference=0.5, postprocess=0.0)
    return SimpleNamespace(left=10.0, requests=requests, answered=2, stages=stages)


def test_a_batch_counts_requests_latency_and_queue_time() -> None:
    told = Told("prometheus")
    told.recorder.batch("m", "1.0", batch(), 11.0)
    page = told.recorder.page()

    assert f"ts_inference_requests_total{{{LABELS}}} 2.0" in page
    assert f"ts_queue_latency_microseconds{{{LABELS}}} 1500000.0" in page
    assert f"ts_inference_latency_microseconds{{{LABELS}}} 3500000.0" in page
    assert 'QueueTime{Level="Host",Hostname="vm",} 500.0' in page
    assert 'WorkerThreadTime{Level="Host",Hostname="vm",} 250.0' in page
    assert told.lines == []


def test_in_log_mode_the_page_is_empty_and_each_request_has_its_queue_time() -> None:
    told = Told("log")
    told.recorder.batch("m", "1.0", batch(), 11.0)

    assert told.recorder.page() == ""
    queue_times = [line for line in told.texts() if line.startswith("QueueTime")]
    assert queue_times == [
        "QueueTime.Milliseconds:1000.0|#Level:Host|#hostname:vm,timestamp:1794708597",
        "QueueTime.Milliseconds:500.0|#Level:Host|#hostname:vm,timestamp:1794708597",
    ]
    assert {log for log, _ in told.lines} == {"TS_METRICS"}


def test_a_handlers_measure_is_a_line_with_the_ids_of_its_requests() -> None:
    told = Told("log")
    told.recorder.measured(
        [Measure("PredictionTime", "Milliseconds", "GAUGE", 0.2, [("ModelName", "echo"), ("Level", "Model")], "a,b")]
    )

    line = "PredictionTime.ms:0.2|#ModelName:echo,Level:Model|#hostname:vm,requestID:a,b,timestamp:1794708597"
    assert told.lines == [("MODEL_METRICS", line)]


def test_legacy_mode_shows_three_counters_and_logs_the_rest() -> None:
    told = Told("legacy")
    told.recorder.batch("m", "1.0", batch(), 11.0)
    page = told.recorder.page()

    assert page.count("# TYPE") == 3
    assert "ts_inference_requests_total" in page
    assert {text.split(".")[0] for text in told.texts()} == {"QueueTime", "WorkerThreadTime"}


@pytest.mark.parametrize("detects", [False, True])
def test_a_measure_declared_nowhere_is_dropped_unless_it_is_to_be_detected(detects: bool) -> None:
    told = Told("prometheus", detects=detects)
    told.recorder.measured([Measure("Depth", "Count", "COUNTER", 3.0, [("a", "x")])] * 2)

    assert ('Depth{a="x",Hostname="vm",} 6.0' in told.recorder.page()) is detects


def test_answers_are_told_once_by_class_and_what_is_neither_2xx_nor_4xx_counts_as_5xx() -> None:
    told = Told("prometheus")
    told.recorder.answers([0, 0, 3, 1, 2, 1])
    told.recorder.answers([0, 0, 4, 1, 2, 1])
    page = told.recorder.page()

    assert 'Requests2XX{Level="Host",Hostname="vm",} 4.0' in page
    assert 'Requests4XX{Level="Host",Hostname="vm",} 2.0' in page
    assert 'Requests5XX{Level="Host",Hostname="vm",} 2.0' in page


def test_a_worker_says_how_long_it_took_to_load() -> None:
    told = Told("log")
    told.recorder.loaded("W-9000-m_1.0", 1.25)

    assert told.texts() == [
        "WorkerLoadTime.Milliseconds:1250.0|#WorkerName:W-9000-m_1.0,Level:Host|#hostname:vm,timestamp:1794708597"
    ]
