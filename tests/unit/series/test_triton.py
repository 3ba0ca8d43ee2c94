import pytest

from shoal.core.batch import Batch, Stages
from shoal.core.request import Request
from shoal.errors import HandlerFailed, WorkerDied
from shoal.payload import Payload, Result
from shoal.series.spans import ModelSeries
from shoal.series.system import Machine
from shoal.series.triton import Series
from shoal.telemetry import ModelStats


def request(arrived: float, rows: int = 1) -> Request:
    return Request(Payload([]), lambda *_: None, arrived, rows=rows)


def run(
    stats: ModelStats, requests: list[Request], left: float, ended: float, *errors: int, died: bool = False
) -> None:
    """Run a batch; those whose index is among the errors fail."""
    batch = Batch(1, requests, "full", left)
    if not died:
        batch.stages = Stages(0.001, 0.010, 0.002)
        for index in range(len(requests)):
            batch.deliver(index, HandlerFailed("no") if index in errors else Result(b""), True, ended)
    batch.close(ended, lambda: WorkerDied("died"))
    stats.record(batch, ended)


@pytest.fixture
def stats() -> ModelStats:
    return ModelStats("m", "3")


@pytest.fixture
def series(stats: ModelStats) -> ModelSeries:
    return Series(lambda: 1700.5).watch(stats)


def test_every_request_is_charged_the_full_times_of_its_batch(stats: ModelStats, series: ModelSeries) -> None:
    run(stats, [request(1.0, 2), request(1.5, 3)], left=2.0, ended=2.1)
    shown = series.shown(stats)

    assert (shown["name"], shown["version"], shown["last_inference"]) == ("m", "3", 1_700_500)
    assert (shown["inference_count"], shown["execution_count"]) == (5, 1)
    assert shown["inference_stats"] == {
        "success": {"count": 2, "ns": 1_700_000_000},
        "fail": {"count": 0, "ns": 0},
        "queue": {"count": 2, "ns": 1_500_000_000},
        "compute_input": {"count": 2, "ns": 2_000_000},
        "compute_infer": {"count": 2, "ns": 20_000_000},
        "compute_output": {"count": 2, "ns": 4_000_000},
        "cache_hit": {"count": 0, "ns": 0},
        "cache_miss": {"count": 0, "ns": 0},
    }
    assert shown["batch_stats"] == [
        {
            "batch_size": 5,
            "compute_input": {"count": 1, "ns": 1_000_000},
            "compute_infer": {"count": 1, "ns": 10_000_000},
            "compute_output": {"count": 1, "ns": 2_000_000},
        }
    ]
    assert shown["response_stats"] == {} and shown["memory_usage"] == []


def test_rows_by_batch_size_are_sorted_and_count_executions(stats: ModelStats, series: ModelSeries) -> None:
    for rows in (4, 1, 4):
        run(stats, [request(1.0, rows)], left=2.0, ended=2.1)

    rows = series.shown(stats)["batch_stats"]
    assert [(row["batch_size"], row["compute_infer"]["count"]) for row in rows] == [(1, 1), (4, 2)]


def test_what_failed_is_neither_inferred_nor_queued(stats: ModelStats, series: ModelSeries) -> None:
    run(stats, [request(1.0), request(1.5)], 2.0, 3.0, 1)
    run(stats, [request(1.0)], 2.0, 3.0, 0)
    shown = series.shown(stats)

    assert (shown["inference_count"], shown["execution_count"]) == (1, 2)
    assert shown["inference_stats"]["fail"] == {"count": 2, "ns": 3_500_000_000}
    assert shown["inference_stats"]["queue"]["count"] == shown["inference_stats"]["success"]["count"] == 1
    assert shown["batch_stats"][0]["batch_size"] == 2 and len(shown["batch_stats"]) == 1


def test_a_batch_whose_worker_died_was_not_executed(stats: ModelStats, series: ModelSeries) -> None:
    run(stats, [request(1.0)], 2.0, 3.0, died=True)
    shown = series.shown(stats)

    assert (shown["execution_count"], shown["last_inference"]) == (0, 0)
    assert shown["inference_stats"]["fail"] == {"count": 1, "ns": 2_000_000_000}


def test_expired_and_withdrawn_requests_failed_and_refused_ones_did_not(stats: ModelStats, series: ModelSeries) -> None:
    stats.expired, stats.withdrawn, stats.refused = 2, 3, 50

    assert series.shown(stats)["inference_stats"]["fail"]["count"] == 5


def test_the_cache_has_its_own_counts(stats: ModelStats, series: ModelSeries) -> None:
    run(stats, [request(1.0)], 2.0, 2.5)
    series.miss(0.25)
    series.hit(0.5, 0.1)
    shown = series.shown(stats)["inference_stats"]

    assert shown["cache_miss"] == {"count": 1, "ns": 250_000_000} and shown["cache_hit"] == {
        "count": 1,
        "ns": 100_000_000,
    }
    assert shown["success"] == {"count": 2, "ns": 2_250_000_000}
    assert shown["queue"] == {"count": 2, "ns": 1_400_000_000} and shown["compute_infer"]["count"] == 1


def test_answers_of_many_are_counted_by_their_place(stats: ModelStats, series: ModelSeries) -> None:
    series.response(1, "empty_response", 0.5)
    series.response(0, "success", 1.0)
    series.response(0, "fail", 0.5)
    shown = series.shown(stats)["response_stats"]

    assert list(shown) == ["0", "1"]
    assert shown["0"]["compute_infer"] == {"count": 2, "ns": 1_500_000_000} and shown["0"]["fail"]["count"] == 1
    assert shown["1"] == {
        name: {"count": int(name == "empty_response"), "ns": 500_000_000 * (name == "empty_response")}
        for name in shown["0"]
    }


def test_a_model_that_was_loaded_anew_begins_at_zero() -> None:
    series = Series(lambda: 0.0)
    old, new = ModelStats("m", "1"), ModelStats("m", "1")
    series.watch(old)
    run(old, [request(1.0)], 2.0, 2.5)
    series.watch(new)

    assert series.statistics(new)["execution_count"] == 0 and series.of(old).executions == 1


def test_the_page_has_upstreams_names_and_labels(stats: ModelStats) -> None:
    series = Series(lambda: 0.0)
    series.watch(stats)
    stats.refused, stats.expired, stats.withdrawn = 1, 2, 4
    run(stats, [request(1.0, 2), request(1.0)], 2.0, 2.5, 1)
    lines = series.page([(stats, 7, {"team": 'a"b\\c\nd'}, True)]).splitlines()
    own = 'model="m",version="3",_team="a\\"b\\\\c\\nd"'

    assert f"nv_inference_request_success{{{own}}} 1" in lines
    for reason, count in {"OTHER": 0, "BACKEND": 1, "CANCELED": 4, "REJECTED": 3}.items():
        assert f'nv_inference_request_failure{{{own},reason="{reason}"}} {count}' in lines
    assert f"nv_inference_count{{{own}}} 2" in lines and f"nv_inference_exec_count{{{own}}} 1" in lines
    assert f"nv_inference_request_duration_us{{{own}}} 1500000" in lines
    assert f"nv_inference_queue_duration_us{{{own}}} 1000000" in lines
    assert f"nv_inference_compute_infer_duration_us{{{own}}} 10000" in lines
    assert f"nv_inference_pending_request_count{{{own}}} 7" in lines
    assert f"nv_cache_num_hits_per_model{{{own}}} 0" in lines
    assert "# TYPE nv_inference_pending_request_count gauge" in lines
    assert all(line.startswith(("#", "nv_")) for line in lines)


def test_a_page_without_a_cache_says_nothing_of_one(stats: ModelStats) -> None:
    series = Series(lambda: 0.0)
    series.watch(stats)

    assert "nv_cache" not in series.page([(stats, 0, {}, False)])
    assert "nv_inference_count{" not in series.page([(ModelStats("unwatched", "1"), 0, {}, False)])


def test_the_machine_is_on_the_page_where_it_is_read(stats: ModelStats) -> None:
    page = Series(lambda: 0.0, Machine()).page([])

    assert (
        "nv_cpu_utilization " in page and "nv_cpu_memory_total_bytes " in page and "nv_cpu_memory_used_bytes " in page
    )
    assert "nv_cpu" not in Series(lambda: 0.0).page([])
