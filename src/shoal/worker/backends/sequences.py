"""Sequences in a worker: control inputs, rows without a request, and state kept from one request to the next.

The front process sends an instance one batch of sequences at a time and says which slot each request's sequence has.
State is kept by instance and slot. It begins anew at START, so a slot's next sequence never meets what the one before
left behind, and it is dropped at END; the id is looked at as well, should the request with START have been unreadable.
What a request changes is kept only once its batch has been answered, and not once another request has its seat.
"""

import threading
from collections.abc import Mapping, Sequence
from functools import partial
from itertools import count
from typing import Any, NamedTuple

from shoal.config.model import ModelConfig, TensorSpec
from shoal.config.scheduling import scheduling_of
from shoal.errors import ConfigError, HandlerFailed, InvalidInput, LoadFailed
from shoal.payload import Buffer
from shoal.wire.memory import ArenaReader
from shoal.wire.messages import Item
from shoal.worker.backends.controls import ALONE, NOBODY, Mark, controls_of, mark_of
from shoal.worker.backends.received import Asked, Received, Seat, asked_of
from shoal.worker.backends.states import State, blank, fits, zeros
from shoal.worker.backends.tensors import INTERNAL, Call, array_of, bytes_of
from shoal.worker.batch import Slice
from shoal.worker.items import Reader

Place = tuple[int, int]  # an instance, and a slot of it


class Kept(NamedTuple):
    """The state of one sequence, by the names under which it is fed."""

    id: int | str
    values: dict[str, Any]


class Sequences:
    """The worker's side of one model's sequences; `takes_arrays`: its requests are arrays, not bytes."""

    def __init__(self, config: ModelConfig, *, takes_arrays: bool) -> None:
        try:
            settings = scheduling_of(config.settings, config.name).sequence_batching
        except ConfigError as error:
            raise LoadFailed(str(error)) from error
        assert settings is not None
        interface = config.interface
        self._is_batched = is_batched = interface is not None and interface.max_batch_size > 0
        self._outputs = {spec.name for spec in interface.outputs} if interface is not None else set()
        self.is_direct = settings.oldest is None
        self.controls = controls_of(settings, is_batched, config.name)
        self.states = [State(state, config, is_batched) for state in settings.state]
        self._takes_arrays = takes_arrays
        self._begin = {state.fed.name: state.initial for state in self.states}
        self._kept: dict[Place, Kept] = {}
        self._turns: dict[Place, int] = {}  # the last one's
        self._next_turn = count()
        self._lock = threading.Lock()  # a Python model may answer from any thread, and late

    @property
    def fed(self) -> dict[str, TensorSpec]:
        """What the model is fed and no client sends."""
        return {spec.name: spec for spec in [each.spec for each in self.controls] + [each.fed for each in self.states]}

    @property
    def given(self) -> dict[str, TensorSpec]:
        """What the model gives for its next time."""
        return {state.given.name: state.given for state in self.states}

    def reader(self, read: Reader) -> Reader:
        """Read as `read` does, and of what cannot be read keep what it says of its sequence."""

        def careful(items: Sequence[Item], data: memoryview, arena: ArenaReader | None) -> list[Any]:
            calls = read(items, data, arena)
            return [
                Call.unreadable(call, asked_of(item)) if isinstance(call, InvalidInput) else call
                for item, call in zip(items, calls, strict=True)
            ]

        return careful

    def seat(self, calls: Sequence[Call], cut: Slice | None) -> list[Call]:
        """Feed each request its controls and its sequence's state; those that could not be read end here."""
        for index, call in enumerate(calls):
            if cut is not None and cut.batch.slots:
                self._sit(call, (cut.batch.instance, cut.batch.slots[cut.places[index]]))
            else:
                self._feed(call, ALONE, self._begin)
        if cut is None:
            return list(calls)
        alive: list[Call] = cut.drop_failed([call.problem or call for call in calls], "the request")
        return alive

    def rows(self, calls: Sequence[Call]) -> list[Call]:
        """Give the rows of an execution: in the direct strategy each is its slot's, and some may be nobody's."""
        if not self.is_direct or any(call.seat is None for call in calls):
            return list(calls)
        by_row = {call.seat.place[1]: call for call in calls if call.seat is not None}
        return [by_row.get(row) or self._nobody(calls[0]) for row in range(max(by_row, default=-1) + 1)]

    def keep(self, call: Call, outputs: Mapping[str, Any]) -> None:
        """Keep what a request's sequence is fed next, by the names under which the model gave it."""
        mark = mark_of(call.asked)
        if call.seat is None or mark.end or not self.states:
            return
        place = call.seat.place
        with self._lock:
            if self._turns[place] == call.seat.turn:
                before = self._kept[place].values if place in self._kept else self._begin
                given = {state.fed.name: outputs.get(state.given.name, before[state.fed.name]) for state in self.states}
                self._kept[place] = Kept(mark.id, given)

    def _sit(self, call: Call, place: Place) -> None:
        """Feed a request that has a slot."""
        mark = mark_of(call.asked)
        with self._lock:
            kept = self._kept.get(place)
            if mark.start or (kept is not None and kept.id != mark.id):
                kept = None
            if kept is None or mark.end:
                self._kept.pop(place, None)
            turn = self._turns[place] = next(self._next_turn)
        call.seat = Seat(place, turn)
        if self.states and not self._takes_arrays:
            call.keep = partial(self._keep_bytes, call)
        if call.problem is None:
            self._feed(call, mark, self._begin if kept is None else kept.values)

    def _keep_bytes(self, call: Call, name: str, datatype: str, shape: Sequence[int], data: Buffer) -> bool:
        """Keep a tensor that is a state; whether no client should see it."""
        spec = self.given.get(name)
        if spec is None:
            return False
        expected = [1, *spec.dims] if self._is_batched else spec.dims
        if datatype != spec.datatype or not fits(expected, shape):
            got = f"{datatype} {list(shape)}"
            raise HandlerFailed(f"state '{name}' must be {spec.datatype} {expected}, got {got}", status=INTERNAL)
        self.keep(call, {name: array_of(name, Received(datatype, tuple(shape), memoryview(data))).copy()})
        return name not in self._outputs

    def _feed(self, call: Call, mark: Mark, state: Mapping[str, Any]) -> None:
        for control in self.controls:
            self._put(call, control.spec, control.tell(mark))
        for each in self.states:
            self._put(call, each.fed, state[each.fed.name])

    def _put(self, call: Call, spec: TensorSpec, array: Any) -> None:
        if self._takes_arrays:
            call.arrays[spec.name] = array
        else:
            call.inputs[spec.name] = Received(spec.datatype, array.shape, memoryview(bytes_of(array)))

    def _nobody(self, like: Call) -> Call:
        """Make a row that is no request's, of the shapes of one that is."""
        call = Call({}, Asked(outputs=like.asked.outputs))
        call.is_null = True
        if self._takes_arrays:
            call.arrays = {name: blank(array) for name, array in like.arrays.items()}
        else:
            for name, received in like.inputs.items():
                empty = memoryview(bytes_of(zeros(received.datatype, received.shape)))
                call.inputs[name] = Received(received.datatype, received.shape, empty)
        for control in self.controls:
            self._put(call, control.spec, control.tell(NOBODY))
        return call


def sequences_of(config: ModelConfig, *, takes_arrays: bool = True) -> Sequences | None:
    """Make the worker's side of a model's sequences; None where it has none."""
    if config.settings.get("sequence_batching") is None:
        return None
    return Sequences(config, takes_arrays=takes_arrays)
