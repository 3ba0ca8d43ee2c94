"""Too much of something: parts, names, nesting, tensors, elements. Each is refused, and nothing is kept."""

import pytest

from shoal.errors import InvalidInput
from shoal.frontend.forms import MOST_PARTS, form_parts
from shoal.frontend.grpc.calls import parse
from shoal.frontend.grpc.proto import grpc_service_pb2 as messages
from shoal.frontend.kserve.desk import MOST_TENSORS
from tests.unit.frontend.kserve.bed import Bed, given, spec

FORM = b"multipart/form-data; boundary=x"


def part(name: bytes, content: bytes = b"1") -> bytes:
    return b'--x\r\nContent-Disposition: form-data; name="%b"\r\n\r\n%b\r\n' % (name, content)


def test_a_form_has_so_many_parts_and_no_more() -> None:
    parts = [part(b"p%d" % number) for number in range(MOST_PARTS + 1)]
    assert len(form_parts(FORM, b"".join(parts[:-1]) + b"--x--")) == MOST_PARTS
    with pytest.raises(InvalidInput, match="multipart body is broken"):
        form_parts(FORM, b"".join(parts) + b"--x--")


def test_the_head_of_a_part_is_bounded() -> None:
    with pytest.raises(InvalidInput, match="multipart body is broken"):
        form_parts(FORM, part(b"n" * 100_000) + b"--x--")
    many = b"".join(b"X-%d: y\r\n" % number for number in range(100))
    with pytest.raises(InvalidInput, match="multipart body is broken"):
        form_parts(FORM, b'--x\r\nContent-Disposition: form-data; name="a"\r\n' + many + b"\r\n1\r\n--x--")


@pytest.mark.parametrize("opening", ["[", '{"a":', '{"parameters":{"a":', '{"inputs":[{"data":['])
def test_json_without_a_bottom_is_refused(opening: str) -> None:
    bed = Bed()
    bed.add("m", spec("IN"))
    for target in ("/v2/models/m/infer", "/v2/models/m/generate", "/v2/repository/models/m/load", "/v2/logging"):
        answer = bed.ask(target, (opening * 100_000).encode())
        assert answer.status == 400, target


def test_data_may_be_nested_only_so_deep() -> None:
    bed = Bed()
    bed.add("m", spec("IN", dims=[1]))
    data = "[" * 150 + "1" + "]" * 150
    answer = bed.infer(b'{"inputs": [{"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": %b}]}' % data.encode())
    assert answer.status == 400
    assert b"nested 100 deep" in answer.body


def test_a_request_has_so_many_tensors_and_no_more() -> None:
    bed = Bed()
    bed.add("m", spec("IN"))
    inputs = [given(f"IN{number}") for number in range(MOST_TENSORS + 1)]
    answer = bed.infer({"inputs": inputs})
    assert answer.status == 400
    assert f"at most {MOST_TENSORS} inputs" in answer.body.decode()


@pytest.mark.parametrize(
    "shape", [[2**62, 4], [2**63 - 1], [2**32, 2**32], [2**63, 2], [1, 2**31, 2**31, 2**31], [0, 2**63 - 1]]
)
def test_a_shape_whose_product_overflows_is_refused(shape: list[int]) -> None:
    bed = Bed()
    bed.add("m", spec("IN", dims=[-1] * max(1, len(shape) - 1)))
    answer = bed.infer({"inputs": [given("IN", shape=shape, data=[1.0])]})
    assert answer.status == 400
    assert bed.running() == []


def test_a_message_nested_without_a_bottom_is_refused() -> None:
    field = 1  # an unknown group inside a group, 100,000 times
    message = bytes([field << 3 | 3]) * 100_000
    with pytest.raises(InvalidInput):
        parse(messages.ModelInferRequest, message)


def test_the_id_of_a_request_is_bounded() -> None:
    bed = Bed()
    bed.add("m", spec("IN"))
    assert bed.infer({"id": "x" * 100_000, "inputs": [given("IN")]}).status == 400
    assert bed.running() == []
