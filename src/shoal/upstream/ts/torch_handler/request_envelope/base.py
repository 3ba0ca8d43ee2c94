"""BaseEnvelope: stands between the server and a handler whose requests come in the shape of another protocol."""

from abc import ABC, abstractmethod
from collections.abc import Callable
from typing import Any


class BaseEnvelope(ABC):
    """Unwraps the rows before the handler sees them and wraps what it gives."""

    def __init__(self, handle_fn: Callable[[Any, Any], Any]) -> None:
        self._handle_fn = handle_fn
        self.context: Any = None

    def handle(self, data: list[Any], context: Any) -> Any:
        """Be the handler."""
        self.context = context
        results = self._handle_fn(self.parse_input(data), context)
        return self.format_output(results) if results else results

    @abstractmethod
    def parse_input(self, data: list[Any]) -> Any:
        """The handler's data from the server's rows."""

    @abstractmethod
    def format_output(self, data: Any) -> Any:
        """The server's rows from the handler's results."""


def body_of(row: Any) -> Any:
    """What a request brought: its `data`, else its `body`."""
    return row.get("data") or row.get("body")
