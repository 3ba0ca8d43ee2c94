"""Inside: inference that the server's own parts ask for, not a client: the steps of an ensemble, models of models.

`Inside.ask` is the way in. Such a request gets what a client's gets: its tensors are checked, it waits in the
model's queue, shares batches with everybody, and counts in the model's statistics.
"""

import math
from collections.abc import Hashable, Sequence

import msgspec

from shoal.core.request import OnAnswer, Request
from shoal.frontend.kserve.asked import Asked, Tensor, Wish
from shoal.frontend.kserve.controls import NO_CONTROLS, Controls, Told
from shoal.frontend.kserve.desk import Desk
from shoal.frontend.kserve.plan import Plan
from shoal.payload import Block, Payload

_read_told = msgspec.msgpack.Decoder(Told).decode


class Inside:
    """Asks the models of a server by name and version."""

    def __init__(self, desk: Desk) -> None:
        self._desk = desk

    def find(self, model: str, version: str = "") -> Plan:
        """Give the version named, or the newest that is ready; UnknownModel where there is none."""
        return self._desk.find(model, version)

    def ask(
        self,
        plan: Plan,
        tensors: Sequence[Tensor],
        on_answer: OnAnswer,
        *,
        outputs: Sequence[str] = (),
        id: str = "",
        controls: Controls = NO_CONTROLS,
        client: Hashable = None,
        deadline: float = math.inf,
    ) -> Request:
        """Ask a model for these outputs, or all; gives the request, which its model can withdraw.

        Where the request is not taken, the reason is raised and what was lent to its tensors is given back. The answer
        may come before this returns.
        """
        wishes = {name: Wish(name, is_binary=True) for name in outputs} if outputs else None
        asked = Asked(id, tensors, wishes, controls)
        try:
            plan.check_wishes(wishes, binary=True)
        except BaseException:
            asked.release()
            raise
        return self._desk.submit(plan, asked, on_answer, client=client, deadline=deadline)


class Lent:
    """A lent block as one of several readers has it, as `payload.Block` says."""

    __slots__ = ("_shared", "offset", "size")

    def __init__(self, shared: "Shared") -> None:
        self._shared: Shared | None = shared
        self.offset = shared.block.offset
        self.size = shared.block.size

    @property
    def view(self) -> memoryview:
        """The bytes themselves; not to be used after release."""
        assert self._shared is not None, "a block is not read after it was given back"
        return self._shared.block.view

    def release(self) -> None:
        """Give it back; again does nothing."""
        shared, self._shared = self._shared, None
        if shared is not None:
            shared.let_go()


class Shared:
    """A lent block that several requests read: it goes back once the last of them has ended."""

    __slots__ = ("_readers", "block")

    def __init__(self, block: Block) -> None:
        self.block = block
        self._readers = 0

    def lend(self) -> Lent:
        """Give it to one more reader."""
        self._readers += 1
        return Lent(self)

    def let_go(self) -> None:
        """Hear that a reader has ended."""
        self._readers -= 1
        if not self._readers:
            self.block.release()


def told_of(payload: Payload) -> Told:
    """Read what a request says beside its tensors."""
    return _read_told(dict(payload.headers)[b"v2"])
