"""A channel without a socket: what was put is read back as frames, and the test decides when a turn ends."""

from collections.abc import Callable
from typing import Any

from shoal.fronts.channel import Channel
from shoal.fronts.frames import Frames


class FakeTransport:
    """Keeps what is written."""

    def __init__(self) -> None:
        self.writes: list[bytes] = []
        self.is_aborted = self.is_closed = False

    def set_write_buffer_limits(self, high: int) -> None:
        assert high > 0

    def write(self, data: bytes) -> None:
        if data:
            self.writes.append(bytes(data))

    def abort(self) -> None:
        self.is_aborted = True

    def close(self) -> None:
        self.is_closed = True


class Wire(Channel):
    """A channel whose loop turns when it is told to."""

    def __init__(self, take: Callable[[int, int, bytes], None] = lambda *_: None) -> None:
        self.lost: list[str] = []
        self.paces: list[bool] = []
        super().__init__(take, self.lost.append, self.paces.append)
        self.turns: list[Callable[[], None]] = []
        self._soon: Any = self.turns.append
        self.transport = FakeTransport()
        self.connection_made(self.transport)  # type: ignore[arg-type]  # all of a transport that it uses

    def turn(self) -> list[tuple[int, int, bytes]]:
        """End the turn; what left the channel since the last."""
        for flush in self.turns:
            flush()
        self.turns.clear()
        heard: list[tuple[int, int, bytes]] = []
        Frames(lambda *frame: heard.append(frame)).feed(b"".join(self.transport.writes))
        self.transport.writes.clear()
        return heard
