"""Channel: one end of the socket between the core and a front process. All frames of a loop turn leave in one write."""

import asyncio
import logging
from collections.abc import Callable, Sequence
from typing import Final, cast

import msgspec

from shoal.errors import ProtocolError
from shoal.fronts.frames import LARGEST, Frames, pack_head
from shoal.payload import Buffer

JOINED: Final = 64 * 1024  # up to this size one copy is cheaper than a vector
HIGH_WATER: Final = 4 * 2**20  # unread bytes above which the other side is behind

log = logging.getLogger("shoal.fronts")


class Channel(asyncio.Protocol):
    """Sends frames, and hands those that come in to `take`; `on_lost` hears the end once, with its reason.

    `on_pace` hears when the other side falls behind and when it caught up. A frame larger than `largest` is none.
    """

    def __init__(
        self,
        take: Callable[[int, int, bytes], None],
        on_lost: Callable[[str], None],
        on_pace: Callable[[bool], None] = lambda is_blocked: None,
        *,
        largest: int = LARGEST,
    ) -> None:
        self._frames = Frames(take, largest)
        self._on_lost = on_lost
        self._on_pace = on_pace
        self._soon = asyncio.get_running_loop().call_soon
        self._transport: asyncio.Transport | None = None
        self._out: list[Buffer] = []
        self._size = 0
        self._last_key = self._last_kind = self._last_at = self._last_size = -1
        self._problem = ""
        self.blocked = False  # the other side is behind

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Note where frames go."""
        self._transport = cast(asyncio.Transport, transport)
        self._transport.set_write_buffer_limits(high=HIGH_WATER)

    def connection_lost(self, exc: Exception | None) -> None:
        """Tell of the end."""
        self._transport = None
        self._out.clear()
        self.blocked = True
        end = "it ended in the middle of a frame" if self._frames.is_inside else "it closed its end"
        self._on_lost(self._problem or (str(exc) if exc else end))

    def data_received(self, data: bytes) -> None:
        """Take what came in; what cannot be understood ends the channel."""
        if self._problem:
            return
        try:
            self._frames.feed(data)
        except (ProtocolError, msgspec.DecodeError, LookupError, ValueError) as error:
            self.fail(f"it said something that cannot be: {error!r}")
        except Exception:
            log.exception("a frame was not dealt with")
            self.fail("a frame of it was not dealt with")

    def pause_writing(self) -> None:
        """The other side does not read as fast as we write."""
        self.blocked = True
        self._on_pace(True)

    def resume_writing(self) -> None:
        """It caught up."""
        self.blocked = False
        self._on_pace(False)

    def put(self, kind: int, key: int, *parts: Buffer) -> None:
        """Send a frame, with all others of this turn."""
        out = self._out
        if not out:
            self._soon(self._flush)
        size = len(parts[0]) if len(parts) == 1 else sum(map(len, parts))
        self._last_key, self._last_kind, self._last_at, self._last_size = key, kind, len(out), size
        out.append(pack_head(key, size, kind))
        out += parts
        self._size += size

    def is_last(self, key: int, kind: int) -> bool:
        """Whether the frame put last has this key and kind and has not left yet."""
        return self._last_key == key and self._last_kind == kind

    def end(self, key: int, kind: int, ended: int) -> None:
        """Make the last frame of a kind one that ends it; where others came in between, an empty one does."""
        if self._last_key == key and self._last_kind == kind:
            self._out[self._last_at] = pack_head(key, self._last_size, ended)
            self._last_key = -1
        else:
            self.put(ended, key)

    def fail(self, problem: str) -> None:
        """End the channel: the other side is not what it should be."""
        self._problem = self._problem or problem
        if self._transport is not None:
            self._transport.abort()

    def close(self) -> None:
        """Send what is due and end."""
        self._flush()
        if self._transport is not None:
            self._transport.close()

    def _flush(self) -> None:
        out, size = self._out, self._size
        self._out, self._size = [], 0
        self._last_key = -1
        if self._transport is None or not out:
            return
        if size <= JOINED:
            self._transport.write(b"".join(out))
        else:
            _write_large(self._transport, out)


def _write_large(transport: asyncio.Transport, out: Sequence[Buffer]) -> None:
    """Join what is small and send what is large as it is."""
    small: list[Buffer] = []
    for piece in out:
        if len(piece) > JOINED:
            transport.write(b"".join(small))
            small = []
            transport.write(piece)
        else:
            small.append(piece)
    transport.write(b"".join(small))
