"""Requests to what a model is fed, and what it gave back to answers: merged along the batch, split by rows.

A lone request is fed as it lies. Requests that cannot share a tensor, whatever brought them into one batch, are run
one group after the other. Requests of sequences are fed their controls and states beside what they brought.
"""

from collections import deque
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from math import prod
from typing import Any

import numpy as np

from shoal.config.model import ModelConfig, TensorSpec
from shoal.errors import HandlerFailed, LoadFailed
from shoal.worker.backends import tensors
from shoal.worker.backends.sequences import sequences_of
from shoal.worker.backends.states import fits
from shoal.worker.backends.tensors import Call, Tensors
from shoal.worker.items import Reader
from shoal.worker.program import Program, Stage

Allocate = Callable[[int], Any]  # bytes to a flat array of uint8
PAGE = 4096


class Buffers:
    """Memory for merged inputs, kept from batch to batch; several may be out at once."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._free: dict[str, deque[Any]] = {}

    def take(self, name: str, shape: Sequence[int], dtype: Any) -> tuple[Any, Any]:
        """Give an array of this kind, and the memory to give back once nobody looks at it any more."""
        size = prod(shape) * dtype.itemsize
        try:
            memory = self._free.setdefault(name, deque()).pop()
        except IndexError:
            memory = None
        if memory is None or memory.size < size:
            memory = self._allocate(-(-max(size, 1) // PAGE) * PAGE)
        return memory[:size].view(dtype).reshape(shape), memory

    def give_back(self, name: str, memory: Any) -> None:
        """Keep it for the next batch."""
        self._free[name].append(memory)


def plain_memory(size: int) -> Any:
    """Memory of the machine."""
    return np.empty(size, np.uint8)


@dataclass(slots=True)
class Merged:
    """Requests that are run as one."""

    calls: list[Call]
    places: list[int]  # of each in the batch; -1: a row that is no request's
    rows: list[int]  # that each has
    arrays: dict[str, Any] = field(default_factory=dict)
    lent: list[tuple[str, Any]] = field(default_factory=list)

    @property
    def total(self) -> int:
        """All rows."""
        return sum(self.rows)

    def wanted(self, outputs: Sequence[str]) -> list[str]:
        """Of these outputs, those that somebody asked for."""
        return [name for name in outputs if any(call.wants(name) for call in self.calls)] or list(outputs)


class Layout:
    """How a model's tensors are merged and split: its interface, and what is derived from the batch."""

    def __init__(self, config: ModelConfig, *, owns_inputs: bool = False, allocate: Allocate = plain_memory) -> None:
        if config.interface is None:
            raise LoadFailed(f"model {config.name!r} needs an interface: its inputs and outputs are not known")
        settings = config.settings
        self.sequences = sequences_of(config)
        self.is_batched = config.interface.max_batch_size > 0
        self.inputs = {spec.name: spec for spec in config.interface.inputs}
        self.outputs = {spec.name: spec for spec in config.interface.outputs}
        self.added = self.sequences.fed if self.sequences else {}  # what is fed to the model and no client sends
        self.states = self.sequences.given if self.sequences else {}  # what the model gives for its next time
        self.batch_inputs: list[dict[str, Any]] = settings.get("batch_input", [])
        self.scattered = {
            target: batch_output["source_input"][0]
            for batch_output in settings.get("batch_output", [])
            for target in batch_output["target_name"]
        }
        self._owns_inputs = owns_inputs  # the model may write into what it is fed
        self._buffers = Buffers(allocate)

    def wanted(self, merged: Merged) -> list[str]:
        """Give the outputs that somebody asked for, and the states."""
        asked_for = merged.wanted(list(self.outputs))
        return asked_for + [name for name in self.states if name not in asked_for]

    def merge(self, calls: Sequence[Call]) -> list[Merged]:
        """Bring requests together; one group unless their tensors are of different kinds."""
        groups: dict[Any, Merged] = {}
        for place, call in enumerate(calls):
            merged = groups.setdefault(self._kind(place, call), Merged([], [], []))
            merged.calls.append(call)
            merged.places.append(place)
        for merged in groups.values():
            if self.sequences is not None:
                place_of = {id(call): place for call, place in zip(merged.calls, merged.places, strict=True)}
                merged.calls = self.sequences.rows(merged.calls)
                merged.places = [place_of.get(id(call), -1) for call in merged.calls]
            merged.rows = [self._rows(call) for call in merged.calls]
            self._fill(merged)
        return list(groups.values())

    def _kind(self, place: int, call: Call) -> Any:
        if not self.is_batched:
            return place
        return tuple(
            (name, array.dtype, None if self._is_ragged(name) else array.shape[1:])
            for name, array in call.arrays.items()
        )

    def _rows(self, call: Call) -> int:
        return next((array.shape[0] for array in call.arrays.values() if array.ndim), 1) if self.is_batched else 1

    def _is_ragged(self, name: str) -> bool:
        spec = self.inputs.get(name)
        return spec is not None and spec.is_ragged

    def _fill(self, merged: Merged) -> None:
        for name in merged.calls[0].arrays:
            parts = [call.arrays[name] for call in merged.calls]
            if self._is_ragged(name) and self.is_batched:
                parts = [part.reshape(-1) for part in parts]
            array = self._together(name, parts, merged)
            merged.arrays[name] = self._as_model_sees(self.inputs.get(name), array)
        for batch_input in self.batch_inputs:
            array = _derived(batch_input, [call.arrays[batch_input["source_input"][0]] for call in merged.calls])
            merged.arrays.update(dict.fromkeys(batch_input["target_name"], array))

    def _together(self, name: str, parts: list[Any], merged: Merged) -> Any:
        first = parts[0]
        if first.dtype == np.object_:
            return first if len(parts) == 1 else np.concatenate(parts)
        if len(parts) == 1 and first.flags.aligned and not self._owns_inputs:
            return first
        if not first.ndim:
            return first.copy()
        shape = (sum(part.shape[0] for part in parts), *first.shape[1:])
        array, memory = self._buffers.take(name, shape, first.dtype)
        merged.lent.append((name, memory))
        return np.concatenate(parts, out=array)

    def _as_model_sees(self, spec: TensorSpec | None, array: Any) -> Any:
        if spec is None or spec.reshape is None or self._is_ragged(spec.name):
            return array
        lead = 1 if self.is_batched else 0
        return array.reshape((*array.shape[:lead], *fill(spec.reshape, spec.dims, array.shape[lead:])))

    def split(self, done: Sequence[tuple[Merged, dict[str, Any]]]) -> list[Any]:
        """Give each request its rows of the outputs it asked for, as an answer."""
        answers: list[Any] = [None] * sum(place >= 0 for merged, _ in done for place in merged.places)
        states = [self._states(merged, outputs) for merged, outputs in done] if self.states else []
        for merged, outputs in done:
            found: list[list[tensors.Output]] = [[] for _ in merged.calls]
            for name, array in outputs.items():
                if name in self.outputs:
                    self._share(name, array, merged, found)
            for place, shares in zip(merged.places, found, strict=True):
                if place >= 0:
                    answers[place] = tensors.answer(shares)
            for name, memory in merged.lent:
                self._buffers.give_back(name, memory)
        for call, values in (entry for group in states for entry in group):
            assert self.sequences is not None
            self.sequences.keep(call, values)
        return answers

    def _states(self, merged: Merged, outputs: dict[str, Any]) -> list[tuple[Call, dict[str, Any]]]:
        """Give each request the states that its rows of the outputs are, as copies: what they lie in is used again."""
        found: list[dict[str, Any]] = [{} for _ in merged.calls]
        for name, spec in self.states.items():
            tensors.datatype_of(name, outputs[name], spec.datatype)
            array = self._as_clients_see(spec, outputs[name], merged.total)
            for values, piece in zip(found, _cut(name, array, merged.rows, self.is_batched), strict=True):
                values[name] = piece.copy()
        return [(call, values) for call, values in zip(merged.calls, found, strict=True) if not call.is_null]

    def _share(self, name: str, array: Any, merged: Merged, found: list[list[tensors.Output]]) -> None:
        spec = self.outputs[name]
        datatype = tensors.datatype_of(name, array, spec.datatype)
        if name in self.scattered:
            pieces = _scatter(name, array, [call.arrays[self.scattered[name]].shape for call in merged.calls])
        else:
            pieces = _cut(name, self._as_clients_see(spec, array, merged.total), merged.rows, self.is_batched)
        for call, share, piece in zip(merged.calls, found, pieces, strict=True):
            if not call.is_null and call.wants(name):
                share.append((name, datatype, piece.shape, tensors.bytes_of(piece)))

    def _as_clients_see(self, spec: TensorSpec, array: Any, total: int) -> Any:
        lead = (total,) if self.is_batched else ()
        seen = spec.dims if spec.reshape is None else spec.reshape
        expected = [*((-1,) if self.is_batched else ()), *seen]
        got = array.shape
        if got[: len(lead)] != lead:
            raise HandlerFailed(
                f"output '{spec.name}' must have {total} rows, one for each of the batch, got shape {list(got)}",
                status=tensors.INTERNAL,
            )
        if not fits(expected, got):
            raise HandlerFailed(
                f"unexpected shape for output '{spec.name}': expected {expected}, got {list(got)}",
                status=tensors.INTERNAL,
            )
        if spec.reshape is None:
            return array
        return array.reshape((*lead, *fill(spec.dims, spec.reshape, got[len(lead) :])))


def make_program(
    name: str, layout: Layout, infer: Callable[[Merged], dict[str, Any]], read: Reader = tensors.read_arrays
) -> Program:
    """Make the program of a model that is fed whole batches; its three stages overlap between batches."""
    batches, sequences = Tensors(), layout.sequences

    def merge(calls: list[Call]) -> list[Merged]:
        return layout.merge(calls if sequences is None else sequences.seat(calls, batches.cut))

    def run(groups: list[Merged]) -> list[tuple[Merged, dict[str, Any]]]:
        return [(merged, infer(merged)) for merged in groups]

    stages = (
        Stage("preprocess", f"{name} (merging)", merge, gives_rows=False),
        Stage("inference", name, run, gives_rows=False),
        Stage("postprocess", f"{name} (splitting)", layout.split, gives_rows=True),
    )
    return Program(name, stages, sequences.reader(read) if sequences else read, batches, wants_headers=True)


def fill(pattern: Sequence[int], like: Sequence[int], shape: Sequence[int]) -> list[int]:
    """Put sizes into a pattern: its n-th -1 is what `shape` has where `like` has its n-th -1."""
    sizes = iter([size for size, dim in zip(shape, like, strict=True) if dim == -1])
    return [next(sizes) if dim == -1 else dim for dim in pattern]


def _cut(name: str, array: Any, rows: Sequence[int], is_batched: bool) -> list[Any]:
    if len(rows) == 1 or not is_batched:
        return [array]
    pieces, at = [], 0
    for count in rows:
        pieces.append(array[at : at + count])
        at += count
    return pieces


def _scatter(name: str, array: Any, shapes: Sequence[Sequence[int]]) -> list[Any]:
    flat, pieces, at = array.reshape(-1), [], 0
    if flat.size != sum(map(prod, shapes)):
        raise HandlerFailed(
            f"output '{name}' must have {sum(map(prod, shapes))} elements to be scattered, got {flat.size}",
            status=tensors.INTERNAL,
        )
    for shape in shapes:
        pieces.append(flat[at : at + prod(shape)].reshape(shape))
        at += prod(shape)
    return pieces


def _derived(batch_input: dict[str, Any], sources: Sequence[Any]) -> Any:
    """Make an input that tells of the batch: sizes or shapes of a source input, request by request."""
    dtype = np.float32 if batch_input.get("data_type") == "TYPE_FP32" else np.int32
    sizes = [source.size for source in sources]
    match batch_input["kind"]:
        case "BATCH_ELEMENT_COUNT":
            return np.array(sizes, dtype)
        case "BATCH_ACCUMULATED_ELEMENT_COUNT":
            return np.cumsum(sizes, dtype=dtype)
        case "BATCH_ACCUMULATED_ELEMENT_COUNT_WITH_ZERO":
            return np.cumsum([0, *sizes], dtype=dtype)
        case "BATCH_MAX_ELEMENT_COUNT_AS_SHAPE":
            return np.zeros(max(sizes), dtype)
        case "BATCH_ITEM_SHAPE" | "BATCH_ITEM_SHAPE_FLATTEN" as kind:
            shapes = [source.shape[1:] for source in sources for _ in range(source.shape[0])]
            return np.array(shapes, dtype).reshape(-1 if kind.endswith("FLATTEN") else (len(shapes), -1))
        case kind:
            raise HandlerFailed(f"batch_input of kind {kind!r} is not known", status=tensors.INTERNAL)
