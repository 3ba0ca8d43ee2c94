"""The form in which a configuration is shown: JSON with protobuf's field names, every default, and plain numbers."""

import math
import struct
from typing import Any

from google.protobuf.descriptor import FieldDescriptor

Field = FieldDescriptor
SHOWN_IF_SET = {"max_inflight_requests"}  # younger than the form that tools expect


def config_json(message: Any) -> dict[str, Any]:
    """Give a message as /config shows it: keys as declared, 64-bit numbers as numbers, unset messages left out."""
    shown: dict[str, Any] = {}
    for field in message.DESCRIPTOR.fields:
        if field.has_presence and not message.HasField(field.name):
            continue
        value = getattr(message, field.name)
        if field.name in SHOWN_IF_SET and not value:
            continue
        if _is_map(field):
            kind = field.message_type.fields_by_name["value"]
            shown[field.name] = {str(key): _shown(kind, value[key]) for key in value}
        elif field.has_presence or isinstance(value, str | int | float):
            shown[field.name] = _shown(field, value)
        else:
            shown[field.name] = [_shown(field, one) for one in value]
    return shown


def value_name(message: Any, field: str) -> str:
    """Give the name of an enum's value; its number where it has none."""
    kind = message.DESCRIPTOR.fields_by_name[field].enum_type
    known = kind.values_by_number.get(getattr(message, field))
    return known.name if known else str(getattr(message, field))


def _is_map(field: Any) -> bool:
    return bool(field.message_type and field.message_type.GetOptions().map_entry)


def _shown(field: Any, value: Any) -> Any:
    if field.cpp_type == Field.CPPTYPE_MESSAGE:
        return config_json(value)
    if field.cpp_type == Field.CPPTYPE_ENUM:
        known = field.enum_type.values_by_number.get(value)
        return known.name if known else value
    if isinstance(value, float) and not math.isfinite(value):
        return "NaN" if math.isnan(value) else "Infinity" if value > 0 else "-Infinity"  # JSON has no such numbers
    if field.cpp_type == Field.CPPTYPE_FLOAT:
        return _shortest(value)
    return value


def _shortest(value: float) -> float:
    """Give the shortest number that a 32-bit float can be read from again."""
    wanted = struct.pack("f", value)
    tried = (float(f"{value:.{digits}g}") for digits in range(6, 10))
    return next((number for number in tried if struct.pack("f", number) == wanted), value)
