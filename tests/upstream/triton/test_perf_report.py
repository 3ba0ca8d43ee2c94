"""What is read from a report of perf_analyzer."""

from benchmarks.perf_analyzer import FIELDS, levels

ONE = """Request concurrency: {load}
  Client:
    Request count: 8777
    Throughput: {throughput} infer/sec
    p50 latency: 10030 usec
    p90 latency: 10418 usec
    p95 latency: 10567 usec
    p99 latency: 10713 usec
    Avg HTTP time: 10030 usec (send/recv 54 usec + response wait 9976 usec)
  Server:
    Inference count: 393140
    Execution count: 64217
    Successful request count: 196570
    Avg request latency: 6231 usec (overhead 31 usec + queue 3758 usec + compute input 35 usec + compute infer 2396 usec + compute output 11 usec)

"""  # noqa: E501
SUMMARY = """Inferences/Second vs. Client p95 Batch Latency
Concurrency: 2, throughput: 998.141 infer/sec, latency 4140 usec
"""


def test_every_load_is_read_with_the_servers_split() -> None:
    two, four = levels(ONE.format(load=2, throughput=998.141) + ONE.format(load=4, throughput=1765.66) + SUMMARY)

    assert (two.load, two.values["throughput"], four.load, four.values["throughput"]) == (2, 998.141, 4, 1765.66)
    assert two.values.keys() == FIELDS.keys()
    assert [four.values[name] for name in ("p50", "p95", "overhead", "queue", "compute_infer", "executions")] == [
        *(10030, 10567, 31, 3758, 2396, 64217)
    ]


def test_a_load_that_was_not_measured_is_left_out() -> None:
    failed = "Request concurrency: 8\nFailed to obtain stable measurement within 10 measurement windows\n"

    assert [level.load for level in levels(ONE.format(load=2, throughput=1.0) + failed)] == [2]
