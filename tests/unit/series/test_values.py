from shoal.series.catalogue import Declared
from shoal.series.values import MOST_LABELS, Values, page


def test_a_page_reads_as_upstreams_clients_match_it() -> None:
    counter = Values(Declared("Requests2XX", "COUNTER", "Count", ("Level", "Hostname")))
    counter.take({"Level": "Host", "Hostname": "vm"}, 2)
    counter.take({"Level": "Host", "Hostname": "vm"}, 1)

    assert page([counter]) == (
        "# HELP Requests2XX Torchserve prometheus counter metric with unit: Count\n"
        "# TYPE Requests2XX counter\n"
        'Requests2XX{Level="Host",Hostname="vm",} 3.0\n'
    )


def test_a_gauge_keeps_the_last_value_and_a_counter_never_falls() -> None:
    gauge, counter = Values(Declared("g", "GAUGE", "ms", ())), Values(Declared("c", "COUNTER", "Count", ()))
    for value in (5.0, 2.0, -1.0):
        gauge.take({}, value)
        counter.take({}, value)

    assert "g -1.0" in page([gauge])
    assert "c 7.0" in page([counter])


def test_a_histogram_counts_at_or_below_each_bound() -> None:
    values = Values(Declared("h", "HISTOGRAM", "s", ("a",)))
    for value in (0.005, 0.006, 99.0):
        values.take({"a": "x"}, value)
    text = page([values])

    assert 'h_bucket{a="x",le="0.005",} 1.0' in text
    assert 'h_bucket{a="x",le="0.01",} 2.0' in text
    assert 'h_bucket{a="x",le="10.0",} 2.0' in text
    assert 'h_bucket{a="x",le="+Inf",} 3.0' in text
    assert 'h_count{a="x",} 3.0' in text
    assert 'h_sum{a="x",} 99.011' in text


def test_what_was_never_measured_still_shows_its_head() -> None:
    assert page([Values(Declared("quiet", "GAUGE", "ms", ("a",)))]).splitlines() == [
        "# HELP quiet Torchserve prometheus gauge metric with unit: ms",
        "# TYPE quiet gauge",
    ]


def test_only_the_metrics_asked_for_are_shown() -> None:
    metrics = [Values(Declared(name, "GAUGE", "ms", ())) for name in ("a", "b")]

    assert "TYPE b" in page(metrics, ["b"])
    assert "TYPE a" not in page(metrics, ["b"])


def test_a_label_cannot_break_out_of_its_quotes() -> None:
    values = Values(Declared("g", "GAUGE", "ms", ("a",)))
    values.take({"a": 'x"} 1\nevil 2\\'}, 1.0)

    assert page([values]).splitlines()[-1] == 'g{a="x\\"} 1\\nevil 2\\\\",} 1.0'


def test_labels_without_end_do_not_fill_the_memory() -> None:
    values = Values(Declared("g", "GAUGE", "ms", ("a",)))
    for number in range(MOST_LABELS + 10):
        values.take({"a": str(number)}, 1.0)
    values.take({"a": "0"}, 7.0)

    assert len(values) == MOST_LABELS
    assert values.numbers[("0",)] == 7.0
