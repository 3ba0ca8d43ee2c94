"""A handler for Multi Model Server."""

from typing import Any

from mms.context import Context  # type: ignore[import-not-found]
from mms.metrics.dimension import Dimension  # type: ignore[import-not-found]
from mms.service import PredictionException  # type: ignore[import-not-found]


def handle(data: Any, context: Any) -> Any:
    if data is None:
        return None
    body = data[0]["body"]
    if isinstance(body, dict) and "refuse" in body:
        raise PredictionException(body["refuse"], 513)
    if isinstance(body, dict) and "fail" in body:
        raise ValueError(body["fail"])
    context.metrics.add_metric("Buzz", 4, None, "ms", [Dimension("Wing", "left")])
    context.metrics.add_counter("Bees", 1)
    context.metrics.add_counter("Bees", 1)
    known = isinstance(context, Context), context.system_properties["server_version"], len(context.system_properties)
    return [[type(row["body"]).__name__, *known] for row in data]
