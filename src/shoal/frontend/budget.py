"""Budget: how much memory request bodies may take that found no room in the shared one, over all connections."""

from typing import Final

UNLIMITED: Final = 2**62


class Budget:
    """Bytes that may be taken together. Asked only for bodies that are large and found shared memory full."""

    __slots__ = ("limit", "refused", "used")

    def __init__(self, limit: int = UNLIMITED) -> None:
        self.limit = limit
        self.used = 0
        self.refused = 0  # bodies

    def take(self, size: int) -> bool:
        """Take so many bytes, or say that they are not there and take none."""
        if self.used + size > self.limit:
            self.refused += 1
            return False
        self.used += size
        return True

    def give_back(self, size: int) -> None:
        """They are free again."""
        self.used -= size
        assert self.used >= 0, "more was given back than was taken"
