"""Service: a handler's entry point with the context it is called with; and the exception that chooses a status."""

from collections.abc import Callable
from typing import Any

from shoal.upstream.mms import __version__
from shoal.upstream.mms.context import Context
from shoal.upstream.ts.utils.util import PredictionException

__all__ = ["PREDICTION_METRIC", "PredictionException", "Service"]
PREDICTION_METRIC = "PredictionTime"


class Service:
    """What a loaded handler is to its server. Batches are run by the worker, not through this object."""

    def __init__(
        self,
        model_name: str,
        model_dir: str,
        manifest: dict[str, Any] | None,
        entry_point: Callable[[Any, Context], Any],
        gpu: int | None,
        batch_size: int,
    ) -> None:
        self._entry_point = entry_point
        self._context = Context(model_name, model_dir, manifest, batch_size, gpu, __version__)

    @property
    def context(self) -> Context:
        """What the entry point is told."""
        return self._context
