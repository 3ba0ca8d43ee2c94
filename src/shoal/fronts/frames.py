"""Frames between the core and a front process: a key, a length and a kind, then that many bytes.

The key is the number of a connection (HTTP) or of a call (gRPC), unique in its front process. Frames are small and
many, so they are cut out of the stream without an object for each.
"""

from collections.abc import Callable
from struct import Struct
from typing import Final

from shoal.errors import ProtocolError

# From a front process to the core.
(
    READY,  # it accepts connections
    HEAD,  # the head of this connection's requests, from now on
    BODY,  # a request with that head, whole, and its body
    LAST,  # the same, and the connection will not stay open after its answer
    LENT,  # the same as BODY; the body lies in shared memory
    LAST_LENT,
    LEFT,  # the connection is gone
    TAKEN,  # its client took that many bytes of a streamed answer
    CALL,  # a call begins
    MESSAGE,  # of the client
    MESSAGE_END,  # its last one
    END,  # the client will send no more
    CALL_GONE,  # nobody waits for the call any more
    CALL_TAKEN,
    DRAINED,  # the listener of this number has no connection left
    STATS,
) = range(16)

# From the core to a front process.
(
    SETUP,  # what to listen at
    MEMORY,  # bodies may be received into the shared memory from now on
    DATA,  # bytes of an answer
    WHOLE,  # its last bytes; the connection stays open
    WHOLE_LAST,  # its last bytes; the connection is closed after them
    ABORT,  # cut the connection
    RELEASE,  # the block at the offset that is the key is free again
    SEND,  # a message of a call's answer
    SEND_OK,  # its last one: the call ends well
    FINISH,  # the call ends with this status
    DRAIN,  # the listener of this number takes nothing new and finishes what it took
) = range(64, 75)

_head: Final = Struct("<QIB")
HEAD_SIZE: Final = _head.size
WINDOW: Final = 256 * 1024  # bytes of one streamed answer that may be under way before its client takes them
STEP: Final = WINDOW // 4  # that are told of together
LARGEST: Final = 2**32 - 1  # bytes of a frame's payload
pack_head = _head.pack
_count: Final = Struct("<Q")
pack_count = _count.pack
_head_at: Final = _head.unpack_from


def count_of(payload: bytes) -> int:
    """Read a number of bytes."""
    if len(payload) != _count.size:
        raise ProtocolError(f"a count of {len(payload)} bytes; {_count.size} are right")
    count: int = _count.unpack(payload)[0]
    return count


class Frames:
    """Cuts frames out of bytes as they come; `take` hears kind, key and payload of each."""

    def __init__(self, take: Callable[[int, int, bytes], None], largest: int = LARGEST) -> None:
        self._take = take
        self._largest = largest
        self._rest = b""  # a head that is not whole
        self._parts: list[bytes] = []  # of a payload that is not whole,
        self._missing = 0  # how much of it is to come,
        self._kind = self._key = 0  # and whose it is

    @property
    def is_inside(self) -> bool:
        """Whether the stream may not end here."""
        return bool(self._rest or self._missing)

    def feed(self, data: bytes) -> None:
        """Take more of the stream. Raises `ProtocolError` where no frame can be."""
        at = 0
        if self._missing:
            at = self._fill(data)
        elif self._rest:
            data, self._rest = self._rest + data, b""
        size = len(data)
        take = self._take
        while size - at >= HEAD_SIZE:
            key, length, kind = _head_at(data, at)
            begin = at + HEAD_SIZE
            at = begin + length
            if at > size:
                self._open(kind, key, length, data[begin:])
                return
            take(kind, key, data[begin:at])
        if at < size:
            self._rest = data[at:]

    def _open(self, kind: int, key: int, length: int, begun: bytes) -> None:
        """Begin to collect a payload."""
        if length > self._largest:
            raise ProtocolError(f"a frame of {length} bytes is over the limit; the peer speaks something else")
        self._kind, self._key = kind, key
        self._parts = [begun]
        self._missing = length - len(begun)

    def _fill(self, data: bytes) -> int:
        """Go on with a payload; says where what follows it begins."""
        size = len(data)
        if size < self._missing:
            self._parts.append(data)
            self._missing -= size
            return size
        at, self._missing = self._missing, 0
        self._parts.append(data if at == size else data[:at])
        payload, self._parts = b"".join(self._parts), []
        self._take(self._kind, self._key, payload)
        return at
