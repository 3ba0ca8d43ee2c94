"""Requests of sequences for programs that are run on the spot."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any, NamedTuple

import msgspec
import numpy as np

from shoal.wire.messages import Failure, Item, Run
from shoal.worker.backends.merging import Layout, Merged, make_program
from shoal.worker.batch import Batch
from shoal.worker.pipeline import run_stages
from shoal.worker.program import Program
from tests.process.tensor_front import Told, Values, interface, items, spec, values
from tests.unit.worker.backends.making import config
from tests.unit.worker.making import Listener

KINDS = ("START", "END", "READY", "CORRID")


def control(kind: str, name: str = "", **values: Any) -> dict[str, Any]:
    """A control input as a configuration lists it."""
    return {"name": name or kind, "control": [{"kind": f"CONTROL_SEQUENCE_{kind}", **values}]}


CONTROLS = [
    control("START", int32_false_true=[0, 1]),
    control("END", int32_false_true=[0, 1]),
    control("READY", int32_false_true=[0, 1]),
    control("CORRID", data_type="TYPE_INT64"),
]


def state(name: str = "kept", datatype: str = "FP32", *dims: int, **more: Any) -> dict[str, Any]:
    """A state as a configuration lists it; its output is the name with `_next` behind it."""
    names = {"input_name": name, "output_name": f"{name}_next"}
    return {**names, "data_type": f"TYPE_{datatype}", "dims": list(dims or (1,)), **more}


def batching(*states: dict[str, Any], oldest: bool = False, controls: Any = (), rows: int = 4) -> dict[str, Any]:
    """The settings of a model whose requests come in sequences."""
    strategy: dict[str, Any] = {"oldest": {}} if oldest else {"direct": {}}
    sequences = {"control_input": list(controls), "state": list(states), **strategy}
    return {"max_batch_size": rows, "sequence_batching": sequences}


class Sent(NamedTuple):
    """A request: which slot its sequence has, the sequence's id, its flags, and what it brings."""

    slot: int
    id: int | str
    flags: str  # s: it begins the sequence, e: it ends it
    inputs: Values


def sent(slot: int, id: int | str, flags: str = "", x: Any = 1.0) -> Sent:
    """A request that brings one number."""
    return Sent(slot, id, flags, {"x": np.full((1, 1), x, np.float32)})


def run(made: Program, *requests: Sent, instance: int = 0, outputs: Sequence[str] = ()) -> list[Told]:
    """What each request of one batch is told."""
    heads: list[Item] = []
    bodies: list[bytes] = []
    for request in requests:
        told = {"id": request.id, "start": "s" in request.flags, "end": "e" in request.flags}
        (head,), data = items([request.inputs], sequence=told, outputs=list(outputs))
        heads.append(head)
        bodies += data
    listener = Listener()
    batch = Batch(
        Run(1, instance, heads, [request.slot for request in requests]), memoryview(b"".join(bodies)), listener
    )
    (cut,) = batch.slices(0)
    run_stages(cut, made.stages, made, None)
    batch.close(cut)
    batch.finish()
    return [told if isinstance(told, Failure) else values(told) for told in listener.results(1, len(requests))]


def numbers(told: list[Told], name: str = "y") -> list[float]:
    """The number in each answer."""
    return [float(answer[name].ravel()[0]) for answer in told if isinstance(answer, dict)]


class Fed:
    """A model of nothing but Python: it adds its input to its state, and remembers what it was fed."""

    def __init__(self, settings: dict[str, Any], rows: int = 4) -> None:
        io = interface([spec("x", "FP32", 1)], [spec("y", "FP32", 1)], rows)
        made = config(Path("/m/1"), "identity", io, settings=settings)
        self.layout = Layout(made)
        self.program = make_program("adding", self.layout, self._add)
        self.seen: list[dict[str, Any]] = []
        self.breaks = False  # the execution fails
        self.spoils = False  # its output is of a kind that cannot be answered
        self.grows = False  # its state is all inputs so far

    def _add(self, merged: Merged) -> dict[str, Any]:
        self.seen.append({name: array.copy() for name, array in merged.arrays.items()})
        if self.breaks:
            raise RuntimeError("not now")
        x, kept = merged.arrays["x"], merged.arrays.get("kept", np.float32(0))
        if self.grows:
            kept = np.concatenate([kept, x], 1)
            return {"y": kept.sum(1, keepdims=True), "kept_next": kept}
        total = x + kept
        return {"y": total.astype(np.float64) if self.spoils else total, **dict.fromkeys(self.layout.states, total)}

    def rows(self, name: str) -> list[Any]:
        """What the last execution was fed under a name, row by row."""
        fed: list[Any] = self.seen[-1][name].ravel().tolist()
        return fed


def encoded(**asked: Any) -> bytes:
    """What a request says besides its tensors."""
    return msgspec.msgpack.encode(asked)
