"""Shoal: a model server that swims requests together. The public names, and nothing else.

`serve` and `batched` are looked up when they are first used, so that workers do not import the front process.
"""

from importlib import import_module
from typing import TYPE_CHECKING, Any

from shoal.errors import DeadlineExceeded, HandlerFailed, InvalidInput, QueueFull, ServingError
from shoal.version import __version__
from shoal.worker.handler import Context, Handler

if TYPE_CHECKING:
    from shoal.embedded.batched import batched
    from shoal.native import serve

__all__ = [
    "Context",
    "DeadlineExceeded",
    "Handler",
    "HandlerFailed",
    "InvalidInput",
    "QueueFull",
    "ServingError",
    "__version__",
    "batched",
    "serve",
]
_LATE = {"serve": "shoal.native", "batched": "shoal.embedded.batched"}


def __getattr__(name: str) -> Any:
    """Find the names that stand for more than a worker needs."""
    if module := _LATE.get(name):
        return getattr(import_module(module), name)
    raise AttributeError(f"module 'shoal' has no attribute {name!r}")
