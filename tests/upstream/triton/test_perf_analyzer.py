"""perf_analyzer of tritonclient 2.51 against Shoal: every way it loads a server ends in its full report."""

import re
from collections.abc import Iterator
from pathlib import Path

import pytest

from benchmarks import perf_analyzer
from tests.upstream.triton import servers
from tests.upstream.triton.servers import Server
from tests.upstream.triton.words import Run

pytestmark = [
    pytest.mark.upstream,
    pytest.mark.timeout(300),
    pytest.mark.skipif(bool(perf_analyzer.missing()), reason=perf_analyzer.missing()),
]
ONE_LOAD = ("--request-count=60",)
WINDOWS = ("--measurement-mode=count_windows", "--measurement-request-count=20", "-s", "100000")  # any is stable
RANGE = re.compile(r"-range=\d+:")
MODES: dict[str, tuple[str, tuple[str, ...]]] = {  # the protocol, and the rest
    "http": ("http", ("-m", "pair", "--concurrency-range=1:4:3")),
    "http, asynchronous": ("http", ("-m", "pair", "--async", "--concurrency-range=4")),
    "http, rows in json": (
        "http",
        ("-m", "pair", "-b", "2", "--input-tensor-format=json", "--output-tensor-format=json"),
    ),
    "http, text": ("http", ("-m", "strings", "--shape=IN:3", "--string-length=16")),
    "http, shared memory": ("http", ("-m", "pair", "--shared-memory=system", "--concurrency-range=2")),
    "http, at a rate": ("http", ("-m", "pair", "--request-rate-range=40:60:20")),
    "http, at a rate of Poisson's": (
        "http",
        ("-m", "pair", "--request-rate-range=50", "--request-distribution=poisson"),
    ),
    "grpc": ("grpc", ("-m", "pair", "--concurrency-range=1:4:3")),
    "grpc, packed": ("grpc", ("-m", "pair", "--grpc-compression-algorithm=gzip")),
    "grpc, streams": ("grpc", ("-m", "pair", "--streaming", "--concurrency-range=3")),
    "grpc, streams of many answers": ("grpc", ("-m", "many", "--streaming", "--async", "--input-data=<data>")),
    "grpc, shared memory": ("grpc", ("-m", "pair", "--shared-memory=system", "--concurrency-range=2")),
    "grpc, streams from shared memory": ("grpc", ("-m", "pair", "--streaming", "--shared-memory=system")),
    "grpc, at a rate": ("grpc", ("-m", "pair", "--request-rate-range=50")),
}
SPLIT = re.compile(
    r"Avg request latency: \d+ usec \(overhead \d+ usec \+ queue \d+ usec \+ compute input \d+ usec \+ "
    r"compute infer \d+ usec \+ compute output \d+ usec\)"
)


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    with servers.serving(Run("perf", ("pair", "strings", "many"), ()), "shoal") as running:
        yield running


@pytest.mark.parametrize("mode", MODES)
def test_perf_analyzer_reports_the_servers_side(server: Server, tmp_path: Path, mode: str) -> None:
    protocol, options = MODES[mode]
    address = f"127.0.0.1:{server.http if protocol == 'http' else server.grpc}"
    (tmp_path / "numbers.json").write_text('{"data": [{"IN": [2]}, {"IN": [3]}]}')
    options = tuple(word.replace("<data>", str(tmp_path / "numbers.json")) for word in options)
    place = ["-u", address, "-i", protocol, "-f", str(tmp_path / "report.csv")]
    done = perf_analyzer.run(
        [*options, *(WINDOWS if RANGE.search(" ".join(options)) else ONE_LOAD), *place], timeout=200
    )

    assert done.returncode == 0, done.stdout + done.stderr
    assert "Failed" not in done.stdout, done.stdout
    levels = perf_analyzer.levels(done.stdout)
    assert levels and len(levels) == len(SPLIT.findall(done.stdout))
    for level in levels:
        assert level.values.keys() == perf_analyzer.FIELDS.keys()
        assert min(level.values[name] for name in ("throughput", "inferences", "executions", "requests")) > 0
    assert "Server Compute Infer" in (tmp_path / "report.csv").read_text().splitlines()[0]


def test_a_model_that_is_not_there_is_said_to_be_unknown(server: Server) -> None:
    done = perf_analyzer.run(["-m", "nobody", "-u", f"127.0.0.1:{server.http}"], timeout=60)

    assert done.returncode == 99 and "Request for unknown model: 'nobody' is not found" in done.stdout + done.stderr
