"""A short run of the fuzzer in the suite; `python -m tests.fuzz --inputs 1000000` is the long one."""

import logging
import os
from collections.abc import Callable, Hashable, Iterator
from random import Random
from typing import Any

import pytest

from tests.fuzz import run
from tests.fuzz.mutator import LARGEST, Mutator
from tests.fuzz.run import TARGETS, fuzz
from tests.fuzz.target import Target, Witness

INPUTS = int(os.environ.get("FUZZ_INPUTS", "6000"))  # of all targets together
LEAST = 200  # of each
SHARES = sum(getattr(make, "share", 0) for make in TARGETS)


@pytest.fixture(autouse=True)
def loggers() -> Iterator[None]:
    """Targets listen to loggers; those are as before afterwards."""
    names = ("shoal.http", "shoal.http2", "shoal.triton", "shoal.kserve", "shoal.grpc")
    before = [(logger, list(logger.handlers), logger.propagate) for logger in map(logging.getLogger, names)]
    yield
    for logger, handlers, propagate in before:
        logger.handlers[:], logger.propagate = handlers, propagate


@pytest.mark.parametrize("make", TARGETS, ids=[getattr(make, "name", "") for make in TARGETS])
def test_no_bytes_of_strangers_break_anything(make: Callable[[], Target]) -> None:
    result = fuzz(make, max(LEAST, INPUTS * getattr(make, "share", 0) // SHARES), seed=1)
    assert not result.findings, result.findings[0]
    assert result.outcomes > 1, "everything has one outcome: the target is not reached"


class Fragile:
    """A target that breaks where a byte is 0x80 or above."""

    name = "fragile"
    share = 1
    seeds = (b"plain",)
    words = ()

    def attempt(self, data: bytes, random: Random) -> Hashable:
        return len(data.decode("ascii"))


def test_what_breaks_is_found_with_its_input_and_the_same_again() -> None:
    first, second = (fuzz(Fragile, 500, seed=7) for _ in range(2))
    assert first.findings
    assert all("UnicodeDecodeError" in words and max(data) >= 0x80 for data, words in first.findings)
    assert [data for data, _ in first.findings] == [data for data, _ in second.findings]


def test_what_hangs_is_found(monkeypatch: pytest.MonkeyPatch) -> None:
    class Hanging(Fragile):
        def attempt(self, data: bytes, random: Random) -> Hashable:
            while True:
                pass

    monkeypatch.setattr(run, "HUNG", 0.01)
    monkeypatch.setattr(run, "MOST", 2)
    assert [words for _, words in fuzz(Hanging, 5, seed=1).findings] == ["Hung: no end after 0.01 s"] * 2


def test_what_is_logged_as_an_error_is_found() -> None:
    witness = Witness("shoal.http")
    witness.check()
    logging.getLogger("shoal.http").error("caught something")
    with pytest.raises(AssertionError, match="caught something"):
        witness.check()
    witness.check()


def test_inputs_stay_small_and_seeds_few() -> None:
    mutator = Mutator(Random(1), [b"x" * 1000], [b"y" * 1000], most=10)
    for _ in range(300):
        made: Any = mutator.make()
        assert len(made) <= LARGEST
        mutator.keep(made)
    assert len(mutator._seeds) <= 10
