"""The smallest model: every caller gets back what it sent.

shoal serve examples/echo.py
curl -X POST http://127.0.0.1:8080/predictions/echo -d hello
"""

from typing import Any


def predict(items: list[Any]) -> list[Any]:
    return items
