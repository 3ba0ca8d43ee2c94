"""timed: how long the stages of a handler take, as metrics, where the model's settings ask for it."""

import functools
import time
from collections.abc import Callable
from typing import Any


def timed(func: Callable[..., Any]) -> Callable[..., Any]:
    """Wrap a method of a handler; with `handler: {profile: true}` its time is the metric ts_handler_<its name>."""

    @functools.wraps(func)
    def wrapper(self: Any, *args: Any, **kwargs: Any) -> Any:
        if not _is_wanted(self):
            return func(self, *args, **kwargs)
        started = time.perf_counter()
        result = func(self, *args, **kwargs)
        elapsed = (time.perf_counter() - started) * 1000
        self.context.metrics.add_time(f"ts_handler_{func.__name__}", elapsed, None, "ms")
        return result

    return wrapper


def _is_wanted(handler: Any) -> bool:
    settings = getattr(getattr(handler, "context", None), "model_yaml_config", None) or {}
    section = settings.get("handler")
    return isinstance(section, dict) and bool(section.get("profile"))
