"""Predictions over HTTP: every route, how bodies reach the handler, how its answers leave."""

from pathlib import Path

from tests.upstream.rows import Ask, ask, do, get, manage, multipart, post, row

ECHO = "/predictions/echo"
BEFORE_A_MODEL_IS_ADDED = (  # while exactly one model was loaded at the start
    get("ping", "/ping"),
    row("ping by post", ask("POST", "/ping", "x", "text/plain")),
    row("ping by put", ask("PUT", "/ping")),
    post("invocations take the only model", "/invocations", "x", "text/plain"),
    get("invocations with a query", "/invocations?colour=red&size=2"),
    manage("register a second version", "POST", "/models?url=echo_two.mar&initial_workers=1&synchronous=true"),
)

ROUTES = (
    post("predict", ECHO, "hello", "text/plain"),
    get("predict by get", ECHO),
    row("predict by put", ask("PUT", ECHO, "hello", "text/plain")),
    row("predict by delete", ask("DELETE", ECHO)),
    row("predict by patch", ask("PATCH", ECHO, "hello", "text/plain")),
    post("predict with a trailing slash", f"{ECHO}/", "hello", "text/plain"),
    post("predict with a version", f"{ECHO}/1.0", "hello", "text/plain"),
    post("predict with the other version", f"{ECHO}/2.0", "hello", "text/plain"),
    post("predict with a version and more of a path", f"{ECHO}/1.0/deep/er", "hello", "text/plain"),
    post("predict with a query", f"{ECHO}?colour=red", "hello", "text/plain"),
    post("predict on an unknown model", "/predictions/nobody", "hello", "text/plain"),
    post("predict on an unknown version", f"{ECHO}/9.9", "hello", "text/plain"),
    post("predict on no model", "/predictions", "hello", "text/plain"),
    post("predict on an empty model", "/predictions/", "hello", "text/plain"),
    post("explain", "/explanations/echo", "hello", "text/plain"),
    post("explain with a version", "/explanations/echo/1.0", "hello", "text/plain"),
    post("explain on an unknown model", "/explanations/nobody", "hello", "text/plain"),
    post("kserve v1 predict", "/v1/models/echo:predict", {"instances": [1]}),
    post("kserve v1 explain", "/v1/models/echo:explain", {"instances": [1]}),
    post("kserve v1 on an unknown model", "/v1/models/nobody:predict", {"instances": [1]}),
    post("kserve v1 with an unknown verb", "/v1/models/echo:dance", {"instances": [1]}),
    get("kserve v1 readiness on the inference port", "/v1/models/echo"),
    post("kserve v2 infer", "/v2/models/echo/infer", {"inputs": []}),
    post("kserve v2 explain", "/v2/models/echo/explain", {"inputs": []}),
    post("kserve v2 on an unknown model", "/v2/models/nobody/infer", {"inputs": []}),
    get("kserve v2 metadata is off", "/v2"),
    get("kserve v2 liveness is off", "/v2/health/live"),
    post("invocations with a model name", "/invocations?model_name=echo", "hello", "text/plain"),
    post("invocations with an unknown model", "/invocations?model_name=nobody", "hello", "text/plain"),
    post(
        "invocations with the model in a form",
        "/invocations",
        "model_name=echo&colour=red",
        "application/x-www-form-urlencoded",
    ),
    post("invoke as a multi-model endpoint", "/models/echo/invoke", "hello", "text/plain"),
    post("invoke with a query", "/models/echo/invoke?colour=red", "hello", "text/plain"),
    post("invoke an unknown model", "/models/nobody/invoke", "hello", "text/plain"),
    post("another verb than invoke", "/models/echo/dance", "hello", "text/plain"),
    post("the oldest predict route", "/echo/predict", "hello", "text/plain"),
    post("the oldest predict route with a query", "/echo/predict?colour=red", "hello", "text/plain"),
    post("the oldest predict route with a version", "/echo/1.0/predict", "hello", "text/plain"),
    post("the oldest predict route on an unknown model", "/nobody/predict", "hello", "text/plain"),
    get("an unknown path", "/nowhere"),
    post("an unknown path by post", "/no/where/at/all", "x", "text/plain"),
    get("the root", "/"),
    row("the root by options", ask("OPTIONS", "/"), look="openapi"),
    get("the description", "/api-description", look="openapi"),
    row("options of a model", ask("OPTIONS", ECHO), look="openapi"),
    row("options of a version", ask("OPTIONS", f"{ECHO}/1.0"), look="openapi"),
    row("options of an unknown model", ask("OPTIONS", "/predictions/nobody"), look="openapi"),
    get("models are not on the inference port", "/models"),
    get("a workflow that is not there", "/wfpredict/nobody"),
    row("no http", Ask("", "", raw=b"hello there\r\n\r\n"), look="presence"),
)

BODIES = (
    post("a json object", ECHO, {"a": [1, 2.5, None, "é"]}),
    post("a json list", ECHO, [1, 2]),
    post("a json string", ECHO, '"text"', "application/json"),
    post("json with a charset", ECHO, '{"a": 1}', "application/json; charset=utf-8"),
    post("json in capitals", ECHO, '{"a": 1}', "Application/JSON"),
    post("json that is none", ECHO, "{broken", "application/json"),
    post("json of no bytes", ECHO, "", "application/json"),
    post("json of another kind", ECHO, '{"a": 1}', "application/vnd.api+json"),
    post("text", ECHO, "grüße", "text/plain; charset=utf-8"),
    post("text as csv", ECHO, "a,b\n1,2", "text/csv"),
    post("text that is not utf-8", ECHO, b"\xff\xfe", "text/plain"),
    post("bytes", ECHO, b"\x00\xff", "application/octet-stream"),
    post("an image's type", ECHO, b"\x89PNG", "image/png"),
    post("no content type", ECHO, b"plain"),
    post("no body", ECHO),
    post("a form", ECHO, "colour=red&size=2", "application/x-www-form-urlencoded"),
    post("a form with a name twice", ECHO, "a=1&a=2", "application/x-www-form-urlencoded"),
    post("a form with escapes", ECHO, "a=%C3%A9+b&empty=", "application/x-www-form-urlencoded"),
    post("a multipart field", ECHO, *multipart(("data", "", "", b"hello"))),
    post("a multipart field that says json", ECHO, *multipart(("data", "", "application/json", b'{"a": 1}'))),
    post("a multipart file", ECHO, *multipart(("data", "a.bin", "application/octet-stream", b"\x00\xff"))),
    post("a multipart file of json", ECHO, *multipart(("data", "a.json", "application/json", b'{"a": 1}'))),
    post("a multipart file of text", ECHO, *multipart(("data", "a.txt", "text/plain", b"hello"))),
    post("a multipart file without a type", ECHO, *multipart(("data", "a.bin", "", b"hello"))),
    post("several multipart parts", ECHO, *multipart(("a", "", "", b"1"), ("b", "b.txt", "text/plain", b"two"))),
    post("a multipart name twice", ECHO, *multipart(("a", "", "", b"1"), ("a", "", "", b"2"))),
    post("headers in their own case", ECHO, "x", "text/plain", X_Custom="One", lower_case="two"),
    post("a request id of the client", ECHO, "x", "text/plain", x_request_id="mine"),
    post("a form on another route", "/invocations?model_name=echo", *multipart(("data", "", "", b"hello"))),
)

ANSWERS = (
    *(
        do(f"the handler returns {kind}", ECHO, **{"return": kind})
        for kind in (
            "bytes",
            "bytearray",
            "text",
            "empty",
            "none",
            "number",
            "float",
            "true",
            "list",
            "nested",
            "nan",
        )
    ),
    post("the handler returns a tensor", ECHO, {"do": {"return": "tensor"}}, look="presence"),
    do("the handler sets a type", ECHO, type="text/html", **{"return": "text"}),
    do("the handler sets headers", ECHO, headers={"X-Own": "1", "x-second": "two"}, **{"return": "text"}),
    do("the handler sets a known header", ECHO, headers={"Cache-Control": "max-age=5"}, **{"return": "text"}),
    do("the handler sets status 201", ECHO, status=201, phrase="Made", **{"return": "text"}),
    do("the handler sets status 404", ECHO, status=404, phrase="Not Here", **{"return": "nested"}),
    do("the handler sets status 418", ECHO, status=418, **{"return": "text"}),
    do("the handler sets status 500", ECHO, status=500, phrase="Oh", **{"return": "text"}),
    do("the handler says what it knows of its model", ECHO, about=True),
    do("the second version says what it knows", f"{ECHO}/2.0", about=True),
    do("an answer in pieces", ECHO, stream=["one ", "two ", "three"]),
    do("an answer in one piece", ECHO, stream=["one"]),
    do("an answer in pieces with headers", ECHO, stream=["a", "b"], headers={"X-Own": "1"}, type="text/plain"),
    do("pieces of json", ECHO, stream=[{"a": 1}, {"b": 2}]),
)

FAILURES = (
    do("a refusal", ECHO, refuse="too bad"),
    do("a refusal with a code", ECHO, refuse="too many", code=429),
    do("a refusal with an own code", ECHO, refuse="odd", code=513),
    do("a refusal with code 599", ECHO, refuse="odder", code=599),
    do("a refusal with code 413", ECHO, refuse="large", code=413),
    do("a refusal with code 404", ECHO, refuse="not here", code=404),
    do("an error", ECHO, **{"raise": "value"}),
    do("an error in another class", ECHO, **{"raise": "key"}),
    do("out of memory", ECHO, **{"raise": "memory"}),
    do("out of CUDA memory", ECHO, **{"raise": "runtime"}, text="CUDA out of memory"),
    do("a runtime error", ECHO, **{"raise": "runtime"}),
    *(
        do(f"the handler returns {kind} for the batch", ECHO, whole=kind)
        for kind in (
            "dict",
            "text",
            "none",
            "tuple",
            "more",
            "fewer",
        )
    ),
    do("an object", ECHO, **{"return": "object"}),
    do("a set", ECHO, **{"return": "set"}),
    post("the model is as before", ECHO, "hello", "text/plain"),
)

SAMPLES = Path(__file__).parents[3] / "src/shoal/frontend/pages/samples"
CAT = (SAMPLES / "cat.jpg").read_bytes()
BEE = (SAMPLES / "bee.jpg").read_bytes()
ANT = (SAMPLES / "ant.png").read_bytes()
