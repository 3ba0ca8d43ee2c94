"""Generation: any JSON object becomes a request; keys that name inputs are tensors, the others are parameters."""

from collections.abc import Mapping
from typing import Any

from shoal.config.model import TensorSpec
from shoal.errors import InvalidInput
from shoal.frontend.kserve.asked import Asked, Tensor
from shoal.frontend.kserve.heads import read_controls, read_object
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.values import from_json
from shoal.payload import Buffer


def read_generation(text: Buffer, plan: Plan) -> Asked:
    """Make a request of a client's object."""
    if not len(text):
        raise InvalidInput("failed to parse the request JSON buffer: The document is empty.")
    body = read_object(text)
    inputs = {spec.name: spec for spec in plan.interface.inputs}
    found: dict[str, Any] = {}
    parameters: dict[str, Any] = {}
    nested = body.get("parameters", {})
    if not isinstance(nested, Mapping):
        nested = {"parameters": nested}
    for key, value in [*((key, value) for key, value in body.items() if key != "parameters"), *nested.items()]:
        (found if key in inputs else parameters)[key] = value
    id = body.get("id", "")
    if "id" not in inputs and not isinstance(id, str):
        raise InvalidInput(f"Unable to parse 'id': it is a string, got {str(id)[:80]}")
    tensors = [_tensor(inputs[name], value, has_rows=bool(plan.rows)) for name, value in found.items()]
    return Asked("" if "id" in inputs else id, tensors, None, read_controls(parameters))


def shape_for(spec: TensorSpec, count: int, *, has_rows: bool) -> list[int]:
    """Say what shape so many values have: the innermost free dimension takes what is left, the others are 1."""
    left, shape = count, []
    is_taken = False
    dims = [-1, *spec.dims] if has_rows else spec.dims
    fixed = 1
    for dim in dims:
        fixed *= dim if dim != -1 else 1
    if not fixed or left % fixed:
        raise _misfit(spec.name)
    left //= fixed
    for dim in reversed(dims):
        if dim != -1:
            shape.append(dim)
        elif is_taken:
            shape.append(1)
        else:
            shape.append(left)
            is_taken = True
    if not is_taken and left != 1:
        raise _misfit(spec.name)
    return shape[::-1]


def _tensor(spec: TensorSpec, value: Any, *, has_rows: bool) -> Tensor:
    values = _flat(value)
    if values is None:
        raise _misfit(spec.name)
    shape = shape_for(spec, len(values), has_rows=has_rows)
    return Tensor(spec.name, spec.datatype, shape, from_json(spec.datatype, spec.name, len(values), values))


def _flat(value: Any) -> list[Any] | None:
    if isinstance(value, list):
        return value[0] if len(value) == 1 and isinstance(value[0], list) else value
    return None if isinstance(value, dict) else [value]


def _misfit(name: str) -> InvalidInput:
    return InvalidInput(f"The schema can not convert input '{name}' to tensor with proper shape")
