"""Runs of TorchServe with something switched on: metrics for Prometheus, workflows, sequences, continuous batching."""

import json

from tests.upstream.rows import ALL_READY, Row, ask, call, do, get, manage, post, row, together
from tests.upstream.tables.calls import INFERENCE

METRICS = (
    do("a prediction to count", "/predictions/echo", **{"return": "text"}),
    do("another to count", "/predictions/echo/1.0", **{"return": "text"}),
    get("an error to count", "/nowhere"),
    row("metrics", ask("GET", "/metrics", port="metrics"), look="series"),
    row(
        "two metrics by name",
        ask("GET", "/metrics?name[]=ts_inference_requests_total&name[]=Requests2XX", port="metrics"),
        look="series",
    ),
    row("a metric that is not there", ask("GET", "/metrics?name[]=nothing", port="metrics"), look="series"),
)

WORKFLOWS = (
    manage("list no workflows", "GET", "/workflows"),
    manage("register a workflow without a url", "POST", "/workflows"),
    manage("register a workflow that is not there", "POST", "/workflows?url=nothing.war"),
    manage("describe an unknown workflow", "GET", "/workflows/nobody"),
    manage("unregister an unknown workflow", "DELETE", "/workflows/nobody"),
    manage("register a workflow", "POST", "/workflows?url=line.war"),
    post("predict by a workflow", "/wfpredict/line", "hello", "text/plain"),
    manage("register it again", "POST", "/workflows?url=line.war"),
    manage("register a workflow that branches", "POST", "/workflows?url=flow.war&workflow_name=forked"),
    post("predict by branches", "/wfpredict/forked", "hello", "text/plain"),
    post("predict by a form", "/wfpredict/forked", "data=abc", "application/x-www-form-urlencoded"),
    post("a function fails", "/wfpredict/forked", "fail", "text/plain"),
    post("predict by an unknown workflow", "/wfpredict/nobody", "hello", "text/plain"),
    manage("list workflows", "GET", "/workflows"),
    manage("list one workflow", "GET", "/workflows?limit=1"),
    manage("describe a workflow", "GET", "/workflows/line"),
    manage("describe a workflow that branches", "GET", "/workflows/forked"),
    manage("the models of workflows", "GET", "/models"),
    manage("unregister a workflow", "DELETE", "/workflows/line"),
    post("predict by a workflow that left", "/wfpredict/line", "hello", "text/plain"),
    manage("another method on workflows", "PUT", "/workflows"),
)


def number(name: str, value: int, sequence: str) -> Row:
    """A number for the sum of a sequence."""
    return row(name, ask("POST", "/predictions/state", str(value), headers={"ts_request_sequence_id": sequence}))


STREAMS: tuple[Row, ...] = (
    manage("register a stateful model", "POST", "/models?url=state.mar&initial_workers=1"),
    manage("describe a stateful model", "GET", "/models/state", until=ALL_READY),
    number("a first number", 1, "one"),
    number("a second number", 2, "one"),
    number("a number elsewhere", 5, "two"),
    number("a sequence too many", 9, "three"),
    number("a third number", 3, "one"),
    call(
        "grpc sequence",
        f"{INFERENCE}/StreamPredictions2",
        *({"model_name": "state", "sequence_id": "two", "input": {"data": str(value)}} for value in (10, 20)),
    ),
    manage("register letters", "POST", "/models?url=letters.mar&initial_workers=1"),
    manage("describe letters", "GET", "/models/letters", until=ALL_READY),
    post("letters", "/predictions/letters", "abc", "text/plain"),
    together(
        "letters of several",
        *(ask("POST", "/predictions/letters", text, "text/plain") for text in ("abcd", "xy", "uvw")),
    ),
    call(
        "grpc letters", f"{INFERENCE}/StreamPredictions", {"model_name": "letters", "input": {"data": json.dumps("ab")}}
    ),
    post("one letter", "/predictions/letters", "a", "text/plain"),
)
