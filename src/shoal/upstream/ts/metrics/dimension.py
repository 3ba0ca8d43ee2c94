"""Dimension: one label of a metric and its value."""

from typing import Any


class Dimension:
    """A label."""

    def __init__(self, name: str, value: Any) -> None:
        self.name = name
        self.value = value

    def __str__(self) -> str:
        return f"{self.name}:{self.value}"

    def to_dict(self) -> dict[str, Any]:
        """The label as it is written in JSON."""
        return {"Name": self.name, "Value": self.value}
