"""Shoal: a model server that swims requests together. The public names, and nothing else."""

from shoal.errors import HandlerFailed, InvalidInput, ServingError
from shoal.version import __version__
from shoal.worker.handler import Context, Handler

__all__ = ["Context", "Handler", "HandlerFailed", "InvalidInput", "ServingError", "__version__"]
