"""What a client asks of a model, whichever protocol it speaks: tensors, and wishes for outputs."""

from collections.abc import Mapping, Sequence
from typing import Final, Protocol

from shoal.frontend.kserve.controls import Controls
from shoal.payload import Block, Buffer

NO_CLASSES: Final = 0


class Window(Protocol):
    """A place in shared memory that a client lent for an output."""

    def write(self, name: str, data: memoryview) -> None:
        """Put an output there; raises when it is too small."""
        ...

    def let_go(self) -> None:
        """Nothing will be written any more."""
        ...


class Tensor:
    """One input: what it is called, what it claims to be, and its bytes."""

    __slots__ = ("data", "datatype", "name", "shape")

    def __init__(self, name: str, datatype: str, shape: list[int], data: Buffer | Block) -> None:
        self.name = name
        self.datatype = datatype
        self.shape = shape
        self.data = data

    @property
    def size(self) -> int:
        """How many bytes there are."""
        data = self.data
        return len(data) if isinstance(data, (bytes, bytearray, memoryview)) else data.size

    @property
    def view(self) -> memoryview:
        """The bytes themselves."""
        data = self.data
        return memoryview(data) if isinstance(data, (bytes, bytearray, memoryview)) else data.view

    def release(self) -> None:
        """Give lent memory back."""
        if not isinstance(self.data, (bytes, bytearray, memoryview)):
            self.data.release()


class Wish:
    """One output that is asked for, and in what form."""

    __slots__ = ("classes", "is_binary", "name", "window")

    def __init__(
        self, name: str, *, is_binary: bool = False, classes: int = NO_CLASSES, window: Window | None = None
    ) -> None:
        self.name = name
        self.is_binary = is_binary
        self.classes = classes  # the best so many, as text, instead of the tensor
        self.window = window


class Asked:
    """One request, read and not yet checked against its model."""

    __slots__ = ("controls", "id", "tensors", "wishes")

    def __init__(
        self, id: str, tensors: Sequence[Tensor], wishes: Mapping[str, Wish] | None, controls: Controls
    ) -> None:
        self.id = id
        self.tensors = tensors
        self.wishes = wishes  # by name; None: all outputs
        self.controls = controls

    def release(self) -> None:
        """Give back what was lent, once nobody will run it."""
        for tensor in self.tensors:
            tensor.release()
        self.let_go()

    def let_go(self) -> None:
        """Let go of the places for outputs: they were filled, or never will be."""
        if self.wishes is not None:
            for wish in self.wishes.values():
                if wish.window is not None:
                    wish.window.let_go()
