"""A module-level TorchServe handler that does what the first row's JSON asks for."""

import logging
import os
import sys
from typing import Any

from helper import KINDS  # type: ignore[import-not-found]
from ts.context import Context  # type: ignore[import-not-found]
from ts.handler_utils.utils import send_intermediate_predict_response  # type: ignore[import-not-found]
from ts.metrics.dimension import Dimension  # type: ignore[import-not-found]
from ts.metrics.metric_type_enum import MetricTypes  # type: ignore[import-not-found]
from ts.utils.util import PredictionException  # type: ignore[import-not-found]

initialised: list[Any] = []
logger = logging.getLogger(__name__)


def handle(data: Any, context: Any) -> Any:
    if data is None:
        initialised.append(context)
        logger.info("initialised quietly")
        return None
    wish = data[0].get("body")
    act = ACTS[wish["act"]] if isinstance(wish, dict) and "act" in wish else echo
    return act(data, context, wish)


def echo(data: Any, context: Any, wish: Any) -> Any:
    return [{name: f"{type(value).__name__} {value}" for name, value in row.items()} for row in data]


def refuse(data: Any, context: Any, wish: Any) -> Any:
    raise PredictionException(wish["text"], *([wish["code"]] if "code" in wish else []))


def fail(data: Any, context: Any, wish: Any) -> Any:
    raise {"value": ValueError, "memory": MemoryError, "runtime": RuntimeError}[wish["kind"]](wish["text"])


def leave(data: Any, context: Any, wish: Any) -> Any:
    print("leaving")
    sys.exit(wish["code"])


def whole(data: Any, context: Any, wish: Any) -> Any:
    gifts: dict[str, Any] = {
        "none": None,
        "dict": {},
        "tuple": ("a",) * len(data),
        "text": "a",
        "more": ["a"] * 9,
        "generator": iter("a"),
    }
    return gifts[wish["gift"]]


def give(data: Any, context: Any, wish: Any) -> Any:
    return [KINDS[row["body"]["kind"]]() for row in data]


def status(data: Any, context: Any, wish: Any) -> Any:
    context.set_response_status(404, "not this one", 1)
    context.set_response_content_type(0, "image/png")
    context.set_response_header(1, "X-Bees", 3)
    return ["fine", "missing", "fine too"][: len(data)]


def stream(data: Any, context: Any, wish: Any) -> Any:
    context.set_response_header(0, "x-first", "yes")
    for piece in wish["pieces"]:
        send_intermediate_predict_response(
            [piece] * len(data), context.request_ids, "more", wish.get("code", 200), context
        )
    return ["end"] * len(data)


def measure(data: Any, context: Any, wish: Any) -> Any:
    metrics = context.metrics
    metrics.add_counter("Bees", 2)
    metrics.add_counter("Bees", 3)
    metrics.add_time("Flight", 1.5, 0, "s")
    metrics.add_size("Hive", 7, dimensions=[Dimension("Tree", "oak")])
    metrics.add_size("Hive", 8, dimensions=[Dimension("Tree", "oak")])
    metrics.add_percent("Full", 50, metric_type=MetricTypes.HISTOGRAM)
    metrics.add_percent("Full", 50, metric_type=MetricTypes.HISTOGRAM)
    metrics.add_error("Stings", 1)
    metrics.add_counter("Bees", -1)
    own = metrics.add_metric_to_cache("Own", "count", ["Wing"])
    own.add_or_update(1, ["left"])
    own.add_or_update(1, ["left", "right"])
    return ["measured"] * len(data)


def remember(data: Any, context: Any, wish: Any) -> Any:
    context.cache = getattr(context, "cache", 0) + 1
    context.set_response_header(0, f"x-{context.cache}", "set")
    return [[context.cache, sorted(context.get_response_headers(0)), initialised == [context]]] * len(data)


def about(data: Any, context: Any, wish: Any) -> Any:
    said = {
        "name": context.model_name,
        "manifest": context.manifest["model"]["modelVersion"],
        "yaml": context.model_yaml_config,
        "properties": {key: value for key, value in context.system_properties.items() if key != "model_dir"},
        "at home": os.path.samefile(os.getcwd(), context.system_properties["model_dir"]),
        "is context": isinstance(context, Context),
        "processors": len(context.request_processor),
        "criteria": context.stopping_criteria,
        "decode": os.environ["TS_DECODE_INPUT_REQUEST"],
        "pickle": os.environ.get("SHOAL_ALLOW_PICKLE"),
        "bees": os.environ.get("BEES"),
        "path": sys.path.index(os.getcwd()),
    }
    return [said] * len(data)


def headers(data: Any, context: Any, wish: Any) -> Any:
    return [
        {
            "all": dict(context.get_all_request_header(index)),
            "id": context.get_request_id(index),
            "exact": context.get_request_header(index, "X-Bee"),
            "other case": context.get_request_header(index, "x-bee"),
            "sequence": context.get_sequence_id(index),
        }
        for index in range(len(data))
    ]


ACTS = {
    act.__name__: act for act in (refuse, fail, leave, whole, give, status, stream, measure, remember, about, headers)
}
