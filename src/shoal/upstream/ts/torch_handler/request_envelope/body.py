"""BodyEnvelope: the handler is given the bodies themselves."""

from typing import Any

from shoal.upstream.ts.torch_handler.request_envelope.base import BaseEnvelope, body_of


class BodyEnvelope(BaseEnvelope):
    """Takes each row's `data` or `body` out; results go back unchanged."""

    def parse_input(self, data: list[Any]) -> list[Any]:
        """One body per row."""
        return [body_of(row) for row in data]

    def format_output(self, data: Any) -> Any:
        """The results as they are."""
        return data
