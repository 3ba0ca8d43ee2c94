"""Trace and log settings as clients read and change them."""

import logging
from collections.abc import Callable, Mapping
from typing import Any

from shoal.errors import InvalidInput
from shoal.frontend.kserve.heads import is_natural
from shoal.frontend.kserve.status import UnknownFormat, Unsupported

Trace = dict[str, Any]
TRACE: Mapping[str, Any] = {
    "trace_level": ["OFF"],
    "trace_rate": "1000",
    "trace_count": "-1",
    "log_frequency": "0",
    "trace_file": "",
    "trace_mode": "triton",
}
LEVELS = ("TIMESTAMPS", "TENSORS")
NUMBERS = {"trace_rate": 0, "trace_count": -1, "log_frequency": 0}  # and the least of each
LOG: Mapping[str, Any] = {
    "log_file": "",
    "log_info": True,
    "log_warning": True,
    "log_error": True,
    "log_verbose_level": 0,
    "log_format": "default",
}


class TraceSettings:
    """What would be traced, for all models and for single ones. No trace is written: there is no file to write to."""

    def __init__(self) -> None:
        self._common: Trace = {}
        self._models: dict[str, Trace] = {}

    def read(self, model: str = "") -> Trace:
        """Give the settings of all models, or of one."""
        return {**TRACE, **self._common, **self._models.get(model, {})}

    def change(self, changes: Mapping[str, Any], model: str = "") -> Trace:
        """Change what is named; None means the common value again. Nothing is changed where one value is wrong."""
        checked = {name: _trace_value(name, value) for name, value in changes.items() if name in TRACE}
        held = self._models.setdefault(model, {}) if model else self._common
        for name, value in checked.items():
            if value is None:
                held.pop(name, None)
            else:
                held[name] = value
        return self.read(model)


class LogSettings:
    """What is logged; `set_level` is told the least level of what is. Without it clients change nothing."""

    def __init__(self, set_level: Callable[[int], None] | None) -> None:
        self._values = dict(LOG)
        self._set_level = set_level

    def read(self) -> dict[str, Any]:
        """Give all of them."""
        return dict(self._values)

    def change(self, changes: Mapping[str, Any]) -> dict[str, Any]:
        """Change what is named; unknown names mean nothing. Nothing is changed where one value is wrong."""
        known = {name: value for name, value in changes.items() if name in LOG}
        if known and self._set_level is None:
            raise Unsupported("what this server logs is not changed by its clients")
        for name, value in known.items():
            _check_log(name, value)
        self._values.update(known)
        if known and self._set_level is not None:
            self._set_level(level_of(self._values))
        return self.read()


def level_of(settings: Mapping[str, Any]) -> int:
    """Give the least level that is logged."""
    if settings["log_verbose_level"]:
        return logging.DEBUG
    words = (("log_info", logging.INFO), ("log_warning", logging.WARNING), ("log_error", logging.ERROR))
    return next((level for name, level in words if settings[name]), logging.CRITICAL)


def _trace_value(name: str, value: Any) -> Any:
    if value is None or name == "trace_mode":
        return None
    if name == "trace_file":
        raise Unsupported("trace file location can not be updated through network protocol")
    if name == "trace_level":
        if not isinstance(value, list) or not all(isinstance(level, str) for level in value):
            raise InvalidInput("'trace_level' is a list of OFF, TIMESTAMPS and TENSORS")
        if any(level in LEVELS for level in value):
            raise InvalidInput("Attempting to set invalid trace setting :trace file name is not given")
        return None
    if not isinstance(value, str):
        raise InvalidInput(f"'{name}' is a string that is a number, got {value!r}"[:200])
    digits = value.removeprefix("-")
    if not (digits.isdecimal() and digits.isascii() and len(digits) < 20):
        raise InvalidInput(f"Unable to parse '{name}', got: {value[:80]}")
    if int(value) < NUMBERS[name]:
        raise InvalidInput(f"Unable to parse '{name}'. Expecting value >= {NUMBERS[name]}, got:{value[:80]}")
    return value


def _check_log(name: str, value: Any) -> None:
    if name == "log_file":
        raise Unsupported("log file location can not be updated through network protocol")
    if name == "log_format":
        if value not in ("default", "ISO8601"):
            raise UnknownFormat(f"invalid argument for log_format, got: {value}"[:200])
    elif name == "log_verbose_level":
        if not is_natural(value) or value > 2**32 - 1:
            raise InvalidInput(f"'log_verbose_level' is a whole number of 0 or more, got {value!r}"[:200])
    elif not isinstance(value, bool):
        raise InvalidInput(f"expect boolean for '{name}', got {value!r}"[:200])
