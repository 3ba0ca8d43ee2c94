"""The comparison itself: what it must see, and what it must let pass."""

from typing import Any

import pytest

from tests.upstream.compare import Mismatch, mismatches
from tests.upstream.differences import DIFFERENCES, Difference

ANSWER = {"status": 200, "reason": "", "headers": {"connection": "keep-alive"}, "body": {"cat": 0.25, "ids": [1, 2]}}


def changed(**fields: Any) -> list[dict[str, Any]]:
    return [{**ANSWER, **fields}]


@pytest.mark.parametrize(
    ("got", "path"),
    [
        (changed(status=201), "0.status"),
        (changed(status=200.0), "0.status"),
        (changed(reason="OK"), "0.reason"),
        (changed(headers={}), "0.headers.connection"),
        (changed(headers={"connection": "keep-alive", "allow": "GET"}), "0.headers.allow"),
        (changed(headers={"connection": "close"}), "0.headers.connection"),
        (changed(closed=True), "0.closed"),
        (changed(body={"cat": 0.26, "ids": [1, 2]}), "0.body.cat"),
        (changed(body={"cat": 0.25, "ids": [1, 3]}), "0.body.ids.1"),
        (changed(body={"cat": 0.25, "ids": [1, 2, 3]}), "0.body.ids"),
        (changed(body={"cat": "0.25", "ids": [1, 2]}), "0.body.cat"),
        (changed(body={"ids": [1, 2]}), "0.body.cat"),
        (changed(body="text"), "0.body"),
        (changed(body={"ids": [1, 2], "cat": 0.25}), "0.body.(order)"),
        ([ANSWER, ANSWER], ""),
    ],
)
def test_what_differs_is_found_and_named(got: list[dict[str, Any]], path: str) -> None:
    assert [one.path for one in mismatches([ANSWER], got)] == [path]


@pytest.mark.parametrize(
    "got", [[ANSWER], [dict(reversed(ANSWER.items()))], changed(body={"cat": 0.250_000_1, "ids": [1, 2]})]
)
def test_the_same_and_nearly_the_same_number_pass(got: list[dict[str, Any]]) -> None:
    assert mismatches([ANSWER], got) == []


def test_whole_numbers_are_not_nearly_the_same() -> None:
    assert mismatches([{"body": 100_000}], [{"body": 100_001}]) != []


def test_an_entry_covers_its_rows_and_values_alone() -> None:
    entry = Difference("mms/*/ping", "0.headers.*", "a reason")

    assert entry.covers("mms/main/ping", Mismatch("0.headers.server", 1, 2))
    assert not entry.covers("mms/main/predict", Mismatch("0.headers.server", 1, 2))
    assert not entry.covers("mms/main/ping", Mismatch("0.status", 1, 2))


def test_an_entry_with_a_change_covers_that_change_alone() -> None:
    entry = Difference("*", "*", "a reason", (1, 256))

    assert entry.covers("a", Mismatch("0.body", 1, 256))
    assert not entry.covers("a", Mismatch("0.body", 1, 8))


def test_every_difference_has_a_reason() -> None:
    assert [entry for entry in DIFFERENCES if len(entry.reason) < 20] == []
