import csv
import io
import re

import msgspec
import pytest

from shoal.tools.bench import timing
from shoal.tools.bench.live import sparkline
from shoal.tools.bench.messages import Slice
from shoal.tools.bench.page import to_html
from shoal.tools.bench.results import Level, Report, add, sum_up
from shoal.tools.bench.text import note_lines, server_lines, to_csv, to_markdown
from shoal.tools.machine import facts


def level(**changes: object) -> Level:
    first, second = Slice(0, 2, due=3, errors={"503": 1}), Slice(1, 1, errors={"503": 1, "refused": 5}, due=1)
    for slice, latency in ((first, 0.010), (first, 0.020), (second, 0.400)):
        slice.latencies.add(latency)
    timing.note(first.split, 'queue;dur=1, preprocess;dur=0, inference;dur=8, batch;desc="2 full"')
    return msgspec.structs.replace(sum_up([first, second], 0.5), label="2 <connections>", **changes)


def report(*levels: Level, problem: str = "") -> Report:
    return Report("http://x/<m>", "cat.jpg, 9 bytes", {"window": "2 s"}, facts(), list(levels), problem)


def test_a_level_is_the_sum_of_its_slices() -> None:
    found = level()

    assert (found.seconds, found.answered, found.throughput, found.offered) == (1.0, 3, 3.0, 4.0)
    assert found.errors == {"refused": 5, "503": 2}
    assert found.error_count == 7
    assert abs(found.latency["p50"] / 0.02 - 1) < 0.005
    assert found.latency["max"] == 0.4
    assert found.server.rows == {2: 1}
    assert [piece.answered for piece in found.pieces] == [2, 1]


def test_processes_are_added_slice_by_slice() -> None:
    one = Slice(3, 2, due=3, errors={"reset": 1}, lag=0.1, waiting=4, cpu=0.2)
    two = Slice(3, 5, due=1, errors={"reset": 2}, lag=0.3, waiting=1, cpu=0.1)

    found = add([one, two])

    assert (found.number, found.answered, found.due, found.waiting) == (3, 7, 4, 5)
    assert (found.errors, found.lag, found.cpu) == ({"reset": 3}, 0.3, 0.2)


def test_the_servers_own_split_leaves_out_stages_that_do_nothing() -> None:
    lines = server_lines(level())

    assert lines[0] == "2 <connections>: server's p50 / p99 ms: queue 1.00 / 1.00, inference 8.00 / 8.00"
    assert "2.00 rows a batch; answers by rows: 2 100 %; by why the batch left: full 100 %" in lines[1]


def test_a_reader_is_warned_of_figures_to_doubt() -> None:
    assert note_lines(level(offered=0.0)) == []
    assert (
        "not stable: the last windows differ by 20 %"
        in note_lines(level(offered=0.0, is_stable=False, spread=0.2, windows=[1.0, 2.0, 3.0]))[0]
    )
    assert "cut short after 1.0 s" in note_lines(level(offered=0.0, is_stable=False, windows=[1.0]))[0]
    assert "cannot keep up: 9 requests" in note_lines(level(offered=4.0, unanswered=9))[0]
    assert "30 ms late" in note_lines(level(offered=0.0, lag=0.03))[0]
    assert "--processes" in note_lines(level(offered=0.0, cpu=0.95))[0]


@pytest.mark.parametrize(
    ("waiting", "is_behind"),
    [
        ([2, 5, 8, 11, 14, 17, 20, 23], True),
        ([9, 2, 16, 8, 22, 14, 28, 20], True),  # batch by batch, and more each time
        ([4, 3, 2, 4, 3, 2, 4, 20], False),  # a batch had just come when it ended
        ([0, 0, 0, 0, 0, 9, 18, 27], False),  # it stood still in the end; how it would have gone on nobody knows
        ([0, 0, 1, 0, 0, 0, 0, 1], False),
    ],
)
def test_a_server_is_behind_when_more_and_more_wait_not_when_some_are_on_their_way(
    waiting: list[int], is_behind: bool
) -> None:
    slices = [Slice(number, 20, waiting=each, due=23) for number, each in enumerate(waiting)]

    assert sum_up(slices, 0.1).is_behind == is_behind


def test_answers_that_are_there_are_not_behind_whatever_waits() -> None:
    assert not sum_up([Slice(number, 98, waiting=2 * number, due=100) for number in range(8)], 0.1).is_behind


def test_a_server_that_refuses_what_it_cannot_do_is_behind() -> None:
    slices = [Slice(number, 80, due=100, errors={"503": 20}) for number in range(8)]

    assert sum_up(slices, 0.1).is_behind


def test_a_closed_loop_has_no_rate_to_be_behind_of() -> None:
    assert not sum_up([Slice(0, 10, waiting=5), Slice(1, 1, waiting=9)], 0.1).is_behind


def test_markdown_tells_all_of_it() -> None:
    text = to_markdown(report(level(), problem="interrupted"))

    assert "| 2 <connections> | 3.00 | 143 |" in text
    assert "**Ended early: interrupted.**" in text
    assert "- 2 <connections>: errors: 5 refused, 2 503" in text


def test_csv_has_one_row_for_each_level() -> None:
    rows = list(csv.DictReader(io.StringIO(to_csv(report(level(), level())))))

    assert len(rows) == 2
    assert rows[0]["answered"] == "3"
    assert float(rows[0]["max_ms"]) == 400.0
    assert rows[0]["errors"] == "7"


def test_the_page_stands_alone_and_trusts_no_text() -> None:
    page = to_html(report(level(), problem="a <b>"))

    assert "http://x/&lt;m&gt;" in page and "<m>" not in page
    assert "a &lt;b&gt;" in page
    assert not re.search(r"(?:src|href)=|@import|url\(", page)
    assert page.count("<polyline") == 1
    assert page.count("<svg") == page.count("</svg>") == 2


def test_a_level_without_answers_is_reported_too() -> None:
    empty = msgspec.structs.replace(sum_up([Slice(0, errors={"refused": 1})], 0.5), label="1 connection")

    assert "| 1 connection | 0.000 | - |" in to_markdown(report(empty))
    assert "No answers." in to_html(report(empty))


def test_a_sparkline_is_as_high_as_its_highest() -> None:
    assert sparkline([0.0, 4.0, 8.0]) == " ▄█"
    assert sparkline([]) == sparkline([0.0]) == ""
