"""Bytes to arrays and back."""

from typing import Any

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal import tensor
from shoal.errors import HandlerFailed, InvalidInput, ProtocolError
from shoal.wire.messages import Item, PartHead
from shoal.worker.backends import tensors
from shoal.worker.backends.received import Asked, Received


def item(datatype: str, shape: list[int], data: bytes, *headers: tuple[bytes, bytes]) -> tuple[list[Item], memoryview]:
    head = PartHead("x", tensor.part_type(datatype, shape), len(data))
    return [Item([head], b"", list(headers))], memoryview(data)


@given(st.lists(st.binary(max_size=40)))
def test_strings_are_cut_as_they_were_joined(elements: list[bytes]) -> None:
    array = np.empty(len(elements), object)
    array[:] = elements
    assert tensors.split_bytes(tensors.write_bytes(array), "x") == elements


@given(st.binary(max_size=40))
def test_bytes_that_are_no_strings_are_refused_and_never_read_past_their_end(data: bytes) -> None:
    try:
        found = tensors.split_bytes(data, "x")
    except InvalidInput as error:
        assert "'x'" in str(error)
    else:
        array = np.empty(len(found), object)
        array[:] = found
        assert tensors.write_bytes(array) == data


def test_text_is_written_as_utf8_and_numbers_as_their_text() -> None:
    assert tensors.write_bytes(np.array(["é", b"\xff", 3], object)) == (
        b"\x02\0\0\0\xc3\xa9" + b"\x01\0\0\0\xff" + b"\x01\0\0\x003"
    )


def test_the_count_of_strings_is_the_shapes() -> None:
    with pytest.raises(InvalidInput, match=r"expected 2 string elements for inference input 'x', got 1"):
        tensors.read_bytes(b"\x01\0\0\0a", [1, 2], "x")


def test_an_array_looks_at_the_bytes_of_the_request() -> None:
    data = bytearray(np.arange(4, dtype=np.float32).tobytes())
    array = tensors.array_of("x", Received("FP32", (2, 2), memoryview(data)))
    data[:4] = np.float32(9).tobytes()
    assert array.tolist() == [[9, 1], [2, 3]]


def test_bytes_that_do_not_fit_the_shape_fail_that_request_alone() -> None:
    good = PartHead("x", tensor.part_type("INT16", [1]), 2)
    bad = PartHead("x", tensor.part_type("INT16", [2]), 2)
    first, second, third = tensors.read([Item([good]), Item([bad]), Item([good])], memoryview(b"\1\0\2\0\3\0"), None)
    assert isinstance(second, InvalidInput)
    assert str(second) == "input byte size mismatch for input 'x': expected 4 bytes for INT16 [2], got 2"
    assert bytes(first.inputs["x"].data) == b"\1\0" and bytes(third.inputs["x"].data) == b"\3\0"


@pytest.mark.parametrize("size", [4, 12])
def test_bytes_that_are_not_as_many_as_the_shape_says_are_no_array(size: int) -> None:
    with pytest.raises(ValueError, match="reshape"):
        tensors.array_of("x", Received("FP32", (2,), memoryview(bytes(size))))


def test_strings_that_cannot_be_cut_fail_their_request() -> None:
    ((call),) = tensors.read_arrays(*item("BYTES", [1], b"\x09\0\0\0abc"), None)
    assert isinstance(call, InvalidInput) and "is said to have 9 bytes, and 3 are left" in str(call)


def test_shared_memory_that_was_never_given_is_a_protocol_error() -> None:
    head = PartHead("x", tensor.part_type("INT8", [1]), 1, 0)
    with pytest.raises(ProtocolError, match="shared memory"):
        tensors.read([Item([head])], memoryview(b""), None)


def test_what_a_request_says_is_read() -> None:
    header = msgspec.msgpack.encode({"id": "a", "outputs": ["y"], "parameters": {"b": 1}, "timeout": 5})
    (call,) = tensors.read(*item("INT8", [1], b"\1", (b"other", b""), (b"v2", header)), None)
    assert call.asked == Asked("a", {"b": 1}, ["y"], {}, 5)
    assert call.wants("y") and not call.wants("z")
    (silent,) = tensors.read(*item("INT8", [1], b"\1"), None)
    assert silent.asked == Asked() and silent.wants("z")


@pytest.mark.parametrize(
    "array",
    [
        *(np.zeros((0, 3), np.float16), np.arange(6).reshape(2, 3).T, np.array(True), np.ones((2, 2), np.float16)),
        *(np.arange(12, dtype=np.uint8).reshape(3, 4)[:, ::2], np.arange(3, dtype=">i4"), np.zeros(2, np.bool_)),
    ],
)
def test_the_bytes_of_an_array_are_in_order(array: Any) -> None:
    assert bytes(tensors.bytes_of(array)) == array.tobytes()


@pytest.mark.parametrize("strings", [np.array([b"ab", b"c", b""]), np.array(["ab", b"c", ""], object)])
def test_strings_travel_after_their_lengths_whatever_array_they_are_in(strings: Any) -> None:
    assert tensors.bytes_of(strings) == b"\x02\0\0\0ab\x01\0\0\0c\0\0\0\0"


def test_the_bytes_of_numbers_that_have_no_letter_are_in_order() -> None:
    array = np.array([(1, 2)], np.dtype([("a", "i1"), ("b", "i1")]))  # as those of other libraries, such as bfloat16
    assert bytes(tensors.bytes_of(array)) == b"\1\2"


def test_the_bytes_of_an_array_in_order_are_not_copied() -> None:
    array = np.zeros(4, np.float32)
    view = tensors.bytes_of(array[1:3])
    array[1] = 1
    assert bytes(view) == np.array([1, 0], np.float32).tobytes()


def test_an_output_of_another_type_is_named() -> None:
    with pytest.raises(HandlerFailed, match=r"output 'y' must be FP32 .* the model gave FP64") as error:
        tensors.datatype_of("y", np.zeros(1), "FP32")
    assert error.value.status == 500
    assert tensors.datatype_of("y", np.zeros(1, np.uint16), "BF16") == "BF16"
    with pytest.raises(HandlerFailed, match="complex64"):
        tensors.datatype_of("y", np.zeros(1, np.complex64), "FP32")
