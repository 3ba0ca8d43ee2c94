"""Compressed bodies: what a request may be packed in, and what its answer is packed in."""

import zlib
from typing import Literal

from shoal.errors import InvalidInput, TooLarge
from shoal.frontend.kserve.status import Unsupported
from shoal.payload import Buffer

Encoding = Literal["gzip", "deflate"]
BITS: dict[Encoding, int] = {"gzip": 31, "deflate": 15}  # zlib's word for the wrapper
FAST = 1


class UnknownEncoding(Unsupported):
    """The body is packed in a way that is not understood."""

    def __init__(self) -> None:
        super().__init__("Unsupported compression type")


def read_encoding(value: bytes) -> Encoding | None:
    """Say how a body is packed; None where it is not."""
    word = value.strip().lower()
    if word in (b"", b"identity"):
        return None
    if word == b"gzip":
        return "gzip"
    if word == b"deflate":
        return "deflate"
    raise UnknownEncoding


def unpack(data: Buffer, encoding: Encoding, limit: int) -> bytes:
    """Unpack a body; one that is broken, cut off or larger than `limit` is refused."""
    unpacker = zlib.decompressobj(BITS[encoding])
    try:
        body = unpacker.decompress(data, limit + 1)
    except zlib.error as error:
        raise InvalidInput(f"the body is no {encoding} data: {error}") from None
    if len(body) > limit:
        raise TooLarge(f"the body is larger than the {limit} bytes allowed once it is unpacked")
    if not unpacker.eof or unpacker.unused_data:
        raise InvalidInput(f"the body is no {encoding} data: it {'goes on after' if unpacker.eof else 'lacks'} its end")
    return body


def pack(body: bytes, encoding: Encoding) -> bytes:
    """Pack an answer."""
    packer = zlib.compressobj(FAST, wbits=BITS[encoding])
    return packer.compress(body) + packer.flush()


def choose(accepted: bytes) -> Encoding | None:
    """Choose how an answer is packed from Accept-Encoding: the highest weight, the first of equal ones."""
    best, weight = b"identity", 0.0
    for item in accepted.lower().split(b","):
        word, _, rest = item.partition(b";")
        word = word.strip()
        if word not in (b"identity", b"gzip", b"deflate"):
            continue
        own = _weight(rest)
        if own > weight:
            best, weight = word, own
    return None if best == b"identity" else "gzip" if best == b"gzip" else "deflate"


def _weight(text: bytes) -> float:
    name, _, value = text.strip().partition(b"=")
    if name.strip() != b"q":
        return 1.0
    try:
        weight = float(value)
    except ValueError:
        return 1.0
    return weight if 0.0 <= weight <= 1.0 else 1.0
