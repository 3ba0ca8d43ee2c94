"""The head of a call, judged: what it asks for, or why it is refused."""

import base64
import binascii
import math
import re
from collections.abc import Sequence
from typing import Final

from shoal.frontend.http2 import answers
from shoal.frontend.http2.hpack import Field
from shoal.frontend.rpc import Code

UNITS: Final = {b"H": 3600.0, b"M": 60.0, b"S": 1.0, b"m": 1e-3, b"u": 1e-6, b"n": 1e-9}
ENCODINGS: Final = (b"identity", b"gzip", b"deflate")

_PSEUDO: Final = frozenset({b":method", b":scheme", b":path", b":authority"})
_FORBIDDEN: Final = frozenset({b"connection", b"proxy-connection", b"keep-alive", b"transfer-encoding", b"upgrade"})
_OWN: Final = frozenset(
    {b"te", b"content-type", b"content-length", b"host", b"grpc-timeout", b"grpc-encoding", b"grpc-accept-encoding"}
)
_timeout = re.compile(rb"(\d{1,8})([HMSmun])").fullmatch
_is_grpc = re.compile(rb"application/grpc(?:[+;].*)?").fullmatch
_TOO_LARGE: Final = "the call's head is larger than the server allows"


class Head:
    """What a call asks for. Blocks that repeat themselves share one; nobody changes it."""

    __slots__ = ("answer", "encoding", "is_malformed", "metadata", "method", "timeout")

    def __init__(self, method: str = "", metadata: Sequence[Field] = ()) -> None:
        self.method = method
        self.metadata = metadata
        self.timeout = math.inf
        self.encoding = b"identity"
        self.is_malformed = False
        self.answer: bytes | None = None  # the block that refuses it


def judge(fields: Sequence[Field] | None) -> Head:
    """Read a head; None stands for one that was too large."""
    if fields is None:
        return _refused(answers.not_grpc(431, Code.RESOURCE_EXHAUSTED, _TOO_LARGE))
    own: dict[bytes, bytes] = {}
    metadata: list[Field] = []
    for field in fields:
        name, value = field
        if name in _OWN:
            own[name] = value
        elif name[0] == 0x3A:
            if metadata or name not in _PSEUDO or name in own or not own.keys() <= _PSEUDO:
                return _malformed()
            own[name] = value
        elif name in _FORBIDDEN:
            return _malformed()
        else:
            metadata.append(field)
    path = own.get(b":path", b"")
    if not path or b":method" not in own or b":scheme" not in own or own.get(b"te", b"trailers") != b"trailers":
        return _malformed()
    head = Head(path.decode("latin-1"), tuple(metadata))
    if own[b":method"] != b"POST":
        return _refused(answers.not_grpc(405, Code.UNIMPLEMENTED, "calls are made with POST"))
    if not _is_grpc(own.get(b"content-type", b"")):
        return _refused(answers.not_grpc(415, Code.UNKNOWN, "the content-type of a call is application/grpc"))
    if b"grpc-timeout" in own:
        found = _timeout(own[b"grpc-timeout"])
        if found is None:
            text = "grpc-timeout is one to eight digits and one of H, M, S, m, u, n"
            return _refused(answers.lone(Code.INVALID_ARGUMENT, text))
        head.timeout = int(found[1]) * UNITS[found[2]]
    head.encoding = own.get(b"grpc-encoding", b"identity")
    if head.encoding not in ENCODINGS:
        text = f"messages compressed with {head.encoding.decode('latin-1')} are not understood"
        return _refused(answers.lone(Code.UNIMPLEMENTED, text, [answers.ACCEPTED]))
    if any(name.endswith(b"-bin") for name, _ in metadata):
        return _with_binary(head)
    return head


def _with_binary(head: Head) -> Head:
    metadata: list[Field] = []
    for name, value in head.metadata:
        if not name.endswith(b"-bin"):
            metadata.append((name, value))
            continue
        for piece in value.split(b","):
            text = piece.strip().rstrip(b"=")
            try:
                metadata.append((name, base64.b64decode(text + b"=" * (-len(text) % 4), validate=True)))
            except binascii.Error:
                reason = f"the metadata {name.decode()} is not base64"
                return _refused(answers.lone(Code.INVALID_ARGUMENT, reason))
    head.metadata = tuple(metadata)
    return head


def _malformed() -> Head:
    head = Head()
    head.is_malformed = True
    return head


def _refused(answer: bytes) -> Head:
    head = Head()
    head.answer = answer
    return head
