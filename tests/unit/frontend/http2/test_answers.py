"""The blocks of answers."""

import base64
from urllib.parse import unquote_to_bytes

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.http2 import answers
from shoal.frontend.http2.hpack import Decoder, Field


def fields(block: bytes) -> list[Field]:
    return Decoder(4096, 2**20).decode(block) or []


def test_the_usual_blocks() -> None:
    assert fields(answers.HEAD) == [(b":status", b"200"), (b"content-type", b"application/grpc")]
    assert fields(answers.OK) == [(b"grpc-status", b"0")]


def test_an_answer_of_nothing_but_trailers_has_the_head_too() -> None:
    assert fields(answers.lone(5, "gone")) == [
        (b":status", b"200"),
        (b"content-type", b"application/grpc"),
        (b"grpc-status", b"5"),
        (b"grpc-message", b"gone"),
    ]


def test_metadata_travels_binary_or_plain() -> None:
    block = answers.trailers(0, "", [(b"k-bin", b"\0\xff"), (b"k", b"a\r\nb\xe9")])

    assert fields(block) == [(b"grpc-status", b"0"), (b"k-bin", b"AP8"), (b"k", b"a??b?")]


@pytest.mark.parametrize("name", [b"Upper", b"", b":path", b"a b", b"grpc-status", b"grpc-message", b"a\n"])
def test_metadata_that_cannot_travel_is_refused(name: bytes) -> None:
    with pytest.raises(ValueError, match="cannot name metadata"):
        answers.trailers(0, "", [(name, b"")])


@given(st.text(max_size=100))
def test_a_message_is_percent_encoded_and_comes_back(text: str) -> None:
    block = dict(fields(answers.trailers(13, text)))

    encoded = block.get(b"grpc-message", b"")
    assert all(0x20 <= byte < 0x7F for byte in encoded)
    assert unquote_to_bytes(encoded) == text.encode(errors="replace")


def test_a_long_message_is_cut_between_characters_of_its_encoding() -> None:
    encoded = dict(fields(answers.trailers(13, "é" * 5000)))[b"grpc-message"]

    assert len(encoded) <= answers.MAX_TEXT
    assert encoded.count(b"%") * 3 == len(encoded)


@given(st.binary(max_size=100))
def test_binary_metadata_comes_back(value: bytes) -> None:
    text = dict(fields(answers.trailers(0, "", [(b"k-bin", value)])))[b"k-bin"]

    assert b"=" not in text
    assert base64.b64decode(text + b"=" * (-len(text) % 4)) == value
