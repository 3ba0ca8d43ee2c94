"""The runs of Multi Model Server: where it differs from TorchServe, and the batching handlers of its users."""

from tests.upstream.rows import ALL_READY, JSON, Run, ask, do, get, manage, multipart, post, row, together
from tests.upstream.tables.inference import ANT, BEE, CAT, FAILURES

ECHO = "/predictions/echo"
FORM = "application/x-www-form-urlencoded"

MAIN = (
    get("ping", "/ping", until='"Healthy"'),
    row("ping by post", ask("POST", "/ping", "x", "text/plain")),
    post("invocations take the only model", "/invocations", "x", "text/plain"),
    post("predict", ECHO, "hello", "text/plain"),
    get("predict by get", f"{ECHO}?colour=red"),
    row("predict by put", ask("PUT", ECHO, "hello", "text/plain")),
    post("predict with more of a path", f"{ECHO}/1.0/deep", "hello", "text/plain"),
    post("predict on an unknown model", "/predictions/nobody", "hello", "text/plain"),
    post("predict on no model", "/predictions", "hello", "text/plain"),
    post("there are no explanations", "/explanations/echo", "hello", "text/plain"),
    post("there is no kserve v1", "/v1/models/echo:predict", {"instances": [1]}),
    post("there is no kserve v2", "/v2/models/echo/infer", {"inputs": []}),
    post("invocations with a model name", "/invocations?model_name=echo", "hello", "text/plain"),
    post("invoke as a multi-model endpoint", "/models/echo/invoke", "hello", "text/plain"),
    post("invoke an unknown model", "/models/nobody/invoke", "hello", "text/plain"),
    post("the oldest predict route", "/echo/predict?colour=red", "hello", "text/plain"),
    get("an unknown path", "/nowhere"),
    get("the root", "/"),
    row("the root by options", ask("OPTIONS", "/"), look="openapi"),
    get("the description", "/api-description", look="openapi"),
    row("options of a model", ask("OPTIONS", ECHO), look="openapi"),
    row("options of an unknown model", ask("OPTIONS", "/predictions/nobody"), look="openapi"),
    post("a json object", ECHO, {"a": 1}),
    post("json with a charset", ECHO, '{"a": 1}', "application/json; charset=utf-8"),
    post("a form", ECHO, "colour=red&size=2", FORM),
    post("a multipart field", ECHO, *multipart(("data", "", "", b"hello"))),
    post("a multipart file of json", ECHO, *multipart(("data", "a.json", "application/json", b'{"a": 1}'))),
    post("a multipart file", ECHO, *multipart(("data", "a.bin", "application/octet-stream", b"\x00\xff"))),
    post("bytes", ECHO, b"\x00\xff", "application/octet-stream"),
    post("no content type", ECHO, b"plain"),
    post("headers", ECHO, "x", "text/plain", X_Custom="One"),
    *(
        do(f"the handler returns {kind}", ECHO, **{"return": kind})
        for kind in (
            "bytes",
            "bytearray",
            "text",
            "none",
            "number",
            "list",
            "nested",
        )
    ),
    do("the handler sets a type", ECHO, type="text/html", **{"return": "text"}),
    do("the handler sets headers", ECHO, headers={"X-Own": "1"}, **{"return": "text"}),
    do("the handler sets status 404", ECHO, status=404, phrase="Not Here", **{"return": "text"}),
    do("the handler says what it knows of its model", ECHO, about=True),
    *FAILURES,
    post("json that is none", ECHO, "{broken", JSON),
    post("the worker is back", ECHO, "hello", "text/plain"),
)

MANAGE = (
    manage("list", "GET", "/models"),
    manage("register without a url", "POST", "/models"),
    manage("register what is not there", "POST", "/models?url=nothing.mar"),
    manage("register a relative path", "POST", "/models?url=../store/echo.mar"),
    manage("register garbage", "POST", "/models?url=garbage.mar"),
    manage("register with a bad runtime", "POST", "/models?url=echo.mar&model_name=x&runtime=perl"),
    manage("register the same again", "POST", "/models?url=echo.mar"),
    manage("register without workers", "POST", "/models?url=echo.mar&model_name=idle"),
    manage("describe without workers", "GET", "/models/idle"),
    post("predict without workers", "/predictions/idle", "hello", "text/plain"),
    get("ping with a model without workers", "/ping", until='"Healthy"'),
    manage(
        "register with workers",
        "POST",
        "/models?url=echo.mar&model_name=full&batch_size=3&max_batch_delay=70&initial_workers=1&synchronous=true",
    ),
    manage("describe with workers", "GET", "/models/full", until=ALL_READY),
    manage("register in the background", "POST", "/models?url=echo.mar&model_name=later&initial_workers=1"),
    manage("wait for it", "GET", "/models/later", until=ALL_READY),
    row(
        "register by json",
        ask(
            "POST",
            "/models",
            {"url": "echo.mar", "model_name": "byjson", "initial_workers": 1, "synchronous": True},
            port="management",
        ),
    ),
    manage("register a tarball", "POST", "/models?url=packed.tar.gz&initial_workers=1&synchronous=true"),
    do("predict from a tarball", "/predictions/packed", about=True),
    manage("register a folder", "POST", "/models?url=folder&initial_workers=1&synchronous=true"),
    do("predict from a folder", "/predictions/folder", about=True),
    manage("register what fails in initialize", "POST", "/models?url=shy.mar&initial_workers=1&synchronous=true"),
    post("predict on what failed in initialize", "/predictions/shy", "hello", "text/plain"),
    manage("describe an unknown model", "GET", "/models/nobody"),
    manage("there are no versions", "GET", "/models/echo/1.0"),
    manage("list two", "GET", "/models?limit=2"),
    manage("list the next two", "GET", "/models?limit=2&next_page_token=2"),
    row("options of the root of management", ask("OPTIONS", "/", port="management"), look="openapi"),
    row("options of a model to manage", ask("OPTIONS", "/models/echo", port="management"), look="openapi"),
    manage("an unknown path of management", "GET", "/nowhere"),
    manage("put on all models", "PUT", "/models"),
    manage("post on one model", "POST", "/models/echo"),
    manage("scale up", "PUT", "/models/idle?min_worker=1&synchronous=true"),
    manage("scale in the background", "PUT", "/models/idle?min_worker=1"),
    manage("scale with a maximum below the minimum", "PUT", "/models/idle?min_worker=3&max_worker=1"),
    manage("scale an unknown model", "PUT", "/models/nobody?min_worker=1"),
    manage("scale to none", "PUT", "/models/idle?min_worker=0&synchronous=true"),
    manage("unregister", "DELETE", "/models/full"),
    manage("unregister again", "DELETE", "/models/full"),
    post("predict on a model that left", "/predictions/full", "hello", "text/plain"),
    manage("register what fails to load", "POST", "/models?url=broken.mar&initial_workers=1&synchronous=true"),
)

MODELS = (
    manage(
        "register for batches",
        "POST",
        "/models?url=brightness.mar&batch_size=4&max_batch_delay=1000&initial_workers=1&synchronous=true",
    ),
    together(
        "pictures in one batch, one of them bad",
        *[ask("POST", "/predictions/brightness", body, "image/jpeg") for body in (CAT, b"bad", BEE, b"")],
        look="numbers",
    ),
    together(
        "pictures in a batch that is padded",
        *[ask("POST", "/predictions/brightness", body, "image/jpeg") for body in (CAT, BEE)],
        look="numbers",
    ),
    manage(
        "register bees and ants",
        "POST",
        "/models?url=resnet18.mar&batch_size=2&max_batch_delay=1000&initial_workers=1&synchronous=true",
    ),
    together("a bee and an ant", *[ask("POST", "/predictions/resnet18", body, "image/jpeg") for body in (BEE, ANT)]),
    manage(
        "register an echo for batches",
        "POST",
        "/models?url=echo.mar&model_name=batch&batch_size=4&max_batch_delay=1000&initial_workers=1&synchronous=true",
    ),
    together("four leave as one batch", *[ask("POST", "/predictions/batch", str(i), "text/plain") for i in range(4)]),
    together(
        "rows with their own status",
        ask("POST", "/predictions/batch", {"do": {"return": "text"}}),
        ask("POST", "/predictions/batch", {"do": {"return": "nested", "status": 404, "phrase": "Not Here"}}),
        ask("POST", "/predictions/batch", {"do": {"return": "text", "status": 503}}),
        ask("POST", "/predictions/batch", {"do": {"return": "text", "type": "text/plain"}}),
    ),
)

RUNS = (
    Run("main", "mms", {"load_models": "echo.mar"}, (*MAIN, *MANAGE)),
    Run("models", "mms", {}, MODELS),
)
