import os

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.model import Recycling
from shoal.pool.local import successor
from shoal.pool.wear import Wear, WearWatch, reason_to_recycle, resident


@pytest.mark.parametrize(
    ("wear", "limits", "words"),
    [
        (Wear(requests=100), Recycling(requests=100), "answered 100 requests"),
        (Wear(age=60.0), Recycling(age=60.0), "up for 60 s"),
        (Wear(memory=5 * 2**20), Recycling(memory=2**20), "grown by 5 MiB"),
        (Wear(device_memory=3 * 2**20), Recycling(device_memory=3 * 2**20), "device memory has grown by 3 MiB"),
    ],
)
def test_a_limit_that_is_reached_is_named(wear: Wear, limits: Recycling, words: str) -> None:
    assert words in reason_to_recycle(wear, limits)


@given(st.integers(0, 2**40), st.floats(0, 1e9), st.integers(-(2**40), 2**40), st.integers(-(2**40), 2**40))
def test_without_limits_nothing_is_ever_worn(requests: int, age: float, memory: int, device: int) -> None:
    assert reason_to_recycle(Wear(requests, age, memory, device), Recycling()) == ""


def test_just_below_its_limits_a_worker_stays() -> None:
    limits = Recycling(requests=10, age=5.0, memory=100, device_memory=100)

    assert reason_to_recycle(Wear(9, 4.9, 99, 99), limits) == ""


def test_it_is_said_once_and_again_after_it_was_forgotten() -> None:
    watch = WearWatch(Recycling(requests=5))

    assert watch.look(0, 4, 1.0, 0) == ""
    assert watch.look(0, 5, 1.0, 0)
    assert watch.look(0, 6, 1.0, 0) == ""
    watch.forget()
    assert watch.look(0, 7, 1.0, 0)


def test_nothing_is_said_before_the_first_batch() -> None:
    assert WearWatch(Recycling(age=1.0)).look(0, 0, 100.0, 0) == ""


def test_device_memory_counts_from_what_it_was_first_said_to_be() -> None:
    watch = WearWatch(Recycling(device_memory=1000))

    assert watch.look(0, 1, 1.0, 0) == ""
    assert watch.look(0, 2, 1.0, 5000) == ""
    assert watch.look(0, 3, 1.0, 5999) == ""
    assert watch.look(0, 4, 1.0, 6000)


def test_resident_memory_counts_from_the_first_batches() -> None:
    watch = WearWatch(Recycling(memory=64 * 2**20))
    assert watch.look(os.getpid(), 1, 1.0, 0) == ""
    ballast = b"x" * (96 * 2**20)

    assert "grown" in watch.look(os.getpid(), 2, 1.0, 0)
    assert len(ballast)
    assert resident(2**22 + 12345) == 0


def test_two_names_serve_a_place_for_ever() -> None:
    assert successor("m-1.0-0") != "m-1.0-0"
    assert successor(successor("m-1.0-0")) == "m-1.0-0"
