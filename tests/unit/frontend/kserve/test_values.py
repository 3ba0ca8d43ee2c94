import json
import math
import struct
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidInput
from shoal.frontend.kserve.values import CODES, dump, from_json, to_bytes, to_json, to_list
from shoal.tensor import pack_strings, string_ends, unpack_strings

WHOLE = sorted(set(CODES) - {"FP32", "FP64"})


def read(datatype: str, text: str | bytes, count: int = -1) -> bytes:
    raw = text.encode() if isinstance(text, str) else text
    wanted = count if count >= 0 else raw.count(b",") + 1
    return from_json(datatype, "IN", wanted, msgspec.Raw(raw))


def limits(datatype: str) -> tuple[int, int]:
    bits = int(datatype.lstrip("UINT"))
    return (0, 2**bits - 1) if datatype[0] == "U" else (-(2 ** (bits - 1)), 2 ** (bits - 1) - 1)


@given(st.data())
@pytest.mark.parametrize("datatype", WHOLE)
def test_whole_numbers_survive_the_way_to_bytes_and_back(datatype: str, data: st.DataObject) -> None:
    low, high = limits(datatype)
    values = data.draw(st.lists(st.integers(low, high)))

    written = read(datatype, json.dumps(values), len(values))

    assert len(written) * 8 == len(values) * int(datatype.lstrip("UINT"))
    assert json.loads(to_json(datatype, memoryview(written))) == values


@given(st.lists(st.floats(width=32, allow_nan=False, allow_infinity=False)))
def test_single_floats_survive(values: list[float]) -> None:
    written = read("FP32", json.dumps(values), len(values))

    assert written == struct.pack(f"<{len(values)}f", *values)
    assert to_list("FP32", memoryview(written)) == values


@given(st.lists(st.floats(allow_nan=False, allow_infinity=False)), st.lists(st.booleans()), st.lists(st.text()))
def test_doubles_booleans_and_texts_survive(doubles: list[float], flags: list[bool], texts: list[str]) -> None:
    assert to_list("FP64", memoryview(read("FP64", json.dumps(doubles), len(doubles)))) == doubles
    assert to_list("BOOL", memoryview(read("BOOL", json.dumps(flags), len(flags)))) == flags
    texts = [text for text in texts if not any(0xD800 <= ord(c) < 0xE000 for c in text)]
    assert json.loads(to_json("BYTES", memoryview(read("BYTES", json.dumps(texts))))) == texts


@given(st.lists(st.binary()))
def test_strings_are_taken_apart_as_they_were_put_together(values: list[bytes]) -> None:
    packed = pack_strings(values)

    assert unpack_strings(packed) == values
    assert len(string_ends(packed, len(values))) == len(values)


@given(st.binary(max_size=40))
def test_any_bytes_are_strings_or_refused(data: bytes) -> None:
    try:
        found = unpack_strings(data)
    except InvalidInput:
        return
    assert pack_strings(found) == data


def test_nobody_counts_further_than_asked() -> None:
    assert len(string_ends(bytes(4000), 3)) == 4


@pytest.mark.parametrize(
    "text", ["[1,2,3,4]", "[[1,2],[3,4]]", " [ [[1],[2]], [[3],[4]] ]", "[[1],2,[[3,4]]]", "[[],[1,2,3,4]]"]
)
def test_nested_lists_are_as_good_as_flat_ones(text: str) -> None:
    assert read("INT32", text, 4) == struct.pack("<4i", 1, 2, 3, 4)


@pytest.mark.parametrize(
    ("datatype", "value", "wrapped"),
    [
        ("UINT8", 300, 44),
        ("INT8", 200, -56),
        ("INT16", 65535, -1),
        ("UINT32", 2**32 + 5, 5),
        ("INT32", -(2**31) - 1, 2**31 - 1),
    ],
)
def test_numbers_too_large_lose_their_upper_bits(datatype: str, value: int, wrapped: int) -> None:
    assert to_list(datatype, memoryview(read(datatype, f"[{value}]"))) == [wrapped]


@pytest.mark.parametrize(
    ("datatype", "text", "words"),
    [
        ("UINT8", "[-1]", "non-unsigned-int"),
        ("INT8", "[1.5]", "non-int"),
        ("INT64", "[9223372036854775808]", "does not fit into 64 bits"),
        ("UINT64", "[18446744073709551616]", "does not fit into 64 bits"),
        ("FP32", '["1"]', "non-number as double"),
        ("FP32", "[null]", "non-number as double"),
        ("FP32", "[true]", "non-number as double"),
        ("BOOL", "[1]", "non-boolean as boolean"),
        ("BYTES", "[1]", "Unable to parse JSON bytes array"),
        ("BYTES", '["\\ud800"]', "Unable to parse 'data'"),
        ("BYTES", b'["\xff"]', "Unable to parse 'data'"),
        ("FP32", "1", "non-array as array"),
        ("FP32", '{"a":1}', "non-array as array"),
        ("FP16", "[1]", "receiving FP16 data via JSON is not supported"),
        ("BF16", "[1]", "receiving BF16 data via JSON is not supported"),
        ("FP32", "[1,2]", "Shape does not match true shape of 'data' field of input 'IN': expected 1 values, got 2"),
        ("FP32", "[" * 100 + "1" + "]" * 100, "nested 100 deep"),
        ("FP32", "[" * 5000 + "]" * 5000, "Unable to parse 'data'"),
    ],
)  # fmt: skip
def test_what_does_not_fit_is_refused(datatype: str, text: str | bytes, words: str) -> None:
    with pytest.raises(InvalidInput, match=words.replace("[", r"\[")):
        read(datatype, text, 1)


def test_lists_may_be_99_deep() -> None:
    assert read("FP32", "[" * 99 + "1" + "]" * 99, 1) == struct.pack("<f", 1)


def test_what_json_has_no_word_for_is_written_bare() -> None:
    data = memoryview(struct.pack("<4f", math.nan, math.inf, -math.inf, 0.5))

    assert to_json("FP32", data) == b"[NaN,Infinity,-Infinity,0.5]"


def test_bytes_that_are_no_text_stay_as_they_are() -> None:
    assert (
        to_json("BYTES", memoryview(pack_strings([b"\xff", b'a"\n', "é".encode()]))) == b'["\xff","a\\"\\n","\xc3\xa9"]'
    )


def test_a_null_that_is_meant_is_written_as_one() -> None:
    assert dump({"a": None, "b": "null"}) == b'{"a":null,"b":"null"}'


@given(
    st.recursive(
        st.none() | st.booleans() | st.floats() | st.integers() | st.text(),
        lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
        max_leaves=8,
    )
)
@pytest.mark.parametrize("datatype", ["BOOL", "UINT8", "INT64", "FP32", "BYTES"])
def test_any_json_is_bytes_or_refused(datatype: str, value: Any) -> None:
    for raw in (msgspec.Raw(msgspec.json.encode(value)), value):
        try:
            written = from_json(datatype, "IN", 2, raw)
        except InvalidInput:
            continue
        assert datatype == "BYTES" or len(to_list(datatype, memoryview(written))) == 2


def test_zero_values_are_zero_bytes() -> None:
    assert to_bytes("FP32", []) == b"" and to_bytes("BOOL", []) == b""


def test_half_a_surrogate_pair_is_no_text_however_it_was_read() -> None:
    with pytest.raises(InvalidInput, match="half of a surrogate pair is no text"):
        from_json("BYTES", "IN", 1, ["\ud800"])
