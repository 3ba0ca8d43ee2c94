import contextlib
import gzip
import zlib

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import InvalidInput, TooLarge
from shoal.frontend.kserve.encodings import Encoding, UnknownEncoding, choose, pack, read_encoding, unpack


@given(st.binary(), st.sampled_from(["gzip", "deflate"]))
def test_what_is_packed_is_unpacked(data: bytes, encoding: Encoding) -> None:
    assert unpack(pack(data, encoding), encoding, len(data)) == data


def test_each_name_has_its_own_wrapper() -> None:
    assert unpack(gzip.compress(b"x"), "gzip", 10) == unpack(zlib.compress(b"x"), "deflate", 10) == b"x"
    for data, encoding in ((zlib.compress(b"x"), "gzip"), (gzip.compress(b"x"), "deflate")):
        with pytest.raises(InvalidInput, match=f"no {encoding} data"):
            unpack(data, encoding, 10)  # type: ignore[arg-type]  # one of the two


def test_a_bomb_is_stopped_at_the_limit() -> None:
    with pytest.raises(TooLarge, match="larger than the 1000 bytes"):
        unpack(zlib.compress(bytes(10**6)), "deflate", 1000)


@given(st.binary(max_size=50))
def test_any_bytes_are_unpacked_or_refused(data: bytes) -> None:
    with contextlib.suppress(InvalidInput):
        unpack(data, "gzip", 100)


def test_what_is_cut_off_or_goes_on_is_refused() -> None:
    with pytest.raises(InvalidInput, match="lacks its end"):
        unpack(zlib.compress(b"x" * 100)[:-2], "deflate", 1000)
    with pytest.raises(InvalidInput, match="goes on after its end"):
        unpack(zlib.compress(b"x") + b"y", "deflate", 1000)


@pytest.mark.parametrize(
    ("word", "found"), [(b"", None), (b"identity", None), (b" GZIP ", "gzip"), (b"deflate", "deflate")]
)
def test_known_encodings_are_read(word: bytes, found: str | None) -> None:
    assert read_encoding(word) == found


@pytest.mark.parametrize("word", [b"br", b"gzip, deflate", b"x-gzip"])
def test_unknown_encodings_are_not(word: bytes) -> None:
    with pytest.raises(UnknownEncoding, match="Unsupported compression type"):
        read_encoding(word)


@pytest.mark.parametrize(
    ("accepted", "chosen"),
    [
        (b"", None),
        (b"gzip", "gzip"),
        (b"gzip, deflate", "gzip"),
        (b"deflate, gzip", "deflate"),
        (b"gzip;q=0.5, deflate;q=0.8", "deflate"),
        (b"gzip;q=0.5, identity", None),
        (b"identity;q=0.5, GZIP", "gzip"),
        (b"*, br", None),
        (b"gzip;q=0", None),
        (b"gzip;q=nonsense", "gzip"),
        (b"gzip;level=1", "gzip"),
        (b",;,=", None),
    ],
)
def test_the_highest_weight_wins_and_the_first_of_equals(accepted: bytes, chosen: str | None) -> None:
    assert choose(accepted) == chosen
