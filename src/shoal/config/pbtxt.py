"""config.pbtxt: a Triton model's settings read as a message, from protobuf's text form or from JSON."""

import re
from collections.abc import Iterable
from difflib import get_close_matches
from pathlib import Path
from typing import Any

from google.protobuf import json_format, text_format

from shoal.config.proto.model_config_pb2 import DESCRIPTOR
from shoal.config.proto.model_config_pb2 import ModelConfig as ModelConfigMessage
from shoal.errors import ConfigError

LARGEST = 4 * 2**20  # bytes of one file
NO_FIELD = re.compile(r'Message type "([\w.]+)" has no field named "(\w+)"')
NO_VALUE = re.compile(
    r'(?:Enum type "([\w.]+)" has no value named (\w+)|Invalid enum value (\w+) for enum type ([\w.]+))'
)
QUOTED_LINE = re.compile(r"'[^\n]*': (?=[A-Z])")  # the line at fault, which protobuf repeats before some reasons
LAST_FIELD = re.compile(r"(\w+)\s*(?::\s*(?:\[[^\]{}]*)?|\{|<|\[)?\s*$")


def read(path: Path) -> Any:
    """Read a file in text form."""
    try:
        with open(path, "rb") as file:
            data = file.read(LARGEST + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    if len(data) > LARGEST:
        raise ConfigError(f"{path} is larger than {LARGEST} bytes, which no model's settings are")
    try:
        return parse(data.decode(), str(path))
    except UnicodeDecodeError as error:
        raise ConfigError(f"{path} is not UTF-8 at byte {error.start}") from None


def parse(text: str, where: str) -> Any:
    """Read settings in text form; ConfigError tells the line and the field at fault, and what would be right."""
    try:
        return text_format.Parse(text, ModelConfigMessage())
    except text_format.ParseError as error:
        reason = re.sub(r"^\d+:\d+ : ", "", str(error))
        reason = QUOTED_LINE.sub("", reason).strip()
        line, column = error.GetLine() or 0, error.GetColumn() or 0
        field = "" if NO_FIELD.search(reason) or NO_VALUE.search(reason) else _field_at(text, line, column)
        told = _told(reason) + (f" (at field {field!r})" if field else "")
        raise ConfigError(f"{where}:{line}:{column}: {told}") from None


def parse_json(text: str | bytes, where: str) -> Any:
    """Read settings in protobuf's JSON form: names in either case, numbers also as text."""
    if len(text) > LARGEST:
        raise ConfigError(f"{where} is larger than {LARGEST} bytes, which no model's settings are")
    try:
        plain = text.decode() if isinstance(text, bytes) else text
        if not plain.lstrip().startswith("{"):
            raise ConfigError(f"{where}: expected a JSON object with a model's settings")
        return json_format.Parse(plain, ModelConfigMessage())
    except json_format.ParseError as error:
        raise ConfigError(
            f"{where}: {_told(str(error).strip().removesuffix('..') or 'is no model settings')}"
        ) from None
    except (ValueError, RecursionError) as error:
        raise ConfigError(f"{where}: {error}") from None


def _told(reason: str) -> str:
    """Say it in words that help: with the nearest name where one was not known."""
    if found := NO_FIELD.search(reason):
        kind, name = found.groups()
        fields = _message(kind).fields_by_name
        owner = "" if kind == ModelConfigMessage.DESCRIPTOR.full_name else f" of {_words(kind)}"
        return f"unknown field {name!r}{owner}; {_near(name, fields)}"
    if found := NO_VALUE.search(reason):
        kind, name = found[1] or found[4], found[2] or found[3]
        return f"unknown value {name}; it is one of: {', '.join(_enum(kind).values_by_name)}"
    return " ".join(reason.split())


def _near(name: str, known: Iterable[str]) -> str:
    names = list(known)
    near = get_close_matches(name, names, n=1, cutoff=0.5)
    return f"did you mean {near[0]!r}?" if near else f"known are: {', '.join(names)}"


def _field_at(text: str, line: int, column: int) -> str:
    """Name the field that the text before a place is about."""
    before = "\n".join(
        [*text.split("\n")[: max(0, line - 1)], text.split("\n")[max(0, line - 1)][: max(0, column - 1)]]
    )
    found = LAST_FIELD.search(before)
    return found[1] if found else ""


def _message(kind: str) -> Any:
    return DESCRIPTOR.pool.FindMessageTypeByName(kind)


def _enum(kind: str) -> Any:
    return DESCRIPTOR.pool.FindEnumTypeByName(kind)


def _words(kind: str) -> str:
    return kind.removeprefix(f"{DESCRIPTOR.package}.")
