"""Handlers as a worker holds them: loaded from a folder, called with TorchServe's own context."""

import importlib
from collections.abc import Mapping
from pathlib import Path
from typing import Any

from shoal.upstream.ts.context import Context, RequestProcessor
from shoal.upstream.ts.utils.util import list_classes_from_module


class Metrics:
    """Keeps the times that handlers report."""

    def __init__(self) -> None:
        self.times: list[tuple[Any, ...]] = []

    def add_time(self, *args: Any) -> None:
        """Keep one."""
        self.times.append(args)


def context(
    folder: Path | str,
    described: Mapping[str, Any] | None = None,
    *,
    rows: int = 1,
    headers: Mapping[str, str] | None = None,
    settings: dict[str, Any] | None = None,
    limit: bool = True,
) -> Context:
    """What a handler is told about the model in a folder and a batch of so many rows."""
    manifest = {"model": {"modelName": "m", **(described or {})}}
    made = Context("m", str(folder), manifest, rows, None, "0.12.0", limit, Metrics(), settings or {})
    made.request_processor = [RequestProcessor(headers or {}) for _ in range(rows)]
    return made


def default_handler(name: str) -> Any:
    """A new handler from one of our modules: its only class."""
    module = importlib.import_module(f"shoal.upstream.ts.torch_handler.{name}")
    (kind,) = list_classes_from_module(module)
    return kind()
