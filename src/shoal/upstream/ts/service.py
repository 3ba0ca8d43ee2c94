"""Service: a handler's entry point with the context it is called with; and the exception that chooses a status."""

from collections.abc import Callable
from typing import Any

from shoal.upstream.ts import __version__
from shoal.upstream.ts.context import Context
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
        limit_max_image_pixels: bool = True,
        metrics_cache: Any = None,
    ) -> None:
        self._entry_point = entry_point
        self._context = Context(
            model_name, model_dir, manifest, batch_size, gpu, __version__, limit_max_image_pixels, metrics_cache
        )

    @property
    def context(self) -> Context:
        """What the entry point is told."""
        return self._context
