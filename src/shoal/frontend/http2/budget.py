"""A budget that comes back with time: a client may burst, and may not go on."""


class Budget:
    """`size` units at once, `rate` units a second in the long run."""

    __slots__ = ("_left", "_rate", "_since", "_size")

    def __init__(self, size: int, rate: float, now: float) -> None:
        self._left = float(size)
        self._size = size
        self._rate = rate
        self._since = now

    def spend(self, now: float) -> bool:
        """Take one unit; False when there is none."""
        if now > self._since:
            self._left = min(self._size, self._left + (now - self._since) * self._rate)
            self._since = now
        self._left -= 1
        return self._left >= 0
