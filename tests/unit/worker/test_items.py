import array
import datetime
import json
import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import HandlerFailed, InvalidInput, ProtocolError
from shoal.wire.memory import Arena, ArenaReader
from shoal.wire.messages import Item, PartHead
from shoal.wire.tray import Laid
from shoal.worker.items import BYTES_TYPE, JSON_TYPE, TEXT_TYPE, read_native, read_rows, write

JSON = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=True) | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=10,
)


def items(*parts: tuple[str, str, bytes]) -> tuple[list[Item], memoryview]:
    """One item per part."""
    made = [Item([PartHead(name, content_type, len(data))]) for name, content_type, data in parts]
    return made, memoryview(b"".join(data for _, _, data in parts))


def form(*parts: tuple[str, str, bytes]) -> tuple[list[Item], memoryview]:
    """One item of many parts."""
    heads = [PartHead(name, content_type, len(data)) for name, content_type, data in parts]
    return [Item(heads)], memoryview(b"".join(data for _, _, data in parts))


@pytest.mark.parametrize(
    ("content_type", "data", "native", "row"),
    [
        ("application/json", b'{"a": 1}', {"a": 1}, {"a": 1}),
        ("application/json; charset=utf-8", b"[1]", [1], [1]),
        ("Application/JSON", b"[1]", [1], [1]),
        ("text/plain", "grün".encode(), "grün", "grün"),
        ("text/csv; header=present", b"a,b", "a,b", "a,b"),
        ("image/jpeg", b"\xff\xd8", b"\xff\xd8", bytearray(b"\xff\xd8")),
        ("application/jsonlines", b"1", b"1", bytearray(b"1")),
        ("", b"", b"", bytearray()),
    ],
)
def test_a_body_is_read_by_its_content_type(content_type: str, data: bytes, native: Any, row: Any) -> None:
    (value,) = read_native(*items(("body", content_type, data)), None)
    (dict_row,) = read_rows(*items(("body", content_type, data)), None)
    assert (value, type(value)) == (native, type(native))
    assert dict_row == {"body": row}
    assert type(dict_row["body"]) is type(row)


def test_native_form_parts_come_as_a_dict_and_a_lone_part_as_its_value() -> None:
    assert read_native(*form(("image", "image/png", b"x"), ("note", "text/plain", b"hi")), None) == [
        {"image": b"x", "note": "hi"}
    ]
    assert read_native(*form(("image", "image/png", b"x")), None) == [b"x"]
    assert read_native([Item([])], memoryview(b""), None) == [b""]


def test_rows_have_one_key_per_part_and_the_last_of_a_name_wins() -> None:
    assert read_rows(*form(("a", "", b"1"), ("b", "text/plain", b"2"), ("a", "", b"3")), None) == [
        {"a": bytearray(b"3"), "b": "2"}
    ]


@pytest.mark.parametrize(
    ("content_type", "data", "message"),
    [
        ("application/json", b'{"a":}', "body is not valid JSON: invalid character at byte 5"),
        ("application/json", b'{"a"', "body is not valid JSON: input data was truncated at byte 4"),
        ("application/json", b"", "body is not valid JSON: it is empty"),
        ("application/json", b'[1, "\xff"]', "body is not valid UTF-8: invalid start byte at byte 5"),
        ("text/plain", b"ab\xff", "body is not valid UTF-8: invalid start byte at byte 2"),
    ],
)
def test_what_cannot_be_read_is_the_native_items_own_error(content_type: str, data: bytes, message: str) -> None:
    first, bad, last = read_native(*items(("body", "", b"1"), ("body", content_type, data), ("body", "", b"2")), None)
    assert (first, last) == (b"1", b"2")
    assert isinstance(bad, InvalidInput)
    assert str(bad) == message


def test_a_bad_part_of_a_form_is_named() -> None:
    (bad,) = read_native(*form(("image", "", b"1"), ("options", "application/json", b"{")), None)
    assert str(bad).startswith("options is not valid JSON")


def test_deeply_nested_json_is_an_error_not_a_crash() -> None:
    nested = b"[" * 100_000
    assert isinstance(read_native(*items(("body", "application/json", nested)), None)[0], InvalidInput)
    assert read_rows(*items(("body", "application/json", nested)), None) == [{"body": bytearray(nested)}]


@pytest.mark.parametrize(("content_type", "data"), [("application/json", b"{"), ("text/plain", b"\xff")])
def test_what_cannot_be_read_stays_raw_in_rows(content_type: str, data: bytes) -> None:
    (row,) = read_rows(*items(("body", content_type, data)), None)
    assert row == {"body": bytearray(data)}
    assert type(row["body"]) is bytearray


@given(JSON)
def test_rows_read_json_as_json_loads_does(value: Any) -> None:
    data = json.dumps(value).encode()
    (row,) = read_rows(*items(("body", "application/json", data)), None)
    assert repr(row["body"]) == repr(json.loads(data))


@given(st.lists(st.lists(st.tuples(st.binary(max_size=30), st.booleans()), max_size=3), max_size=6))
def test_every_part_finds_its_bytes_behind_the_message_or_in_shared_memory(
    parts: list[list[tuple[bytes, bool]]],
) -> None:
    arena = Arena(2**20)
    blocks, inline, made = [], b"", []
    for item in parts:
        heads = []
        for number, (data, is_shared) in enumerate(item):
            block = arena.lend(len(data)) if is_shared else None
            if block is None:
                inline += data
                heads.append(PartHead(str(number), "", len(data)))
            else:
                block.view[:] = data
                blocks.append(block)
                heads.append(PartHead(str(number), "", len(data), block.offset))
        made.append(Item(heads))
    reader = ArenaReader(arena.fd)
    expected = [{str(number): data for number, (data, _) in enumerate(item)} for item in parts]
    assert read_rows(made, memoryview(inline), reader) == expected
    values = read_native(made, memoryview(inline), reader)
    assert values == [row if len(row) > 1 else next(iter(row.values()), b"") for row in expected]
    arena.close()


def test_shared_memory_that_was_never_given_is_a_protocol_error() -> None:
    with pytest.raises(ProtocolError, match="given none"):
        read_native([Item([PartHead("body", "", 3, 0)])], memoryview(b""), None)


@pytest.mark.parametrize(
    ("value", "body", "content_type"),
    [
        (b"raw", b"raw", BYTES_TYPE),
        (bytearray(b"raw"), b"raw", BYTES_TYPE),
        (memoryview(b"raw"), b"raw", BYTES_TYPE),
        (memoryview(array.array("H", [1, 2])), b"\x01\x00\x02\x00", BYTES_TYPE),
        (memoryview(b"abcd")[::2], b"ac", BYTES_TYPE),
        ("grün", "grün".encode(), TEXT_TYPE),
        (None, b"null", JSON_TYPE),
        ({"a": [1, 2.5, True, None]}, b'{"a":[1,2.5,true,null]}', JSON_TYPE),
        (math.nan, b"null", JSON_TYPE),
        (np.float32(0.5), b"0.5", JSON_TYPE),
        (np.int64(3), b"3", JSON_TYPE),
        ({"p": np.array([[1, 2]]), "q": np.float64(math.nan)}, b'{"p":[[1,2]],"q":null}', JSON_TYPE),
        ({np.int64(7): 1, None: 2, True: 3}, b'{"7":1,"null":2,"true":3}', JSON_TYPE),
        ({3}, b"[3]", JSON_TYPE),
        (Path("/a/b"), b'"/a/b"', JSON_TYPE),
        (datetime.date(2024, 1, 2), b'"2024-01-02"', JSON_TYPE),
    ],
)
def test_a_result_becomes_bytes_with_a_content_type(value: Any, body: bytes, content_type: str) -> None:
    written, said = write(value)
    assert not isinstance(written, Laid)
    assert (bytes(written), said) == (body, content_type)
    assert len(written) == len(body)


@pytest.mark.parametrize(
    ("value", "name"), [(object(), "object"), ({"a": {"b": object()}}, "object"), ("\ud800", "str")]
)
def test_a_result_that_cannot_be_said_names_its_type(value: Any, name: str) -> None:
    with pytest.raises(
        HandlerFailed, match=rf"a result of type {type(value).__name__} cannot be sent: .*{name}|surrogates"
    ):
        write(value)
