"""Gives back what it is given."""

from typing import Any


def predict(items: list[Any]) -> list[Any]:
    return items
