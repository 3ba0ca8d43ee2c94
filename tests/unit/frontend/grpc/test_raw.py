"""Raw tensors beside protobuf: cutting them out and putting them in is what protobuf itself would read."""

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.frontend.grpc.proto import grpc_service_pb2 as messages
from shoal.frontend.grpc.raw import WORTH, cut, put

LARGE = st.integers(0, 3).map(lambda n: bytes([n]) * (WORTH + n))


def request(*tensors: bytes, id: str = "") -> messages.ModelInferRequest:
    made = messages.ModelInferRequest(model_name="m", id=id, raw_input_contents=list(tensors))
    for number, tensor in enumerate(tensors):
        made.inputs.add(name=f"IN{number}", datatype="UINT8", shape=[1, len(tensor)])
    made.parameters["limit"].int64_param = 3
    return made


@settings(max_examples=60, deadline=None)
@given(st.lists(st.binary(max_size=300) | LARGE, max_size=4), st.text(max_size=20))
def test_what_is_cut_out_and_the_rest_are_the_whole(tensors: list[bytes], id: str) -> None:
    asked = request(*tensors, id=id)
    rest, raw = cut(asked.SerializeToString())
    read = messages.ModelInferRequest.FromString(rest)
    assert [bytes(each) for each in raw or read.raw_input_contents] == tensors
    if raw:
        assert not read.raw_input_contents
        read.raw_input_contents.extend(map(bytes, raw))
    assert read == asked


def test_a_large_tensor_is_not_copied() -> None:
    text = request(bytes(WORTH)).SerializeToString()
    _, (tensor,) = cut(text)
    assert tensor.obj is text


def test_a_small_message_is_left_alone() -> None:
    text = request(b"abc").SerializeToString()
    assert cut(text) == (text, [])


@settings(max_examples=200, deadline=None)
@given(st.binary(max_size=60), st.binary(max_size=60))
def test_nonsense_is_left_to_protobuf(before: bytes, after: bytes) -> None:
    """Whatever stands around a tensor: what is cut reads as the whole does, or nothing is cut."""
    text = before + request(bytes(WORTH)).SerializeToString() + after
    rest, raw = cut(text)
    if not raw:
        assert rest == text
        return
    try:
        whole = messages.ModelInferRequest.FromString(text)
    except Exception:
        with pytest.raises(Exception, match="rror"):
            messages.ModelInferRequest.FromString(rest)
        return
    assert [bytes(each) for each in raw] == list(whole.raw_input_contents)


@pytest.mark.parametrize("size", [1, 5, 127, WORTH])
def test_a_message_that_ends_too_early_is_left_to_protobuf(size: int) -> None:
    text = request(bytes(2 * WORTH)).SerializeToString()[:-size]
    assert cut(text) == (text, [])


def test_very_many_fields_are_left_to_protobuf() -> None:
    text = request(*[b"x" * 8] * 5000).SerializeToString()
    assert cut(text) == (text, [])


@given(st.lists(st.binary(max_size=300) | LARGE, max_size=4))
@settings(max_examples=40, deadline=None)
def test_what_is_put_in_reads_as_protobuf_would_write_it(tensors: list[bytes]) -> None:
    response = messages.ModelInferResponse(model_name="m", id="7")
    for number in range(len(tensors)):
        response.outputs.add(name=f"OUT{number}", datatype="UINT8", shape=[1])
    pieces = [response.SerializeToString(), *put([memoryview(each) for each in tensors])]
    response.raw_output_contents.extend(tensors)
    assert messages.ModelInferResponse.FromString(b"".join(pieces)) == response
