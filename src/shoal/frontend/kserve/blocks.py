"""A body whose pieces travel as parts: where it lies in lent memory it is given back once the last piece was."""

from shoal.payload import Block, Buffer


class Piece:
    """A piece of a lent block, as `payload.Block` says."""

    __slots__ = ("_body", "offset", "size")

    def __init__(self, body: "Body", offset: int, size: int) -> None:
        self._body: Body | None = body
        self.offset = offset
        self.size = size

    @property
    def view(self) -> memoryview:
        """The bytes themselves; not to be used after release."""
        assert self._body is not None and self._body.block is not None, "a piece is not read after it was given back"
        start = self.offset - self._body.block.offset
        return self._body.block.view[start : start + self.size]

    def release(self) -> None:
        """Give it back; again does nothing."""
        body, self._body = self._body, None
        if body is not None:
            body.let_go()


class Body:
    """The bytes of one request. Pieces of lent memory are pieces of the same memory: nothing is copied."""

    __slots__ = ("_pieces", "block", "view")

    def __init__(self, data: Buffer | Block) -> None:
        if isinstance(data, (bytes, bytearray, memoryview)):
            self.block: Block | None = None
            self.view = memoryview(data)
        else:
            self.block = data
            self.view = data.view
        self._pieces = 0

    def __len__(self) -> int:
        return len(self.view)

    def piece(self, start: int, size: int) -> Buffer | Block:
        """Give a part of it, to be released by whoever has it."""
        if self.block is None or not size:
            return self.view[start : start + size]
        self._pieces += 1
        return Piece(self, self.block.offset + start, size)

    def let_go(self) -> None:
        """Hear that a piece was given back."""
        self._pieces -= 1
        if not self._pieces:
            self.drop()

    def close(self) -> None:
        """No more pieces will be taken: where none was, nobody else gives it back."""
        if not self._pieces:
            self.drop()

    def drop(self) -> None:
        """Give it back whatever pieces there are."""
        self.view = memoryview(b"")
        if self.block is not None:
            self.block.release()
