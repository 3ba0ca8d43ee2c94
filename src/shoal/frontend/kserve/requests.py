"""Inference requests over HTTP: a JSON head, and tensors in it, behind it, in shared memory, or nothing else at all."""

from collections.abc import Sequence
from math import prod
from typing import Any, Final

from shoal.config.model import TensorSpec
from shoal.errors import InvalidInput
from shoal.frontend.kserve.asked import Asked, Tensor, Window, Wish
from shoal.frontend.kserve.blocks import Body
from shoal.frontend.kserve.controls import NO_CONTROLS, Controls
from shoal.frontend.kserve.heads import Input, LooseInput, Output, is_natural, read_controls, read_head
from shoal.frontend.kserve.memory import Regions
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.status import named
from shoal.frontend.kserve.values import from_json
from shoal.payload import Block, Buffer
from shoal.tensor import WIDTHS, elements

RAW = Controls(is_binary=True)
FORMS: Final = "'data', 'binary_data_size' in 'parameters', 'shared_memory_region' in 'parameters'"


def read_request(data: Buffer | Block, head_size: int | None, plan: Plan, regions: Regions) -> Asked:
    """Read a body whose first `head_size` bytes are JSON; None: all of it; 0: it is one tensor and nothing else.

    What is raised leaves nothing lent.
    """
    body = Body(data)
    reader = Reader(body, plan, regions)
    try:
        if head_size == 0 or not len(body):
            asked = reader.raw()
        else:
            if head_size is not None and not 0 < head_size <= len(body):
                raise InvalidInput(f"inference header size should be in range (0, {len(body)}), got: {head_size}")
            asked = reader.read(len(body) if head_size is None else head_size)
    except BaseException:
        reader.drop()
        body.drop()
        raise
    body.close()
    return asked


def read_wish(output: Output, regions: Regions) -> Wish:
    """Read in what form an output is wanted."""
    parameters = output.parameters
    if not parameters:
        return Wish(output.name)
    is_binary = parameters.get("binary_data", False)
    classes = parameters.get("classification", 0)
    if not isinstance(is_binary, bool):
        raise InvalidInput(f"Unable to parse 'binary_data' of output '{output.name}': it is true or false")
    if not is_natural(classes):
        raise InvalidInput(
            f"Unable to set 'classification' of output '{output.name}': it is a whole number, got {classes!r}"
        )
    window: Window | None = None
    if "shared_memory_region" in parameters:
        if classes:
            raise InvalidInput(f"shared memory can't be used with classification of output '{output.name}'")
        window = regions.window(*read_place(parameters, output.name))
    return Wish(output.name, is_binary=is_binary, classes=classes, window=window)


def read_place(parameters: dict[str, Any], name: str) -> tuple[str, int, int]:
    """Read where in shared memory a tensor lies: region, offset, size."""
    region = parameters["shared_memory_region"]
    if not isinstance(region, str):
        raise InvalidInput(f"Unable to parse 'shared_memory_region' of '{name}': it is a string, got {region!r}")
    if "shared_memory_byte_size" not in parameters:
        raise InvalidInput(
            "'shared_memory_byte_size' must be specified along with 'shared_memory_region' parameter for tensor "
            f"'{name}'"
        )
    size, offset = parameters["shared_memory_byte_size"], parameters.get("shared_memory_offset", 0)
    for field, value in (("shared_memory_byte_size", size), ("shared_memory_offset", offset)):
        if not is_natural(value):
            raise InvalidInput(f"Unable to parse '{field}' of '{name}': it is a number of bytes, got {value!r}")
    return region, offset, size


class Reader:
    """Reads one request; remembers what it took, should the rest be wrong."""

    def __init__(self, body: Body, plan: Plan, regions: Regions) -> None:
        self._body = body
        self._plan = plan
        self._regions = regions
        self._tensors: list[Tensor] = []
        self._wishes: dict[str, Wish] | None = None
        self._at = 0  # where the next tensor behind the JSON begins

    def read(self, head_size: int) -> Asked:
        """Read a request with a JSON head."""
        head = read_head(self._body.view[:head_size])
        controls = read_controls(head.parameters)
        self._at = head_size
        self._read_wishes(head.outputs)
        for tensor in head.inputs:
            self._tensors.append(self._tensor(tensor))
        self._plan.check_wishes(self._wishes, binary=controls.is_binary)
        if self._at != len(self._body):
            raise InvalidInput(
                f"unexpected additional input data for model '{self._plan.model.name}': "
                f"{len(self._body) - self._at} bytes"
            )
        return Asked(head.id, self._tensors, self._wishes, controls)

    def raw(self) -> Asked:
        """Read a request that is one tensor; every output is sent back as bytes."""
        try:
            spec = self._plan.only_input()
        except InvalidInput as error:
            raise InvalidInput(named("") + str(error)) from None
        size = len(self._body)
        shape = raw_shape(spec, size, has_rows=bool(self._plan.rows), model=self._plan.model.name)
        data: Buffer | Block = self._body.piece(0, size)
        if spec.datatype == "BYTES":
            data = size.to_bytes(4, "little") + bytes(self._body.view)
            self._body.drop()
        return Asked("", [Tensor(spec.name, spec.datatype, shape, data)], None, RAW)

    def drop(self) -> None:
        """Give back what was taken: the request will not be."""
        Asked("", self._tensors, self._wishes, NO_CONTROLS).release()

    def _read_wishes(self, outputs: Sequence[Output]) -> None:
        if outputs:
            self._wishes = {}
            for output in outputs:
                if output.name in self._wishes:
                    raise InvalidInput(f"output '{output.name}' is requested twice")
                self._wishes[output.name] = read_wish(output, self._regions)

    def _tensor(self, tensor: Input | LooseInput) -> Tensor:
        name, datatype = tensor.name, tensor.datatype
        if datatype not in WIDTHS:
            raise InvalidInput(f"invalid datatype for input {name}: '{datatype[:80]}'")
        parameters = tensor.parameters
        has_data, is_behind = tensor.has_data, "binary_data_size" in parameters
        if has_data + is_behind + ("shared_memory_region" in parameters) != 1:
            raise _not_one_form(tensor)
        if has_data:
            data: Buffer | Block = from_json(datatype, name, elements(tensor.shape, name), tensor.data)
        elif is_behind:
            data = self._binary(name, parameters["binary_data_size"])
        else:
            data = self._regions.read(*read_place(parameters, name))
        return Tensor(name, datatype, tensor.shape, data)

    def _binary(self, name: str, size: Any) -> Buffer | Block:
        if not is_natural(size):
            raise InvalidInput(f"Unable to parse 'binary_data_size' of input '{name}': it is a number, got {size!r}")
        missing = self._at + size - len(self._body)
        if missing > 0:
            raise InvalidInput(
                f"unexpected size for input '{name}', expecting {missing} additional bytes for model "
                f"'{self._plan.model.name}'"
            )
        data = self._body.piece(self._at, size)
        self._at += size
        return data


def _not_one_form(tensor: Input | LooseInput) -> InvalidInput:
    forms = ["'data'"] if tensor.has_data else []
    forms += [f"'{form}'" for form in ("binary_data_size", "shared_memory_region") if form in tensor.parameters]
    words = f"set {' '.join(forms)}" if forms else "no field is set"
    return InvalidInput(
        f"Input must set only one of the following fields: {FORMS}. But {words} in input '{tensor.name}'"
    )


def raw_shape(spec: TensorSpec, size: int, *, has_rows: bool, model: str) -> list[int]:
    """Say what shape a body has that is a tensor: the one dimension that may differ takes what is left."""
    if spec.datatype == "BYTES":
        if spec.dims != [1]:
            raise InvalidInput(f"For BYTE datatype raw input '{spec.name}', the model must have input shape [1]")
    elif spec.dims.count(-1) > 1:
        raise InvalidInput(
            f"The shape of raw input '{spec.name}' can not be deduced because there are more than one variable-sized "
            f"dimension in model '{model}'"
        )
    fixed = WIDTHS[spec.datatype] * prod(dim for dim in spec.dims if dim != -1)
    dims = [(size // fixed if fixed else 0) if dim == -1 else dim for dim in spec.dims]
    return [1, *dims] if has_rows else dims
