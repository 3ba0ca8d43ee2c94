import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.triton.cache import OVERHEAD, ResponseCache, Tensor, cache_key

INPUT: Tensor = ("IN", "FP32", [1, 2], b"12345678")
BASE = cache_key("m", "1", [INPUT], ["OUT"], {"k": 1})


@pytest.mark.parametrize(
    "other",
    [
        cache_key("n", "1", [INPUT], ["OUT"], {"k": 1}),
        cache_key("m", "2", [INPUT], ["OUT"], {"k": 1}),
        cache_key("m1", "", [INPUT], ["OUT"], {"k": 1}),
        cache_key("m", "1", [("IM", "FP32", [1, 2], b"12345678")], ["OUT"], {"k": 1}),
        cache_key("m", "1", [("IN", "INT32", [1, 2], b"12345678")], ["OUT"], {"k": 1}),
        cache_key("m", "1", [("IN", "FP32", [2, 1], b"12345678")], ["OUT"], {"k": 1}),
        cache_key("m", "1", [("IN", "FP32", [1, 2], b"12345679")], ["OUT"], {"k": 1}),
        cache_key("m", "1", [INPUT, ("J", "FP32", [0], b"")], ["OUT"], {"k": 1}),
        cache_key("m", "1", [INPUT], ["OUT2"], {"k": 1}),
        cache_key("m", "1", [INPUT], ["OUT", "OUT2"], {"k": 1}),
        cache_key("m", "1", [INPUT], [], {"k": 1}),
        cache_key("m", "1", [INPUT], ["OUT"], {"k": 2}),
        cache_key("m", "1", [INPUT], ["OUT"], {"k": True}),
        cache_key("m", "1", [INPUT], ["OUT"], {"k": "1"}),
        cache_key("m", "1", [INPUT], ["OUT"], {}),
    ],
)
def test_whatever_an_answer_depends_on_is_in_the_key(other: bytes) -> None:
    assert other != BASE


def test_order_and_kind_of_memory_do_not_matter() -> None:
    more: Tensor = ("J", "BYTES", [1], b"x")

    assert cache_key("m", "1", [("IN", "FP32", (1, 2), memoryview(b"12345678"))], ["OUT"], {"k": 1}) == BASE
    assert cache_key("m", "1", [INPUT, more], ["A", "B"]) == cache_key("m", "1", [more, INPUT], ["B", "A", "B"])
    assert cache_key("m", "1", [], [], {"a": 1, "b": 2}) == cache_key("m", "1", [], [], {"b": 2, "a": 1})


def test_bytes_do_not_run_from_one_input_into_the_next() -> None:
    one = cache_key("m", "1", [("A", "BYTES", [1], b"xy"), ("B", "BYTES", [1], b"z")])
    other = cache_key("m", "1", [("A", "BYTES", [1], b"x"), ("B", "BYTES", [1], b"yz")])

    assert one != other


def test_an_answer_is_found_again() -> None:
    cache: ResponseCache[str] = ResponseCache(10_000)
    assert cache.get(b"k") is None
    assert cache.put(b"k", "answer", 100)
    assert cache.put(b"k", "another", 100)

    assert cache.get(b"k") == "answer"
    assert (cache.hits, cache.misses, len(cache), cache.used) == (1, 1, 1, 100 + OVERHEAD)
    cache.clear()
    assert (len(cache), cache.used, cache.get(b"k")) == (0, 0, None)


def test_the_least_recently_used_goes_first() -> None:
    cache: ResponseCache[int] = ResponseCache(3 * (OVERHEAD + 10))
    for number in range(3):
        cache.put(b"%d" % number, number, 10)
    cache.get(b"0")
    cache.put(b"2", 2, 10)
    cache.put(b"3", 3, 10)

    assert [cache.get(b"%d" % number) for number in range(4)] == [0, None, 2, 3]
    assert cache.evictions == 1


def test_what_is_larger_than_the_cache_is_not_kept() -> None:
    cache: ResponseCache[int] = ResponseCache(OVERHEAD + 10)
    cache.put(b"small", 1, 10)

    assert not cache.put(b"large", 2, 11)
    assert cache.get(b"small") == 1


@given(st.lists(st.tuples(st.integers(0, 9), st.integers(0, 2000))))
def test_the_cache_never_holds_more_than_it_may(puts: list[tuple[int, int]]) -> None:
    cache: ResponseCache[int] = ResponseCache(4000)
    for key, size in puts:
        cache.put(b"%d" % key, size, size)
        assert cache.used <= cache.size
        assert (cache.used == 0) == (len(cache) == 0)
