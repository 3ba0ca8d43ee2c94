"""Heads of calls: what they ask for, and which are refused."""

import base64
import math

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.http2.heads import Head, judge
from shoal.frontend.http2.hpack import Decoder, Field
from tests.unit.frontend.http2.fakes import HEAD


def judged(*more: Field, without: bytes = b"") -> Head:
    return judge([*(field for field in HEAD if field[0] != without), *more])


def refusal(head: Head) -> dict[bytes, bytes]:
    assert head.answer is not None
    return dict(Decoder(4096, 2**16).decode(head.answer) or ())


def test_a_head_says_method_and_metadata() -> None:
    head = judged((b"user-agent", b"x"), (b"key", b"1"), (b"key", b"2"), (b"grpc-accept-encoding", b"gzip"))

    assert (head.method, head.timeout, head.encoding) == ("/t.T/Echo", math.inf, b"identity")
    assert head.metadata == ((b"user-agent", b"x"), (b"key", b"1"), (b"key", b"2"))
    assert head.answer is None and not head.is_malformed


@pytest.mark.parametrize(
    ("text", "seconds"),
    [(b"2H", 7200), (b"3M", 180), (b"99999999S", 99999999), (b"5m", 0.005), (b"7u", 7e-6), (b"0n", 0)],
)
def test_a_timeout_is_read_in_its_unit(text: bytes, seconds: float) -> None:
    assert judged((b"grpc-timeout", text)).timeout == pytest.approx(seconds)


@pytest.mark.parametrize("text", [b"", b"5", b"S", b"123456789S", b"1.5S", b"-1S", b"1s", b"1S "])
def test_a_timeout_that_is_none_is_refused(text: bytes) -> None:
    assert refusal(judged((b"grpc-timeout", text)))[b"grpc-status"] == b"3"


@given(st.binary(max_size=50), st.booleans())
def test_binary_metadata_is_decoded_with_or_without_padding(value: bytes, is_padded: bool) -> None:
    text = base64.b64encode(value)
    head = judged((b"k-bin", text if is_padded else text.rstrip(b"=")), (b"k", text))

    assert head.metadata == ((b"k-bin", value), (b"k", text))


def test_binary_values_joined_by_commas_are_several() -> None:
    assert judged((b"k-bin", b"YQ==,Yg, Yw")).metadata == ((b"k-bin", b"a"), (b"k-bin", b"b"), (b"k-bin", b"c"))


@pytest.mark.parametrize("text", [b"a", b"a*bc", b"=a=="])
def test_binary_metadata_that_is_not_base64_is_refused(text: bytes) -> None:
    assert refusal(judged((b"k-bin", text)))[b"grpc-status"] == b"3"


@pytest.mark.parametrize("encoding", [b"identity", b"gzip", b"deflate"])
def test_known_encodings_are_taken(encoding: bytes) -> None:
    assert judged((b"grpc-encoding", encoding)).encoding == encoding


def test_an_unknown_encoding_is_unimplemented_and_told_which_are() -> None:
    fields = refusal(judged((b"grpc-encoding", b"snappy")))

    assert fields[b":status"] == b"200"
    assert fields[b"grpc-status"] == b"12"
    assert fields[b"grpc-accept-encoding"] == b"identity,deflate,gzip"


@pytest.mark.parametrize("text", [b"application/grpc", b"application/grpc+proto", b"application/grpc;charset=utf-8"])
def test_content_types_of_grpc_are_taken(text: bytes) -> None:
    assert judged((b"content-type", text), without=b"content-type").answer is None


@pytest.mark.parametrize("text", [b"application/json", b"application/grpc-web", b"", b"xapplication/grpc"])
def test_another_content_type_is_415(text: bytes) -> None:
    assert refusal(judged((b"content-type", text), without=b"content-type"))[b":status"] == b"415"
    assert refusal(judged(without=b"content-type"))[b":status"] == b"415"


def test_calls_are_made_with_post() -> None:
    assert refusal(judge([(b":method", b"GET"), *HEAD[1:]]))[b":status"] == b"405"


def test_a_head_too_large_is_431() -> None:
    assert refusal(judge(None))[b":status"] == b"431"
    assert refusal(judge(None))[b"grpc-status"] == b"8"


@pytest.mark.parametrize(
    "fields",
    [
        [],
        [field for field in HEAD if field[0] != b":path"],
        [field for field in HEAD if field[0] != b":method"],
        [field for field in HEAD if field[0] != b":scheme"],
        [(b":path", b"") if field[0] == b":path" else field for field in HEAD],
        [*HEAD, (b":path", b"/x")],
        [*HEAD[1:], HEAD[0]],  # after an ordinary header
        [(b"x", b"y"), *HEAD],
        [(b":status", b"200"), *HEAD],
        [(b":what", b""), *HEAD],
        [HEAD[0], *HEAD],
        [*HEAD, (b"connection", b"close")],
        [*HEAD, (b"transfer-encoding", b"chunked")],
        [*HEAD, (b"te", b"gzip")],
    ],
)
def test_a_malformed_head_is_known_as_one(fields: list[Field]) -> None:
    head = judge(fields)

    assert head.is_malformed
    assert head.method == ""


def test_te_may_be_missing() -> None:
    assert not judged(without=b"te").is_malformed


@given(st.lists(st.tuples(st.sampled_from([n for n, _ in HEAD] + [b"grpc-timeout", b"x-bin", b"y"]), st.binary())))
def test_any_fields_are_judged(fields: list[Field]) -> None:
    head = judge(fields)

    assert bool(head.method) == (head.answer is None and not head.is_malformed)
