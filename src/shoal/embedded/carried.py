"""Python objects on their way through the core: the item in a payload, the value in a result."""

from shoal.payload import Payload, Result


class Carried(Payload):
    """The item of one call. It is let go as soon as nobody can read it any more."""

    __slots__ = ("item",)

    def __init__(self, item: object) -> None:
        super().__init__(())
        self.item = item

    def release(self) -> None:
        """Forget the item."""
        self.item = None


class Value(Result):
    """What the function gave for one item."""

    __slots__ = ("value",)

    def __init__(self, value: object) -> None:
        super().__init__(b"")
        self.value = value
