"""What one version of a model takes and gives, prepared once: requests are checked against it without a detour."""

from collections.abc import Hashable, Mapping, Sequence
from typing import Final, NamedTuple

import msgspec

from shoal.config.model import Interface, TensorSpec
from shoal.core.model import Model
from shoal.errors import InvalidInput
from shoal.frontend.kserve.asked import Asked, Tensor, Wish
from shoal.frontend.kserve.values import NOT_IN_JSON
from shoal.tensor import WIDTHS, elements, part_type, string_ends

MOST_STRINGS: Final = 16_384  # elements of a BYTES tensor up to which the front process counts them itself
MOST_LOOKS: Final = 1024  # of requests, what is remembered of a model
NOTE: Final = (
    "NOTE: Setting a non-zero max_batch_size in the model config requires a batch dimension to be prepended to each "
    "input shape. If you want to specify the full shape including the batch dim in your input dims config, try "
    "setting max_batch_size to zero. See the model configuration docs for more info on max_batch_size."
)


class Fit(NamedTuple):
    """What is to be known of a request that fits a model."""

    rows: int
    types: list[str]  # the content type of each tensor
    group: Hashable  # requests of one group may share a batch


class Plan:
    """One model's interface, and what is said about it in every answer."""

    __slots__ = (
        "_expected",
        "_fits",
        "_groups",
        "_inputs",
        "_required",
        "_types",
        "interface",
        "model",
        "opening",
        "outputs",
        "rows",
    )

    def __init__(self, model: Model, interface: Interface) -> None:
        self.model = model
        self.interface = interface
        self.rows = interface.max_batch_size
        self.outputs = {spec.name: spec for spec in interface.outputs}
        encode = msgspec.json.encode
        self.opening = b'"model_name":%b,"model_version":%b' % (encode(model.name), encode(model.version))
        self._inputs = {spec.name: spec for spec in interface.inputs}
        self._required = [spec.name for spec in interface.inputs if not spec.is_optional]
        self._expected = {spec.name: self._full(spec) for spec in interface.inputs}
        self._groups = any(_is_open(spec) or spec.is_optional for spec in interface.inputs)
        self._types: dict[tuple[str, tuple[int, ...]], str] = {}
        self._fits: dict[Hashable, Fit] = {}

    def fit(self, asked: Asked) -> Fit:
        """Check a request, or raise InvalidInput; what was found of one is true of all whose tensors look the same."""
        tensors = asked.tensors
        look = tuple([(tensor.name, tensor.datatype, tuple(tensor.shape), tensor.size) for tensor in tensors])
        found = self._fits.get(look)
        if found is None:
            rows = self.check(asked)
            found = Fit(rows, [self.part_type(tensor) for tensor in tensors], self.group(tensors))
            if all(WIDTHS[tensor.datatype] for tensor in tensors):  # of strings, it is the bytes that are checked
                if len(self._fits) >= MOST_LOOKS:
                    self._fits.clear()
                self._fits[look] = found
        return found

    def check(self, asked: Asked) -> int:
        """Say how many rows a request has, or raise InvalidInput: what of it is not as the model expects."""
        tensors = asked.tensors
        if len(tensors) != 1 or len(self._inputs) != 1:
            self._check_count([tensor.name for tensor in tensors])
        rows = 0
        for tensor in tensors:
            spec = self._inputs.get(tensor.name)
            if spec is None:
                raise InvalidInput(f"unexpected inference input '{tensor.name}' for model '{self.model.name}'")
            own = self._check(tensor, spec)
            if rows and own != rows:
                raise InvalidInput(
                    f"input '{tensor.name}' batch size does not match other inputs for '{self.model.name}': "
                    f"expected {rows}, got {own}"
                )
            rows = own
        return rows or 1

    def check_wishes(self, wishes: Mapping[str, Wish] | None, *, binary: bool) -> None:
        """Refuse outputs that the model does not have, and those that their form cannot carry."""
        if wishes is None:
            if not binary:
                for spec in self.interface.outputs:
                    self._check_json(spec)
            return
        for wish in wishes.values():
            found = self.outputs.get(wish.name)
            if found is None:
                raise InvalidInput(f"unexpected inference output '{wish.name}' for model '{self.model.name}'")
            if not wish.is_binary and wish.window is None and not wish.classes:
                self._check_json(found)

    def group(self, tensors: Sequence[Tensor]) -> Hashable:
        """Say which requests this one may share a batch with: those whose group is equal."""
        if not self._groups:
            return None
        skip = 1 if self.rows else 0
        return tuple(
            sorted(
                (tensor.name, tuple(tensor.shape[skip:]) if _is_open(spec) else ())
                for tensor in tensors
                if _is_open(spec := self._inputs[tensor.name]) or spec.is_optional
            )
        )

    def part_type(self, tensor: Tensor) -> str:
        """Give the content type of a part; those of a model are few, and remembered."""
        key = (tensor.datatype, tuple(tensor.shape))
        found = self._types.get(key)
        if found is None:
            if len(self._types) >= 1024:
                self._types.clear()
            found = self._types[key] = part_type(*key)
        return found

    def only_input(self) -> TensorSpec:
        """Give the input of a model that has one; a body that is nothing but a tensor means it."""
        if len(self.interface.inputs) != 1:
            raise InvalidInput(
                f"Raw request must only have 1 input (found 1) to be deduced but got {len(self.interface.inputs)} "
                f"inputs in '{self.model.name}' model configuration"
            )
        return self.interface.inputs[0]

    def _full(self, spec: TensorSpec) -> list[int]:
        return [-1, *spec.dims] if self.rows else list(spec.dims)

    def _check(self, tensor: Tensor, spec: TensorSpec) -> int:
        """Check one input; its rows."""
        name, model, shape = tensor.name, self.model.name, tensor.shape
        if tensor.datatype != spec.datatype:
            known = tensor.datatype if tensor.datatype in WIDTHS else "<invalid>"
            raise InvalidInput(
                f"inference input '{name}' data-type is '{known}', but model '{model}' expects '{spec.datatype}'"
            )
        if any(dim < 0 for dim in shape):
            raise InvalidInput(
                f"All input dimensions should be specified for input '{name}' for model '{model}', got {_text(shape)}"
            )
        count = elements(shape, name)
        expected = self._expected[name]
        if self.rows and not shape:
            raise InvalidInput(f"input '{name}' has no shape but model requires batch dimension for '{model}'")
        if len(shape) != len(expected) or any(want not in (-1, got) for want, got in zip(expected, shape, strict=True)):
            words = f"Expected {_text(expected)}, got {_text(shape)}."
            raise InvalidInput(
                f"unexpected shape for input '{name}' for model '{model}'. {words}{f' {NOTE}' if self.rows else ''}"
            )
        rows = 1
        if self.rows:
            rows = shape[0]
            if rows > self.rows:
                raise InvalidInput(f"inference request batch-size must be <= {self.rows} for '{model}', got {rows}")
            if not rows:
                raise InvalidInput(f"inference request batch-size must be >= 1 for '{model}', got 0 in input '{name}'")
        size, width = tensor.size, WIDTHS[tensor.datatype]
        if not width:
            _check_strings(tensor, count, model)
        elif size != count * width:
            raise InvalidInput(
                f"input byte size mismatch for input '{name}' for model '{model}'. Expected {count * width}, got {size}"
            )
        return rows

    def _check_count(self, given: Sequence[str]) -> None:
        if len(set(given)) != len(given):
            twice = next(name for name in given if given.count(name) > 1)
            raise InvalidInput(f"input '{twice}' already exists in request")
        missing = [name for name in self._required if name not in given]
        least, most = len(self._required), len(self._inputs)
        if not missing and least <= len(given) <= most:
            return
        if least == most:
            words = f"expected {most} inputs but got {len(given)} inputs"
        else:
            words = f"expected number of inputs between {least} and {most} but got {len(given)} inputs"
        raise InvalidInput(
            f"{words} for model '{self.model.name}'. Got input(s) {_names(given)}, but missing required input(s) "
            f"{_names(missing)}. Please provide all required input(s)."
        )

    def _check_json(self, spec: TensorSpec) -> None:
        if spec.datatype in NOT_IN_JSON:
            raise InvalidInput(
                f"sending {spec.datatype} data via JSON is not supported. Please use the binary data format for output "
                f"'{spec.name}'"
            )


def _check_strings(tensor: Tensor, count: int, model: str) -> None:
    """Count the elements of a BYTES tensor; one of very many is counted by the worker, which reads them anyway."""
    if count > MOST_STRINGS:
        return
    try:
        found = len(string_ends(tensor.view, count))
    except InvalidInput as error:
        raise InvalidInput(
            f"incomplete string length indicator for inference input '{tensor.name}' for model '{model}': {error}"
        ) from None
    if found != count:
        raise InvalidInput(
            f"expected {count} string elements for inference input '{tensor.name}' for model '{model}', got {found}"
            f"{' or more' if found > count else ''}"
        )


def _is_open(spec: TensorSpec) -> bool:
    return -1 in spec.dims and not spec.is_ragged


def _text(shape: Sequence[int]) -> str:
    return f"[{','.join(map(str, shape))}]"


def _names(names: Sequence[str]) -> str:
    return "[" + ",".join(f"'{name}'" for name in names) + "]"
