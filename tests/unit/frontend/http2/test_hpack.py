"""Header compression: the examples of RFC 7541, Appendix C, and what is refused."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.http2 import huffman
from shoal.frontend.http2.frames import ErrorCode, Fault
from shoal.frontend.http2.hpack import STATIC, Decoder, Field, encode, encode_integer

FIRST = [(b":method", b"GET"), (b":scheme", b"http"), (b":path", b"/"), (b":authority", b"www.example.com")]
SECOND = [*FIRST, (b"cache-control", b"no-cache")]
THIRD = [
    (b":method", b"GET"),
    (b":scheme", b"https"),
    (b":path", b"/index.html"),
    (b":authority", b"www.example.com"),
    (b"custom-key", b"custom-value"),
]
DATE = (b"date", b"Mon, 21 Oct 2013 20:13:21 GMT")
LATER = (b"date", b"Mon, 21 Oct 2013 20:13:22 GMT")
PLACE = (b"location", b"https://www.example.com")
PRIVATE = (b"cache-control", b"private")
COOKIE = (b"set-cookie", b"foo=ASDJKHQKBZXOQWEOPIUAXQWEOIU; max-age=3600; version=1")
ANSWERS = [
    [(b":status", b"302"), PRIVATE, DATE, PLACE],
    [(b":status", b"307"), PRIVATE, DATE, PLACE],
    [(b":status", b"200"), PRIVATE, LATER, PLACE, (b"content-encoding", b"gzip"), COOKIE],
]


def table(decoder: Decoder) -> list[Field]:
    return list(decoder._entries)


def test_an_integer_in_its_prefix_and_beyond_it() -> None:  # C.1
    assert encode_integer(10, 0x1F) == b"\x0a"
    assert encode_integer(1337, 0x1F) == bytes.fromhex("1f9a0a")
    assert encode_integer(42, 0xFF) == b"\x2a"


@pytest.mark.parametrize(
    ("block", "field", "is_kept"),
    [
        ("400a637573746f6d2d6b65790d637573746f6d2d686561646572", (b"custom-key", b"custom-header"), True),
        ("040c2f73616d706c652f70617468", (b":path", b"/sample/path"), False),
        ("100870617373776f726406736563726574", (b"password", b"secret"), False),
        ("82", (b":method", b"GET"), False),
    ],
)
def test_the_forms_of_a_field(block: str, field: Field, is_kept: bool) -> None:  # C.2
    decoder = Decoder(4096, 4096)

    assert decoder.decode(bytes.fromhex(block)) == [field]
    assert table(decoder) == ([field] if is_kept else [])
    assert decoder.changes == is_kept


@pytest.mark.parametrize(
    "blocks",
    [
        (  # C.3
            "828684410f7777772e6578616d706c652e636f6d",
            "828684be58086e6f2d6361636865",
            "828785bf400a637573746f6d2d6b65790c637573746f6d2d76616c7565",
        ),
        (  # C.4, with Huffman
            "828684418cf1e3c2e5f23a6ba0ab90f4ff",
            "828684be5886a8eb10649cbf",
            "828785bf408825a849e95ba97d7f8925a849e95bb8e8b4bf",
        ),
    ],
)
def test_three_requests_on_one_connection(blocks: tuple[str, ...]) -> None:
    decoder = Decoder(4096, 4096)

    assert [decoder.decode(bytes.fromhex(block)) for block in blocks] == [FIRST, SECOND, THIRD]
    assert table(decoder) == [
        (b"custom-key", b"custom-value"),
        (b"cache-control", b"no-cache"),
        (b":authority", b"www.example.com"),
    ]
    assert decoder._size == 164


@pytest.mark.parametrize(
    "blocks",
    [
        (  # C.5
            "4803333032580770726976617465611d4d6f6e2c203231204f637420323031332032303a31333a323120474d546e1768747470733a"
            "2f2f7777772e6578616d706c652e636f6d",
            "4803333037c1c0bf",
            "88c1611d4d6f6e2c203231204f637420323031332032303a31333a323220474d54c05a04677a69707738666f6f3d4153444a4b4851"
            "4b425a584f5157454f50495541585157454f49553b206d61782d6167653d333630303b2076657273696f6e3d31",
        ),
        (  # C.6, with Huffman
            "488264025885aec3771a4b6196d07abe941054d444a8200595040b8166e082a62d1bff6e919d29ad171863c78f0b97c8e9ae82ae43d3",
            "4883640effc1c0bf",
            "88c16196d07abe941054d444a8200595040b8166e084a62d1bffc05a839bd9ab77ad94e7821dd7f2e6c7b335dfdfcd5b3960d5af27"
            "087f3672c1ab270fb5291f9587316065c003ed4ee5b1063d5007",
        ),
    ],
)
def test_entries_are_evicted_from_a_small_table(blocks: tuple[str, ...]) -> None:
    decoder = Decoder(256, 4096)

    assert [decoder.decode(bytes.fromhex(block)) for block in blocks] == ANSWERS
    assert table(decoder) == [COOKIE, (b"content-encoding", b"gzip"), LATER]
    assert decoder._size == 215


def literal(name: bytes, value: bytes, first: int = 0x40) -> bytes:
    return bytes((first,)) + encode_integer(len(name), 0x7F) + name + encode_integer(len(value), 0x7F) + value


@given(st.lists(st.tuples(st.integers(1, 30), st.integers(0, 60), st.booleans())), st.integers(0, 300))
def test_the_table_never_outgrows_its_limit(sizes: list[tuple[int, int, bool]], limit: int) -> None:
    decoder = Decoder(limit, 2**20)
    kept: list[Field] = []
    for number, (name, value, is_kept) in enumerate(sizes):
        field = b"n" * name, b"%d" % number + b"v" * value
        assert decoder.decode(literal(*field, first=0x40 if is_kept else 0x10)) == [field]
        if is_kept:
            kept.insert(0, field)
            while sum(len(n) + len(v) + 32 for n, v in kept) > limit:
                kept.pop()
        assert table(decoder) == kept
        assert decoder._size <= limit


def test_a_size_update_empties_the_table_and_counts_as_a_change() -> None:
    decoder = Decoder(4096, 4096)
    decoder.decode(literal(b"a", b"b"))

    assert decoder.decode(b"\x20" + literal(b"c", b"d")) == [(b"c", b"d")]
    assert table(decoder) == []
    assert decoder.changes == 3
    assert decoder.decode(b"\x3f\xe1\x1f" + literal(b"c", b"d")) == [(b"c", b"d")]  # 4096 again
    assert table(decoder) == [(b"c", b"d")]


def test_a_head_larger_than_allowed_is_none_and_the_table_goes_on() -> None:
    decoder = Decoder(4096, 100)

    assert decoder.decode(literal(b"a", b"1") + literal(b"b", b"2" * 100)) is None
    assert table(decoder)[1] == (b"a", b"1")
    assert decoder.decode(b"\xbf") == [(b"a", b"1")]
    assert decoder.decode(b"\xbf" * 3) is None  # 34 bytes each
    assert decoder.decode(b"\xbf" * 2) is not None


@pytest.mark.parametrize(
    ("block", "code"),
    [
        ("80", ErrorCode.COMPRESSION_ERROR),  # entry 0
        ("be", ErrorCode.COMPRESSION_ERROR),  # an entry that is not there
        ("7f", ErrorCode.COMPRESSION_ERROR),
        ("ffffffffff7f", ErrorCode.COMPRESSION_ERROR),  # an absurd number
        ("0f808080808080000161", ErrorCode.COMPRESSION_ERROR),  # a number written at length
        ("ff", ErrorCode.COMPRESSION_ERROR),
        ("4005616263", ErrorCode.COMPRESSION_ERROR),  # a name cut short
        ("400161", ErrorCode.COMPRESSION_ERROR),  # no value
        ("40016105", ErrorCode.COMPRESSION_ERROR),
        ("3fe21f", ErrorCode.COMPRESSION_ERROR),  # a table of 4097 bytes
        ("8220", ErrorCode.COMPRESSION_ERROR),  # a size update after a field
        ("40016184ffffffff", ErrorCode.COMPRESSION_ERROR),  # Huffman's end of string
        ("4001410161", ErrorCode.PROTOCOL_ERROR),  # an upper-case name
        ("40000161", ErrorCode.PROTOCOL_ERROR),  # no name
        ("4001610100", ErrorCode.PROTOCOL_ERROR),  # NUL
        ("400161010a", ErrorCode.PROTOCOL_ERROR),  # a line's end
        ("4003613a620161", ErrorCode.PROTOCOL_ERROR),  # a colon inside a name
    ],
)
def test_nonsense_is_refused(block: str, code: ErrorCode) -> None:
    with pytest.raises(Fault) as caught:
        Decoder(4096, 4096).decode(bytes.fromhex(block))

    assert caught.value.code == code


@given(st.binary(max_size=200), st.binary(max_size=200))
def test_any_bytes_are_fields_or_refused(one: bytes, two: bytes) -> None:
    decoder = Decoder(4096, 1000)
    try:
        for block in (one, two):
            decoder.decode(block)
    except Fault as fault:
        assert fault.code in (ErrorCode.COMPRESSION_ERROR, ErrorCode.PROTOCOL_ERROR)
    assert decoder._size <= 4096


NAMES = st.from_regex(rb"[a-z0-9_.-]{1,20}", fullmatch=True)
VALUES = st.from_regex(rb"[\x20-\x7e]{0,300}", fullmatch=True)


@given(st.lists(st.one_of(st.tuples(NAMES, VALUES), st.sampled_from(STATIC))))
def test_what_is_encoded_is_decoded_and_leaves_no_trace(fields: list[Field]) -> None:
    decoder = Decoder(4096, 2**20)

    assert decoder.decode(encode(fields)) == fields
    assert table(decoder) == []
    assert decoder.changes == 0


@given(NAMES, VALUES)
def test_strings_may_be_huffman_encoded(name: bytes, value: bytes) -> None:
    code_name, code_value = huffman.encode(name), huffman.encode(value)
    block = b"\x00" + encode_integer(len(code_name), 0x7F, 0x80) + code_name
    block += encode_integer(len(code_value), 0x7F, 0x80) + code_value

    assert Decoder(4096, 4096).decode(block) == [(name, value)]


def test_the_static_table_is_the_one_of_the_rfc() -> None:
    assert len(STATIC) == 61
    assert STATIC[0] == (b":authority", b"")
    assert STATIC[7] == (b":status", b"200")
    assert STATIC[15] == (b"accept-encoding", b"gzip, deflate")
    assert STATIC[30] == (b"content-type", b"")
    assert STATIC[57] == (b"user-agent", b"")
    assert STATIC[60] == (b"www-authenticate", b"")
