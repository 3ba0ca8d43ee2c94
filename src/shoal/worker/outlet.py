"""Where the parts of an answer come together: in memory shared with the front process, or in one string of bytes."""

from collections.abc import Sequence

from shoal.payload import Buffer, total
from shoal.wire.tray import LARGE, Laid, TrayWriter


class Outlet:
    """The worker's one way of making large answers."""

    def __init__(self) -> None:
        self.tray: TrayWriter | None = None

    def join(self, buffers: Sequence[Buffer]) -> Buffer | Laid:
        """Put buffers one after the other; they may change afterwards."""
        if self.tray is not None:
            size = total(buffers)
            if size >= LARGE and (laid := self.tray.lay(buffers, size)) is not None:
                return laid
        return b"".join(buffers)

    def put(self, bodies: Sequence[Buffer | Laid]) -> tuple[list[int], list[Buffer]]:
        """Hand over what the front process finds in shared memory; says where each lies, and gives those to be sent.

        -1 stands for these, and no places at all where all are.
        """
        offsets: list[int] = []
        rest: list[Buffer] = []
        for body in bodies:
            laid = body if isinstance(body, Laid) else self._lay(body)
            offsets.append(laid.hand_over() if laid is not None else -1)
            if laid is None and not isinstance(body, Laid):
                rest.append(body)
        return offsets if len(rest) < len(bodies) else [], rest

    def _lay(self, body: Buffer) -> Laid | None:
        return self.tray.lay([body], len(body)) if self.tray is not None and len(body) >= LARGE else None


outlet = Outlet()
