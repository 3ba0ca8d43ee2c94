"""The JSON of an inference request over HTTP, read and checked for its form."""

import json
import re
from typing import Annotated, Any, Final

import msgspec

from shoal.config.kinds import convert
from shoal.core.request import InSequence
from shoal.errors import InvalidInput
from shoal.frontend.kserve.controls import NO_CONTROLS, Controls
from shoal.frontend.kserve.status import Unsupported
from shoal.payload import Buffer

LONGEST_ID: Final = 128  # characters of a sequence's
LARGEST: Final = 2**64 - 1
NO_DATA = msgspec.Raw(b"")
Dims = list[Annotated[int, msgspec.Meta(ge=0)]]


class Output(msgspec.Struct, frozen=True):
    """One output that is asked for."""

    name: str
    parameters: dict[str, Any] = {}


class Input(msgspec.Struct, frozen=True):
    """One input; its data is not looked into yet."""

    name: str
    shape: Dims
    datatype: str
    parameters: dict[str, Any] = {}
    data: msgspec.Raw = NO_DATA

    @property
    def has_data(self) -> bool:
        """Whether there is a field `data`."""
        return self.data is not NO_DATA


class LooseInput(msgspec.Struct, frozen=True):
    """One input whose data had to be read already: it has what JSON has not, such as NaN."""

    name: str
    shape: Dims
    datatype: str
    parameters: dict[str, Any] = {}
    data: Any = msgspec.UNSET

    @property
    def has_data(self) -> bool:
        """Whether there is a field `data`."""
        return self.data is not msgspec.UNSET


class Head(msgspec.Struct, frozen=True):
    """The whole of a request."""

    inputs: list[Input]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[Output] = []


class LooseHead(msgspec.Struct, frozen=True):
    """The same, of loose inputs."""

    inputs: list[LooseInput]
    id: str = ""
    parameters: dict[str, Any] = {}
    outputs: list[Output] = []


_decode = msgspec.json.Decoder(Head).decode


def read_head(text: Buffer) -> Head | LooseHead:
    """Read the JSON part of a request; InvalidInput says what is wrong with it."""
    try:
        return _decode(text)
    except msgspec.ValidationError as error:
        raise InvalidInput(_parse_error(str(error))) from None
    except (msgspec.DecodeError, RecursionError, UnicodeDecodeError) as error:
        if not _may_have_more_than_json(text):
            raise InvalidInput(f"failed to parse the request JSON buffer: {error}") from None
    try:
        return convert(read_loose(text), LooseHead)
    except msgspec.ValidationError as error:
        raise InvalidInput(_parse_error(str(error))) from None


def read_object(text: Buffer) -> dict[str, Any]:
    """Read a body that is one JSON object; none at all is an empty one."""
    value = read_loose(text) if len(text) else {}
    if not isinstance(value, dict):
        raise InvalidInput("the body is not a JSON object")
    return value


def read_loose(text: Buffer) -> Any:
    """Read JSON that may have NaN and infinities in it; half of a surrogate pair is no text."""
    raw = bytes(text)
    try:
        value = json.loads(raw)
        if b"\\u" in raw:
            json.dumps(value, ensure_ascii=False).encode()
        return value
    except (ValueError, RecursionError) as error:
        raise InvalidInput(f"failed to parse the request JSON buffer: {error}") from None


def read_controls(parameters: dict[str, Any]) -> Controls:
    """Take the parameters apart: what the server itself acts on, and what the model is told."""
    if not parameters:
        return NO_CONTROLS
    own = dict(parameters)
    id = own.pop("sequence_id", 0)
    is_first, is_last = own.pop("sequence_start", False), own.pop("sequence_end", False)
    is_binary = own.pop("binary_data_output", False)
    for name, value in (("sequence_start", is_first), ("sequence_end", is_last), ("binary_data_output", is_binary)):
        if not isinstance(value, bool):
            raise InvalidInput(f"Unable to parse '{name}': it is true or false, got {_shown(value)}")
    priority, timeout = own.pop("priority", 0), own.pop("timeout", 0)
    for name, value in (("priority", priority), ("timeout", timeout)):
        if not is_natural(value):
            raise InvalidInput(f"Unable to parse '{name}': it is a whole number of 0 or more, got {_shown(value)}")
    check_parameters(own)
    return Controls(own, membership(id, is_first, is_last), priority, timeout, is_binary)


def check_parameters(parameters: dict[str, Any]) -> None:
    """Refuse the names that are reserved, and values that are no string, number or boolean."""
    for name, value in parameters.items():
        if name.startswith("triton_"):
            raise InvalidInput(
                "parameter keys starting with 'triton_' are reserved for Triton usage and should not be specified. "
                f"Got '{name}'."
            )
        if not isinstance(value, str | int | float | bool) or (isinstance(value, int) and abs(value) > LARGEST):
            raise InvalidInput(
                f"parameter '{name}' has invalid type. It should be either 'int', 'bool', 'double' or 'string'."
            )


def membership(id: Any, is_first: bool, is_last: bool) -> InSequence | None:
    """Say which sequence a request belongs to; None where it says of none."""
    if not isinstance(id, str) and not is_natural(id):
        raise InvalidInput(f"Unable to parse 'sequence_id': it is a whole number or a string, got {_shown(id)}")
    if isinstance(id, str) and len(id) > LONGEST_ID:
        raise Unsupported(f"string correlation ID cannot be longer than {LONGEST_ID} characters")
    return InSequence(id, is_first, is_last) if id or is_first or is_last else None


def is_natural(value: Any) -> bool:
    """Whether it is a whole number of 0 or more that fits into 64 bits."""
    return isinstance(value, int) and not isinstance(value, bool) and 0 <= value <= LARGEST


def _may_have_more_than_json(text: Buffer) -> bool:
    data = bytes(text)
    return b"NaN" in data or b"Inf" in data


def _parse_error(message: str) -> str:
    missing = re.search(r"missing required field `(\w+)`", message)
    path = re.search(r" - at `(.*)`", message)
    fields = re.findall(r"\.(\w+)", path[1]) if path else []
    field = missing[1] if missing else fields[-1] if fields else "inputs"
    return f"Unable to parse '{field}': {message}"


def _shown(value: Any) -> str:
    return repr(value)[:80]
