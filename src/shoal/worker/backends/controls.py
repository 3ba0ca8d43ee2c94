"""Control inputs: what a model is told of the sequence that a row belongs to, in tensors that no client sends."""

from typing import Any, NamedTuple

import numpy as np

from shoal.config.model import TensorSpec
from shoal.config.scheduling import ControlKind, SequenceBatching
from shoal.errors import LoadFailed
from shoal.worker.backends.received import Asked
from shoal.worker.backends.tensors import DTYPES

CORRELATION = "CONTROL_SEQUENCE_CORRID"
CORRELATION_TYPES = ("UINT64", "INT64", "UINT32", "INT32", "BYTES")


class Mark(NamedTuple):
    """What the controls of one row tell."""

    id: int | str
    start: bool
    end: bool
    ready: bool


NOBODY = Mark(0, start=False, end=False, ready=False)  # a row that is no request's
ALONE = Mark(1, start=True, end=True, ready=True)  # a request of no sequence: a warm-up


def mark_of(asked: Asked) -> Mark:
    """Read what a request says of its sequence."""
    said = asked.sequence or {}
    return Mark(said.get("id", 0), bool(said.get("start")), bool(said.get("end")), ready=True)


class Control:
    """One control of a control input."""

    def __init__(self, name: str, kind: ControlKind, is_batched: bool, model: str) -> None:
        self.kind = kind.kind
        self._shape = (1, 1) if is_batched else (1,)
        values: tuple[Any, ...] = ()
        if kind.kind == CORRELATION:
            datatype = kind.data_type.removeprefix("TYPE_").replace("STRING", "BYTES")
            if datatype not in CORRELATION_TYPES:
                raise LoadFailed(
                    f"control '{name}' of model {model!r} must be one of {', '.join(CORRELATION_TYPES)}, got {datatype}"
                )
        else:
            datatype, values = _two_values(name, kind, model)
        self.spec = TensorSpec(name=name, datatype=datatype, dims=[1])
        self._values = [np.full(self._shape, value, DTYPES[datatype]) for value in values]

    def tell(self, mark: Mark) -> Any:
        """Give the tensor of a row."""
        match self.kind:
            case "CONTROL_SEQUENCE_START":
                return self._values[mark.start]
            case "CONTROL_SEQUENCE_END":
                return self._values[mark.end]
            case "CONTROL_SEQUENCE_READY":
                return self._values[mark.ready]
        return self._correlation(mark.id)

    def _correlation(self, id: int | str) -> Any:
        """Give the id: text as it is, a number's low bits where the tensor has fewer than it."""
        dtype = DTYPES[self.spec.datatype]
        if self.spec.datatype == "BYTES":
            return np.full(self._shape, (str(id) if id else "").encode(), dtype)
        number = id if isinstance(id, int) else 0
        return np.full(self._shape, number % 2 ** (8 * dtype.itemsize), f"u{dtype.itemsize}").view(dtype)


def _two_values(name: str, kind: ControlKind, model: str) -> tuple[str, tuple[Any, ...]]:
    given = (("INT32", kind.int32_false_true), ("FP32", kind.fp32_false_true), ("BOOL", kind.bool_false_true))
    for datatype, values in given:
        if len(values) == 2:
            return datatype, values
    raise LoadFailed(f"control '{name}' of model {model!r} must have two values, one for false and one for true")


def controls_of(settings: SequenceBatching, is_batched: bool, model: str) -> list[Control]:
    """Make the controls that a configuration lists."""
    return [
        Control(tensor.name, kind, is_batched, model) for tensor in settings.control_input for kind in tensor.control
    ]
