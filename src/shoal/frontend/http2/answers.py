"""The header blocks of answers: the head, the trailers, and answers that are nothing but trailers."""

import base64
import re
from collections.abc import Sequence
from typing import Final

from shoal.frontend.http2.hpack import Field, encode
from shoal.frontend.rpc import Code

MAX_TEXT: Final = 4096  # of a status message on the wire: clients refuse trailers of 8 KiB

_TYPE: Final = (b"content-type", b"application/grpc")
HEAD: Final = encode([(b":status", b"200"), _TYPE])
OK: Final = encode([(b"grpc-status", b"0")])
ACCEPTED: Final = (b"grpc-accept-encoding", b"identity,deflate,gzip")

_OWN: Final = frozenset({b"grpc-status", b"grpc-message", b"content-type", b"te"})
_sane_name = re.compile(rb"[0-9a-z_.-]+").fullmatch
_PLAIN: Final = bytes(c if 0x20 <= c < 0x7F else 0x3F for c in range(256))  # a translation: the rest to question marks
_ESCAPES: Final = tuple(bytes((c,)) if 0x20 <= c < 0x7F and c != 0x25 else b"%%%02X" % c for c in range(256))


def trailers(code: int, message: str = "", metadata: Sequence[Field] = ()) -> bytes:
    """The block that ends an answer; `ValueError` for metadata whose name cannot travel."""
    return encode(_status(code, message, metadata))


def lone(code: int, message: str = "", metadata: Sequence[Field] = ()) -> bytes:
    """The block of an answer without any message."""
    return encode([(b":status", b"200"), _TYPE, *_status(code, message, metadata)])


def not_grpc(status: int, code: Code, message: str) -> bytes:
    """The block of an answer to what is no gRPC at all: an HTTP status, and words for those who can read them."""
    return encode([(b":status", str(status).encode()), _TYPE, *_status(code, message, ())])


def _status(code: int, message: str, metadata: Sequence[Field]) -> list[Field]:
    fields = [(b"grpc-status", b"%d" % code)]
    if message:
        fields.append((b"grpc-message", _escape(message)))
    for name, value in metadata:
        if not _sane_name(name) or name in _OWN:
            raise ValueError(f"{name!r} cannot name metadata: lower-case letters, digits, _ - . and no protocol's own")
        if name.endswith(b"-bin"):
            fields.append((name, base64.b64encode(value).rstrip(b"=")))
        else:
            fields.append((name, value.translate(_PLAIN)))
    return fields


def _escape(message: str) -> bytes:
    out, size = [], 0
    for byte in message.encode(errors="replace"):
        piece = _ESCAPES[byte]
        size += len(piece)
        if size > MAX_TEXT:
            break
        out.append(piece)
    return b"".join(out)
