"""One item at a time: what a handler's `decode` and `encode` do to a batch, whatever they raise."""

from collections.abc import Callable, Iterable
from typing import Any, Final

from shoal.errors import Unreadable

UNREADABLE: Final = (ValueError, TypeError, LookupError, OSError, EOFError, SyntaxError)  # UnicodeError is a ValueError


def decode_each(decode: Callable[[Any], Any], data: Iterable[Any]) -> list[Any]:
    """Decode item by item; an item that cannot be read is replaced by its error."""
    decoded = []
    for item in data:
        try:
            decoded.append(decode(item))
        except UNREADABLE as error:
            unreadable = Unreadable(f"the input could not be read: {type(error).__name__}: {error}")
            unreadable.__cause__ = error
            decoded.append(unreadable)
        except Exception as error:
            decoded.append(error)
    return decoded


def encode_each(encode: Callable[[Any], Any], data: Iterable[Any]) -> list[Any]:
    """Encode output by output; one that cannot be encoded is replaced by its error."""
    encoded = []
    for output in data:
        try:
            encoded.append(encode(output))
        except Exception as error:
            encoded.append(error)
    return encoded
