"""TritonError, which a response carries, and TritonModelException, which is raised."""

from enum import IntEnum
from typing import Any


class ErrorCode(IntEnum):
    """What kind of error it is."""

    UNKNOWN = 0
    INTERNAL = 1
    NOT_FOUND = 2
    INVALID_ARG = 3
    UNAVAILABLE = 4
    UNSUPPORTED = 5
    ALREADY_EXISTS = 6
    CANCELLED = 7


class TritonModelException(Exception):  # the name that models catch
    """What the functions of this package raise."""


class TritonError:
    """An error as the value of a response."""

    UNKNOWN = ErrorCode.UNKNOWN
    INTERNAL = ErrorCode.INTERNAL
    NOT_FOUND = ErrorCode.NOT_FOUND
    INVALID_ARG = ErrorCode.INVALID_ARG
    UNAVAILABLE = ErrorCode.UNAVAILABLE
    UNSUPPORTED = ErrorCode.UNSUPPORTED
    ALREADY_EXISTS = ErrorCode.ALREADY_EXISTS
    CANCELLED = ErrorCode.CANCELLED

    def __init__(self, message: str, code: Any = ErrorCode.INTERNAL) -> None:
        if not isinstance(message, str):
            raise TypeError(f"the message of a TritonError is a str, got {type(message).__name__}")
        if not isinstance(code, ErrorCode):
            raise TypeError(f"the code of a TritonError is one of TritonError.INTERNAL and its like, got {code!r}")
        self._message = message
        self._code = code

    def message(self) -> str:
        """What went wrong."""
        return self._message

    def code(self) -> ErrorCode:
        """What kind of error it is."""
        return self._code
