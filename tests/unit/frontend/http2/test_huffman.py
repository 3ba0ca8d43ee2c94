"""The Huffman code."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.http2 import huffman


@given(st.binary(max_size=200))
def test_what_is_encoded_is_decoded(text: bytes) -> None:
    assert huffman.decode(huffman.encode(text)) == text


@given(st.binary(max_size=60))
def test_any_bytes_are_a_string_of_that_code_or_refused(data: bytes) -> None:
    try:
        text = huffman.decode(data)
    except huffman.BadHuffman:
        return

    assert huffman.encode(text) == data


@pytest.mark.parametrize(
    ("text", "code"),
    [
        (b"www.example.com", "f1e3c2e5f23a6ba0ab90f4ff"),
        (b"no-cache", "a8eb10649cbf"),
        (b"custom-key", "25a849e95ba97d7f"),
        (b"custom-value", "25a849e95bb8e8b4bf"),
        (b"302", "6402"),
        (b"private", "aec3771a4b"),
        (b"Mon, 21 Oct 2013 20:13:21 GMT", "d07abe941054d444a8200595040b8166e082a62d1bff"),
        (b"https://www.example.com", "9d29ad171863c78f0b97c8e9ae82ae43d3"),
        (
            b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1",
            "94e7821dd7f2e6c7b335dfdfcd5b3960d5af27087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ),
    ],
)
def test_the_strings_of_the_rfc(text: bytes, code: str) -> None:
    assert huffman.encode(text) == bytes.fromhex(code)
    assert huffman.decode(bytes.fromhex(code)) == text


def test_the_longest_codes_are_right() -> None:
    assert huffman.encode(b"\n") == bytes.fromhex("fffffff3")
    assert huffman.encode(b"\x16") == bytes.fromhex("fffffffb")
    assert huffman.encode(b"\xf9") == bytes.fromhex("ffffffef")


@pytest.mark.parametrize(
    ("data", "why"),
    [
        ("ff" * 4, "inside"),  # the end of the string itself
        ("07ff", "padding"),  # a whole byte of padding
        ("00", "padding"),  # zeros pad nothing
        ("1fff", "padding"),
        ("ffffff", "padding"),
    ],
)
def test_an_end_of_string_or_wrong_padding_is_refused(data: str, why: str) -> None:
    with pytest.raises(huffman.BadHuffman, match=why):
        huffman.decode(bytes.fromhex(data))


def test_seven_ones_are_padding() -> None:
    assert huffman.decode(bytes.fromhex("a8eb10649cbf")) == b"no-cache"
    assert huffman.encode(b"&")[0] == 0b11111000
    assert huffman.decode(b"") == b""
