"""The runs of TorchServe: one server each, with its settings and its rows."""

import json

from tests.upstream.rows import ALL_READY, Ask, Row, Run, ask, call, do, get, manage, multipart, post, row, together
from tests.upstream.tables import management, modes
from tests.upstream.tables.calls import GRPC, INFERENCE, MANAGEMENT, predict
from tests.upstream.tables.inference import (
    ANSWERS,
    BEE,
    BEFORE_A_MODEL_IS_ADDED,
    BODIES,
    CAT,
    FAILURES,
    ROUTES,
)

ONE_WORKER = {"1.0": {"defaultVersion": True, "marName": "echo.mar", "minWorkers": 1, "maxWorkers": 1}}
PLAIN = {
    "load_models": "echo.mar",
    "models": json.dumps(dict.fromkeys(("echo", "instances", "tensors"), ONE_WORKER)),
}
OPEN = {**PLAIN, "disable_token_authorization": "true", "enable_model_api": "true"}


BATCHES = (
    manage(
        "register for batches",
        "POST",
        "/models?url=echo.mar&model_name=batch&batch_size=4&max_batch_delay=1000&initial_workers=1",
    ),
    together("four leave as one batch", *[ask("POST", "/predictions/batch", str(i), "text/plain") for i in range(4)]),
    together("three leave when the delay ends", *[ask("POST", "/predictions/batch", {"n": i}) for i in range(3)]),
    together(
        "rows with their own status",
        ask("POST", "/predictions/batch", {"do": {"return": "text"}}),
        ask("POST", "/predictions/batch", {"do": {"return": "nested", "status": 404, "phrase": "Not Here"}}),
        ask("POST", "/predictions/batch", {"do": {"return": "text", "status": 503, "type": "text/plain"}}),
        ask("POST", "/predictions/batch", {"do": {"return": "bytes", "headers": {"X-Own": "1"}}}),
    ),
    together(
        "one bad row fails the batch",
        ask("POST", "/predictions/batch", {"do": {"return": "text"}}),
        ask("POST", "/predictions/batch", {"do": {"raise": "value"}}),
        ask("POST", "/predictions/batch", {"do": {"return": "text"}}),
        ask("POST", "/predictions/batch", {"do": {"return": "text"}}),
    ),
    together(
        "a refusal is everybody's",
        *[ask("POST", "/predictions/batch", {"do": {"refuse": "no", "code": 422}}) for _ in range(4)],
    ),
    together(
        "a wrong count is everybody's",
        *[ask("POST", "/predictions/batch", {"do": {"whole": "fewer"}}) for _ in range(4)],
    ),
    together(
        "pieces of a batch",
        *[ask("POST", "/predictions/batch", {"do": {"stream": [f"{i}a", f"{i}b", f"{i}c"]}}) for i in range(4)],
    ),
    do("the batch size is known", "/predictions/batch", about=True),
    manage(
        "register with no delay",
        "POST",
        "/models?url=echo.mar&model_name=swift&batch_size=2&max_batch_delay=0&initial_workers=1",
    ),
    manage("describe no delay", "GET", "/models/swift", until=ALL_READY),
)

DEATHS = (
    manage("register what will die", "POST", "/models?url=echo.mar&model_name=mortal&initial_workers=1"),
    do("the worker ends", "/predictions/mortal", exit=1),
    post("the worker is back", "/predictions/mortal", "hello", "text/plain"),
    do("the worker is killed for memory", "/predictions/mortal", exit=137),
    post("the worker is back again", "/predictions/mortal", "hello", "text/plain"),
    manage(
        "register what may not be slow",
        "POST",
        "/models?url=echo.mar&model_name=slow&initial_workers=1&response_timeout=1",
    ),
    do("the handler is too slow", "/predictions/slow", sleep=6),
)

MODELS = (
    manage("register the net", "POST", "/models?url=net.mar&initial_workers=3"),
    manage("describe the net", "GET", "/models/net", until=ALL_READY),
    manage("the net describes itself", "GET", "/models/net?customized=true"),
    post("the net on json", "/predictions/net", [1, 2, 3]),
    post("the net on bytes", "/predictions/net", "[4, -5, 6.5]"),
    post("the net on a form field", "/predictions/net", *multipart(("data", "", "", b"[0, 0, 0]"))),
    post("the net by kserve v1", "/v1/models/net:predict", {"instances": [[1, 2, 3]]}),
    post("the net explains", "/explanations/net", [1, 2, 3]),
    post("the net on what it cannot read", "/predictions/net", "three", "text/plain"),
    post("the net on too few numbers", "/predictions/net", [1, 2]),
    together("the net on a batch", *[ask("POST", "/predictions/net", [i, i, i]) for i in range(4)]),
    manage("register the net in micro batches", "POST", "/models?url=micro_net.mar&initial_workers=1"),
    together("micro batches", *[ask("POST", "/predictions/micro_net", [i, 0, 0]) for i in range(4)]),
    together(
        "micro batches and a rest", *[ask("POST", "/predictions/micro_net", [i, 0, 0], after=i / 5) for i in range(3)]
    ),
    manage("describe micro batches", "GET", "/models/micro_net", until=ALL_READY),
    manage("register the classifier", "POST", "/models?url=classifier.mar&initial_workers=1"),
    post("a cat", "/predictions/classifier", CAT, "image/jpeg", look="numbers"),
    post(
        "a bee in a form", "/predictions/classifier", *multipart(("data", "bee.jpg", "image/jpeg", BEE)), look="numbers"
    ),
    post("explain a cat", "/explanations/classifier", CAT, "image/jpeg", look="presence"),
    post("no picture", "/predictions/classifier", b"no picture"),
    manage(
        "register the classifier in micro batches",
        "POST",
        "/models?url=micro.mar&initial_workers=1&batch_size=3&max_batch_delay=5000",
    ),
    together(
        "pictures in micro batches",
        *[ask("POST", "/predictions/micro", picture, "image/jpeg") for picture in (CAT, BEE, CAT)],
        look="numbers",
    ),
)

METRICS = (
    row("metrics when they are logged", ask("GET", "/metrics", port="metrics")),
    row("options of metrics", ask("OPTIONS", "/", port="metrics"), look="openapi"),
    row("an unknown path of metrics", ask("GET", "/nowhere", port="metrics")),
    row("metrics by post", ask("POST", "/metrics", port="metrics")),
    get("metrics are not on the inference port", "/metrics"),
    manage("metrics are not on the management port", "GET", "/metrics"),
)


LAST = (
    *management.FAIL_TO_LOAD,
    call(
        "grpc register what fails to load",
        f"{MANAGEMENT}/RegisterModel",
        {"url": "broken.mar", "model_name": "rpc_broken", "initial_workers": 1, "synchronous": True},
    ),
    call("grpc describe with words", f"{MANAGEMENT}/DescribeModel", {"model_name": "echo", "customized": True}),
)

KEY = {name: f"Bearer <{name}>" for name in ("inference", "management", "API")}
TOKENS = (
    get("ping without a token", "/ping"),
    get("ping with a token", "/ping", Authorization=KEY["inference"]),
    get("ping with the other token", "/ping", Authorization=KEY["management"]),
    get("ping with a wrong token", "/ping", Authorization="Bearer wrong"),
    get("ping with a token and no bearer", "/ping", Authorization="<inference>"),
    post("predict without a token", "/predictions/echo", "hello", "text/plain"),
    post("predict with a token", "/predictions/echo", "hello", "text/plain", Authorization="Bearer <inference>"),
    post("predict on an unknown model without a token", "/predictions/nobody", "x", "text/plain"),
    get("an unknown path without a token", "/nowhere"),
    row("options of the root need no token", ask("OPTIONS", "/"), look="openapi"),
    get("the description needs no token", "/api-description", look="openapi"),
    row("metrics need no token", ask("GET", "/metrics", port="metrics")),
    manage("list without a token", "GET", "/models"),
    manage("list with a token", "GET", "/models", Authorization=KEY["management"]),
    manage("list with the other token", "GET", "/models", Authorization=KEY["inference"]),
    manage("describe with a token", "GET", "/models/echo", Authorization=KEY["management"]),
    manage("register while it is off", "POST", "/models?url=echo_two.mar", Authorization=KEY["management"]),
    manage("register while it is off, without a token", "POST", "/models?url=echo_two.mar"),
    manage("unregister while it is off", "DELETE", "/models/echo", Authorization=KEY["management"]),
    manage("scale is on", "PUT", "/models/echo?min_worker=1&synchronous=true", Authorization=KEY["management"]),
    manage("a new token without the key", "GET", "/token?type=inference"),
    manage("a new token with the wrong key", "GET", "/token?type=inference", Authorization=KEY["management"]),
    manage("a new token of a bad type", "GET", "/token?type=other", Authorization=KEY["API"]),
    manage("a new token of no type", "GET", "/token", Authorization=KEY["API"]),
    manage("a new token", "GET", "/token?type=inference", Authorization=KEY["API"]),
    get("ping with the new token", "/ping", Authorization=KEY["inference"]),
    manage("a new management token", "GET", "/token?type=management", Authorization=KEY["API"]),
    manage("list with the new token", "GET", "/models", Authorization=KEY["management"]),
    call("grpc ping without a token", f"{INFERENCE}/Ping"),
    call("grpc ping with a token", f"{INFERENCE}/Ping", token=KEY["inference"]),
    call(
        "grpc predict with a token",
        f"{INFERENCE}/Predictions",
        predict("echo", **{"return": "text"}),
        token=KEY["inference"],
    ),
    call("grpc list with the wrong token", f"{MANAGEMENT}/ListModels", {"limit": 1}, token=KEY["inference"]),
    call("grpc list with a token", f"{MANAGEMENT}/ListModels", {"limit": 1}, token=KEY["management"]),
    call(
        "grpc register while it is off", f"{MANAGEMENT}/RegisterModel", {"url": "echo_two.mar"}, token=KEY["management"]
    ),
)

TWO = {"instances": [{"a": 1}, [2, 3]]}
ENVELOPE_BODY = (
    post("body envelope", "/predictions/instances", {"a": 1}),
    post("body envelope on text", "/predictions/instances", "hello", "text/plain"),
    post("body envelope on a data field", "/predictions/instances", "data=x", "application/x-www-form-urlencoded"),
)
ENVELOPE_JSON = (
    post("json envelope", "/predictions/instances", {"instances": [{"a": 1}, {"b64": "aGVsbG8="}]}),
    post("json envelope on a list", "/predictions/instances", TWO),
    post("json envelope by kserve", "/v1/models/instances:predict", {"instances": [{"b64": "aGVsbG8="}]}),
    post("json envelope without instances", "/predictions/instances", {"a": 1}),
    post("json envelope on text", "/predictions/instances", "hello", "text/plain"),
)
ENVELOPE_KSERVE = (
    post("kserve envelope", "/v1/models/instances:predict", TWO),
    post("kserve envelope explains", "/v1/models/instances:explain", TWO),
    post("kserve envelope on another route", "/predictions/instances", TWO),
    post("kserve envelope on bytes", "/predictions/instances", json.dumps(TWO)),
    post("kserve envelope without instances", "/v1/models/instances:predict", {"a": 1}),
)
TENSOR = {"name": "x", "shape": [2, 2], "datatype": "INT64", "data": [1, 2, 3, 4]}
ENVELOPE_KSERVE_V2 = (
    post("kserve v2 envelope", "/v2/models/tensors/infer", {"id": "seven", "inputs": [TENSOR]}),
    post("kserve v2 envelope without an id", "/v2/models/tensors/infer", {"inputs": [TENSOR]}),
    post(
        "kserve v2 envelope with two inputs",
        "/v2/models/tensors/infer",
        {"id": "8", "inputs": [TENSOR, {"name": "y", "shape": [1], "datatype": "FP32", "data": [0.5]}]},
    ),
    post(
        "kserve v2 envelope on bytes",
        "/v2/models/tensors/infer",
        {"id": "9", "inputs": [{"name": "z", "shape": [1], "datatype": "BYTES", "data": ["ab"]}]},
    ),
    post(
        "kserve v2 envelope on a bad shape",
        "/v2/models/tensors/infer",
        {"id": "10", "inputs": [{**TENSOR, "shape": [3]}]},
    ),
    get("open inference metadata", "/v2"),
    get("open inference liveness", "/v2/health/live"),
    get("open inference readiness", "/v2/health/ready"),
    get("open inference readiness of a model", "/v2/models/tensors/ready"),
    get("open inference metadata of a model", "/v2/models/tensors"),
    post("open inference with a version", "/v2/models/tensors/versions/1.0/infer", {"inputs": [TENSOR]}),
)


def announced(length: int) -> bytes:
    """The head of a request that asks before it sends."""
    return b"POST /predictions/echo HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\nExpect: 100-continue\r\n\r\n" % length


LIMITS = (
    post("a body too large", "/predictions/echo", b"x" * 30_000),
    row("a body announced too large", Ask("", "", raw=announced(30_000))),
    row("a body announced", Ask("", "", raw=announced(5) + b"hello")),
    post("a body just small enough", "/predictions/echo", b'{"do": {"return": "text"}}' + b" " * 19_000),
    post("undecoded json", "/predictions/echo", {"a": 1}),
    post("undecoded text", "/predictions/echo", "hello", "text/plain"),
    row(
        "options with cors",
        ask(
            "OPTIONS",
            "/predictions/echo",
            headers={"Origin": "http://example.com", "Access-Control-Request-Method": "POST"},
        ),
        look="openapi",
    ),
    get("ping with cors", "/ping", Origin="http://example.com"),
    post("an error with cors", "/predictions/nobody", "x", "text/plain"),
    do(
        "the handler sets its own cors",
        "/predictions/echo",
        headers={"Access-Control-Allow-Origin": "own"},
        **{"return": "text"},
    ),
    together(
        "one works, one waits, one is too many",
        ask("POST", "/predictions/echo", {"do": {"sleep": 2, "return": "text"}}),
        ask("POST", "/predictions/echo", {"do": {"return": "number"}}, after=0.5),
        ask("POST", "/predictions/echo", {"do": {"return": "number"}}, after=1.0),
    ),
    do("an answer too large", "/predictions/echo", **{"return": "big"}),
    manage("the default of workers", "POST", "/models?url=echo.mar&model_name=several"),
    manage("describe the default of workers", "GET", "/models/several", until=ALL_READY),
)


def ready(model: str, token: str = "") -> Row:
    """Wait until the model that the server starts with can answer."""
    fields = {"Authorization": token} if token else {}
    wanted = ask("GET", f"/models/{model}", port="management", headers=fields)
    return row("wait for the first worker", wanted, until=ALL_READY)


def envelope(name: str, rows: tuple[Row, ...], model: str = "instances", **more: str) -> Run:
    """A run with an envelope around every handler."""
    settings = {**OPEN, "load_models": f"{model}.mar", "service_envelope": name, **more}
    return Run(f"envelope-{name}", "torchserve", settings, (ready(model), *rows))


RUNS = (
    Run(
        "main",
        "torchserve",
        OPEN,
        (
            ready("echo"),
            *BEFORE_A_MODEL_IS_ADDED,
            *ROUTES,
            *BODIES,
            *ANSWERS,
            *FAILURES,
            *management.REGISTER,
            *management.DESCRIBE,
            *management.SCALE,
            *management.DEFAULT_AND_END,
            *METRICS,
            *GRPC,
            *LAST,
        ),
    ),
    Run(
        "models",
        "torchserve",
        OPEN,
        (ready("echo"), *BATCHES, *DEATHS, *MODELS),
        flags=("--disable-token-auth", "--enable-model-api"),
    ),
    Run("tokens", "torchserve", PLAIN, (ready("echo", KEY["management"]), *TOKENS)),
    envelope("body", ENVELOPE_BODY),
    envelope("json", ENVELOPE_JSON),
    envelope("kserve", ENVELOPE_KSERVE),
    envelope("kservev2", ENVELOPE_KSERVE_V2, "tensors", ts_open_inference_protocol="true"),
    Run("workflows", "torchserve", OPEN, (ready("echo"), *modes.WORKFLOWS)),
    Run("streams", "torchserve", OPEN, (ready("echo"), *modes.STREAMS)),
    Run(
        "metrics",
        "torchserve",
        {**OPEN, "metrics_mode": "prometheus", "disable_system_metrics": "true"},
        (ready("echo"), *modes.METRICS),
    ),
    Run(
        "limits",
        "torchserve",
        {
            **OPEN,
            "max_request_size": "20000",
            "max_response_size": "100000",
            "job_queue_size": "1",
            "decode_input_request": "false",
            "default_workers_per_model": "2",
            "cors_allowed_origin": "http://example.com",
            "cors_allowed_methods": "GET, POST",
            "cors_allowed_headers": "X-Own",
        },
        (ready("echo"), *LIMITS),
    ),
)
