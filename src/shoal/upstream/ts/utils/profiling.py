"""Running a batch under torch's profiler, when the environment asks for it."""

import logging
import os
import tempfile
from typing import Any

from torch import cuda
from torch.profiler import ProfilerActivity, tensorboard_trace_handler

logger = logging.getLogger(__name__)

SWITCH = "ENABLE_TORCH_PROFILER"


def is_on() -> bool:
    """Whether the operator wants every batch profiled."""
    return bool(os.environ.get(SWITCH))


def arguments(given: dict[str, Any] | None, model: str) -> dict[str, Any]:
    """What the profiler is called with: the handler's own settings, and defaults for the rest."""
    activities = [ProfilerActivity.CPU, *([ProfilerActivity.CUDA] if cuda.is_available() else [])]
    chosen = dict(given) if given else {"activities": activities, "record_shapes": True}
    if "on_trace_ready" not in chosen:
        folder = os.path.join(tempfile.gettempdir(), "pytorch_profiler", os.path.basename(model) or "model")
        logger.info("Traces go to %s", folder)
        chosen["on_trace_ready"] = tensorboard_trace_handler(folder)
    return chosen
