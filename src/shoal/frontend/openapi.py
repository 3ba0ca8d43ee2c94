"""OpenAPI descriptions of the APIs: one table of operations, written out as a document."""

from collections.abc import Iterable, Mapping
from typing import Any, NamedTuple

OPENAPI = "3.0.1"
ERROR = {
    "type": "object",
    "required": ["code", "type", "message"],
    "properties": {
        "code": {"type": "integer", "description": "The status again."},
        "type": {"type": "string", "description": "The kind of error."},
        "message": {"type": "string", "description": "What was wrong."},
    },
}
STATUS = {"type": "object", "required": ["status"], "properties": {"status": {"type": "string"}}}
DOCUMENT = {"type": "object", "description": "An OpenAPI document."}
OBJECT: dict[str, Any] = {"type": "object"}
BINARY = {"type": "string", "format": "binary"}


class Operation(NamedTuple):
    """One method of one path."""

    path: str
    method: str
    id: str
    summary: str
    answer: Mapping[str, Any] = STATUS
    query: tuple[tuple[str, str, str], ...] = ()  # name, type, meaning; a name that ends in `!` is required
    errors: tuple[int, ...] = (500,)
    takes_body: bool = False
    media: str = "application/json"


ABOUT = (
    Operation("/", "options", "apiDescription", "Describe this API.", DOCUMENT),
    Operation("/api-description", "get", "api-description", "Describe this API.", DOCUMENT),
)
METRICS = Operation(
    "/metrics",
    "get",
    "metrics",
    "Give the metrics in Prometheus' text form.",
    {"type": "string"},
    (("name[]", "string", "Only the metrics of this name; may be repeated."),),
    media="text/plain; version=0.0.4; charset=utf-8",
)
SERVING_ERRORS = (400, 404, 413, 500, 503, 507)
INFERENCE = (
    ABOUT[0],
    Operation("/ping", "get", "ping", "Say whether the models can answer."),
    Operation("/v1/models/{model_name}:predict", "post", "predict_v1", "Run a prediction, KServe's first form.",
              OBJECT, errors=SERVING_ERRORS, takes_body=True),
    Operation("/v2/models/{model_name}/infer", "post", "infer_v2", "Run a prediction, KServe's second form.",
              OBJECT, errors=SERVING_ERRORS, takes_body=True),
    Operation("/predictions/{model_name}", "post", "predictions", "Run a prediction on the default version.",
              BINARY, errors=SERVING_ERRORS, takes_body=True, media="*/*"),
    Operation("/predictions/{model_name}/{model_version}", "post", "version_predictions",
              "Run a prediction on a version.", BINARY, errors=SERVING_ERRORS, takes_body=True, media="*/*"),
    ABOUT[1],
    METRICS,
)  # fmt: skip
SCALING = (
    ("min_worker", "integer", "The fewest workers; 1 when missing, 0 stops all."),
    ("max_worker", "integer", "The most workers; as min_worker when missing."),
    ("synchronous", "boolean", "Wait until the workers are up; false when missing."),
)
REGISTERING = (
    ("url!", "string", "Where the archive is: a name in the model store, or a URL that is allowed."),
    ("model_name", "string", "The model's name; the archive's own when missing."),
    ("handler", "string", "The entry point; the archive's own when missing."),
    ("runtime", "string", "The runtime; the archive's own when missing."),
    ("batch_size", "integer", "The largest batch."),
    ("max_batch_delay", "integer", "The longest wait for a batch to fill, in milliseconds."),
    ("initial_workers", "integer", "Workers to start."),
    ("synchronous", "boolean", "Wait until the workers are up; true when missing."),
    ("response_timeout", "integer", "Seconds a batch may take."),
    ("startup_timeout", "integer", "Seconds that loading may take."),
)
WEIGHT = ("weight", "number", "Percent of these requests; 0 ends it, 10 when missing.")
CANARY = (
    ("sticky", "boolean", "Requests of one client's address go the same way; false when missing."),
    ("min_requests", "integer", "Requests of the new version before it is judged; 20 when missing."),
    ("max_errors", "number", "Percentage points by which more of its requests may fail; 5 when missing."),
    ("max_slowdown", "number", "Times the old version's time that it may take, 0 for any; 2 when missing."),
    ("window", "number", "Seconds that are looked back; 60 when missing."),
)
ROLLING = (
    ("model_version", "string", "The version; the archive's own when missing."),
    ("replace", "boolean", "Take the place of the version that the bare name means, once loaded; false when missing."),
    ("canary", "number", "Percent of the requests that name no version, which this one shall have."),
    *((f"canary_{name}", kind, f"Of a canary. {meaning}") for name, kind, meaning in CANARY),
)
PAGE = (
    ("limit", "integer", "The most models to list; 100 when missing."),
    ("next_page_token", "integer", "Where to go on, as the page before said."),
)
CUSTOMIZED = (("customized", "boolean", "Ask the handler to describe itself as well."),)
ONE_MODEL = (
    Operation(
        "/models/{model_name}",
        "get",
        "describeModel",
        "Describe the default version.",
        {"type": "array", "items": OBJECT},
        CUSTOMIZED,
        (404, 500, 503),
    ),
    Operation(
        "/models/{model_name}",
        "put",
        "setAutoScale",
        "Set how many workers the default version has.",
        STATUS,
        SCALING,
        (400, 404, 500, 507),
    ),
    Operation(
        "/models/{model_name}",
        "delete",
        "unregisterModel",
        "Remove the default version.",
        STATUS,
        (),
        (403, 404, 405, 408, 500),
    ),
    Operation("/models/{model_name}", "options", "modelDescription", "Describe this model's API.", DOCUMENT),
)
ONE_VERSION = tuple(
    operation._replace(
        path="/models/{model_name}/{model_version}",
        id=f"version_{operation.id}",
        summary=operation.summary.replace("the default version", "a version"),
    )
    for operation in ONE_MODEL
)
MANAGEMENT = (
    ABOUT[0],
    Operation("/models", "get", "listModels", "List the models.", OBJECT, PAGE),
    Operation("/models", "post", "registerModel", "Register a model.", STATUS, (*REGISTERING, *ROLLING),
              (400, 404, 405, 409, 500, 507)),
    *ONE_MODEL,
    *ONE_VERSION,
    Operation("/models/{model_name}/{model_version}/set-default", "put", "setDefault",
              "Choose the version that the bare name means.", STATUS, (), (404, 500)),
    Operation("/models/{model_name}/{model_version}/canary", "put", "setCanary",
              "Change a version's share of the requests that name no version.", STATUS, (WEIGHT, *CANARY),
              (400, 404, 500)),
    ABOUT[1],
    METRICS,
)  # fmt: skip


def describe(title: str, version: str, operations: Iterable[Operation]) -> dict[str, Any]:
    """Write the document of these operations."""
    paths: dict[str, dict[str, Any]] = {}
    for operation in operations:
        paths.setdefault(operation.path, {})[operation.method] = _operation(operation)
    return {"openapi": OPENAPI, "info": {"title": title, "version": version}, "paths": paths}


def describe_model(name: str) -> dict[str, Any]:
    """Write the document of one model's predictions."""
    of_model = next(operation for operation in INFERENCE if operation.id == "predictions")
    one = of_model._replace(path=f"/prediction/{name}", id="predict", summary=f"Run a prediction on {name}.")
    kserve = [operation for operation in INFERENCE if operation.id in ("predict_v1", "infer_v2")]
    return describe(f"RESTful API for: {name}", "1.0.0", [one, *kserve])


def describe_managing(name: str) -> dict[str, Any]:
    """Write the document of what can be done with one model."""
    here = [
        operation._replace(path=operation.path.replace("{model_name}", name))
        for operation in MANAGEMENT
        if operation.path.startswith("/models/")
    ]
    return describe(f"RESTful Management API for: {name}", "1.0.0", here)


def _operation(operation: Operation) -> dict[str, Any]:
    errors = {str(code): _answer("What was wrong.", "application/json", ERROR) for code in operation.errors}
    found: dict[str, Any] = {
        "summary": operation.summary,
        "operationId": operation.id,
        "parameters": [*_path_parameters(operation.path), *map(_query_parameter, operation.query)],
        "responses": {"200": _answer("Done.", operation.media, operation.answer), **errors},
    }
    if operation.takes_body:
        content = {kind: {"schema": BINARY} for kind in ("*/*", "application/json", "multipart/form-data")}
        found["requestBody"] = {"description": "What the model is to work on.", "content": content, "required": True}
    return found


def _answer(text: str, media: str, schema: Mapping[str, Any]) -> dict[str, Any]:
    return {"description": text, "content": {media: {"schema": schema}}}


def _path_parameters(path: str) -> list[dict[str, Any]]:
    names = [name for name in ("model_name", "model_version") if f"{{{name}}}" in path]
    return [{"in": "path", "name": name, "required": True, "schema": {"type": "string"}} for name in names]


def _query_parameter(parameter: tuple[str, str, str]) -> dict[str, Any]:
    name, kind, meaning = parameter
    return {
        "in": "query",
        "name": name.removesuffix("!"),
        "description": meaning,
        "required": name.endswith("!"),
        "schema": {"type": kind},
    }
