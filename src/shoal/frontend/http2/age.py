"""Age: the time after which a connection is asked to leave, so that its client comes back to a server of today."""

from typing import Protocol

from shoal.frontend.http2.deadlines import Deadlines


class Ageing(Protocol):
    """What grows old."""

    def finish(self) -> None:
        """Leave with the last call."""
        ...

    def abort(self) -> None:
        """Leave now."""
        ...


class Age:
    """The deadline of one connection, and after it that of its grace; 0 is no grace's end."""

    def __init__(self, connection: Ageing, deadlines: Deadlines, most: float, grace: float) -> None:
        self.is_over = False
        self._connection = connection
        self._deadlines = deadlines
        self._grace = grace
        self._is_old = False
        deadlines.add(most, self)

    def expire(self) -> None:
        """Ask it to leave; the second time, see to it."""
        is_old, self._is_old = self._is_old, True
        self._end()
        if is_old:
            self._connection.abort()
            return
        if self._grace:
            self.is_over = False
            self._deadlines.add(self._grace, self)
        self._connection.finish()

    def gone(self) -> None:
        """The connection is lost."""
        if not self.is_over:
            self._end()

    def _end(self) -> None:
        self.is_over = True
        self._deadlines.drop()
