"""Access: which calls need a header, and which headers become parameters."""

import msgspec
import pytest

from shoal.config.triton import Restriction
from shoal.errors import ConfigError, InvalidInput, Unauthorised
from shoal.frontend.grpc.kserve import PREFIX
from shoal.frontend.grpc.proto import grpc_service_pb2 as pb
from shoal.frontend.kserve.access import grpc_access, http_access
from shoal.frontend.kserve.asked import Asked
from shoal.frontend.kserve.controls import NO_CONTROLS, Controls
from shoal.frontend.rpc import Code
from tests.unit.frontend.grpc.calling import FakeCall
from tests.unit.frontend.kserve.bed import Bed, Memory, behind, binary, given

TWO = [Restriction(frozenset({"metadata", "trace"}), "Admin-Key", "open"), Restriction(frozenset({"health"}), "k", "v")]


def asked(controls: Controls = NO_CONTROLS) -> Asked:
    return Asked("", [], None, controls)


def told(bed: Bed) -> dict[str, object]:
    (running,) = bed.running()
    found: dict[str, object] = msgspec.msgpack.decode(running.payload.headers[0][1])["parameters"]
    return found


def test_a_group_needs_its_own_header_and_no_other() -> None:
    access = http_access(TWO, "")

    access.check("inference", [])
    access.check("metadata", [(b"x", b"y"), (b"ADMIN-key", b"open")])
    access.check("health", [(b"k", b"v")])
    for headers in ([], [(b"admin-key", b"shut")], [(b"admin-key", b"")], [(b"k", b"v")], [(b"open", b"admin-key")]):
        with pytest.raises(Unauthorised, match="This API is restricted, expecting header 'admin-key'"):
            access.check("trace", headers)


def test_grpc_wants_its_keys_under_names_of_its_own() -> None:
    access = grpc_access(TWO, "")

    access.check("metadata", [(b"triton-grpc-protocol-admin-key", b"open")])
    with pytest.raises(Unauthorised, match="This protocol is restricted, expecting header 'triton-grpc-protocol-k'"):
        access.check("health", [(b"k", b"v")])


def test_a_group_cannot_be_restricted_twice() -> None:
    with pytest.raises(ConfigError, match="'trace' is restricted twice"):
        http_access([TWO[0], Restriction(frozenset({"trace"}), "other", "x")], "")


@pytest.mark.parametrize(
    ("pattern", "names"),
    [
        ("", []),
        ("x-.*", ["X-One", "x-two", "Not-X-Three"]),
        ("^x-", ["X-One", "x-two"]),
        ("(?-i)^x-", ["x-two"]),
        ("nothing", []),
    ],
)
def test_headers_that_match_anywhere_become_parameters(pattern: str, names: list[str]) -> None:
    one = asked()
    headers = [(b"X-One", b"1"), (b"x-two", "\xfc".encode()), (b"Not-X-Three", b"3"), (b"Host", b"h")]

    http_access([], pattern).forward(one, headers)

    values = {"X-One": "1", "x-two": "ü", "Not-X-Three": "3"}
    assert one.controls.parameters == {name: values[name] for name in names}


def test_a_header_wins_over_a_parameter_and_leaves_the_rest_as_it_is() -> None:
    one = asked(Controls({"x-a": 1, "own": True}, priority=3, timeout=7, is_binary=True, wants_final=True))

    http_access([], "x-").forward(one, [(b"x-a", b"2")])

    assert one.controls == Controls({"x-a": "2", "own": True}, priority=3, timeout=7, is_binary=True, wants_final=True)


@pytest.mark.parametrize("name", [b"Priority", b"timeout", b"triton_x", b"Sequence_Id", b"binary_data_output"])
def test_a_header_with_a_reserved_name_is_refused(name: bytes) -> None:
    with pytest.raises(InvalidInput, match="is reserved"):
        http_access([], ".*").forward(asked(), [(name, b"1")])


def test_a_pattern_that_is_none_is_refused_with_its_flag() -> None:
    with pytest.raises(ConfigError, match="--grpc-header-forward-pattern '\\[' is no regular expression"):
        grpc_access([], "[")


def test_an_inference_over_http_is_told_the_headers() -> None:
    bed = Bed(http=http_access([], "x-"))
    bed.add()

    bed.infer({"inputs": [given()], "parameters": {"own": 1}}, {"X-Colour": "red", "Y": "no"})

    assert told(bed) == {"own": 1, "X-Colour": "red"}


def test_a_reserved_header_of_an_inference_is_the_clients_mistake_and_lends_nothing() -> None:
    bed = Bed(http=http_access([], "."))
    bed.add()

    body, headers = binary({"inputs": [behind()]}, bytes(16))
    lent = Memory(body)

    answer = bed.infer(lent, {**headers, "Priority": "u=1"})

    assert answer.status == 400 and "'Priority'" in answer.json["error"] and not bed.running()
    assert lent.released == 1


@pytest.mark.parametrize("method", ["ModelInfer", "ModelStreamInfer"])
def test_an_inference_over_grpc_is_told_the_metadata(method: str) -> None:
    bed = Bed(grpc=grpc_access([], "x-"))
    bed.add()
    tensor = pb.ModelInferRequest.InferInputTensor(name="IN", datatype="FP32", shape=[1, 4])
    message = pb.ModelInferRequest(model_name="m", inputs=[tensor], raw_input_contents=[b"\0" * 16])
    metadata = [(b"x-colour", b"red"), (b"user-agent", b"me")]

    call = FakeCall(PREFIX + method, metadata=metadata).begin(bed.services, message.SerializeToString())

    assert told(bed) == {"x-colour": "red"} and call.code in (None, Code.OK)
