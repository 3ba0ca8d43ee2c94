import uuid
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import pytest

from shoal.core.request import Request
from shoal.errors import HandlerFailed, QueueFull, WorkerDied
from shoal.frontend import mms
from shoal.frontend.mms import MOST_ROUTES
from shoal.frontend.tokens import Tokens
from shoal.payload import Part, Result
from tests.unit.frontend.api_fakes import Answer, Desk
from tests.unit.frontend.http_fakes import Loan

FORM = "application/x-www-form-urlencoded"


def row(request: Request) -> dict[str, tuple[str, bytes]]:
    return {part.name: (part.content_type, bytes(part.data)) for part in parts(request)}  # type: ignore[arg-type]


def parts(request: Request) -> Sequence[Part]:
    return request.payload.parts


def desk_with(compat: str = "", **fields: Any) -> Desk:
    desk = Desk(compat)
    desk.add("m", **fields)
    return desk


@pytest.mark.parametrize(
    "target",
    ["/predictions/m", "/predictions/m/", "/predictions/m/1.0", "/v1/models/m:predict", "/v2/models/m/infer",
     "/models/m/invoke", "/m/predict", "/m/1.0/predict", "/invocations?model_name=m", "http://h/predictions/m"],
)  # fmt: skip
@pytest.mark.parametrize("method", ["GET", "POST", "PUT", "DELETE", "PATCH"])
def test_every_inference_route_reaches_the_model_with_any_method(target: str, method: str) -> None:
    desk = desk_with("torchserve")
    answer = desk.ask(target, Result(b"yes"), method=method, body=b"x", content_type="text/plain")

    assert (answer.status, answer.body) == (200, b"yes")
    assert row(desk.asked())["body"] == ("text/plain", b"x")


def test_a_small_prediction_leaves_with_others_of_its_batch() -> None:
    desk = desk_with("torchserve")
    answer = desk.ask("/predictions/m", body=b"x")
    batch = desk.asked().batch
    assert batch is not None
    together = batch.together = []
    batch.deliver(0, Result(b"yes"), True, 1.0)
    assert together == [answer.exchange]
    assert not answer.link.sent

    answer.exchange.leave()
    assert (answer.status, answer.body) == (200, b"yes")


@pytest.mark.parametrize(
    "target", ["/explanations/m", "/explanations/m/1.0", "/v1/models/m:explain", "/v2/models/m/explain"]
)
def test_explanations_are_told_apart_and_never_share_a_batch(target: str) -> None:
    desk = desk_with()
    desk.ask(target)
    explaining = desk.asked()
    desk.ask("/predictions/m")
    plain = desk.asked()

    assert (b"explain", b"True") in explaining.payload.headers
    assert explaining.group is not None and plain.group is None
    assert all(name != b"explain" for name, _ in plain.payload.headers)


def test_a_torchserve_handler_hears_what_its_route_says() -> None:
    desk = desk_with("torchserve", flavour="torchserve")
    desk.ask("/predictions/m/1.0/a/b", headers={"X-Mine": "1"}, body=b"x")
    headers = list(desk.asked().payload.headers)

    assert headers[-2:] == [(b"explain", b"False"), (b"url_path", b"a/b")]
    assert (b"X-Mine", b"1") in headers


def test_a_request_without_a_body_has_a_length_to_its_handler() -> None:
    desk = desk_with("torchserve", flavour="torchserve")
    desk.ask("/predictions/m", method="GET")
    assert (b"content-length", b"0") in desk.asked().payload.headers
    desk.ask("/predictions/m", method="GET", headers={"Content-Length": "0"})
    assert (b"content-length", b"0") not in desk.asked().payload.headers


def test_answers_have_the_content_type_they_were_given_and_only_so_many_are_remembered(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(mms, "CONTENT_TYPES", remembered := {"application/json": b"Content-Type: application/json\r\n"})
    desk = desk_with()
    for kind in ["a/b", "a/b", "a/" + 300 * "b", *(f"c/{number}" for number in range(300)), "a/b", "c/299"]:
        answer = desk.ask("/predictions/m", Result(b"x", kind), body=b"x", content_type="text/plain")
        assert answer.headers["content-type"] == kind
    assert len(remembered) == mms.MOST_TYPES
    assert all(len(line) <= mms.LONGEST_TYPE for line in remembered.values())


def test_a_remembered_target_is_forgotten_when_the_models_change() -> None:
    desk = desk_with()
    desk.ask("/predictions/m", Result(b"one"))
    desk.add("m", "2.0")
    desk.repository.set_default("m", "2.0")
    desk.ask("/predictions/m")

    assert desk.asked("m", "2.0").state.value == "running"


def test_targets_are_remembered_in_bounds() -> None:
    desk = desk_with()
    for number in range(MOST_ROUTES + 10):
        desk.ask(f"/predictions/m?{number}")
        desk.asked()

    assert len(desk.inference._targets) <= MOST_ROUTES


@pytest.mark.parametrize(
    ("target", "error"),
    [
        ("/predictions/n", (404, "ModelNotFoundException", "Model not found: n")),
        ("/predictions/m/9", (404, "ModelVersionNotFoundException", "Model version: 9 does not exist for model: m")),
        ("/invocations", (400, "BadRequestException", "Parameter model_name is required.")),
        ("/models/n/invoke", (404, "ModelNotFoundException", "Model not found: n")),
        *(
            (path, (404, "ResourceNotFoundException", "Requested resource is not found, please refer to API document."))
            for path in ("/predictions", "/models/x/other", "/x", "/v1/models/m", "/v2", "/v2/health/live")
        ),
    ],
)
def test_a_wrong_address_is_told_so(target: str, error: tuple[int, str, str]) -> None:
    assert desk_with("torchserve").ask(target).error == error


def test_query_parameters_are_input_only_where_upstream_takes_them() -> None:
    desk = desk_with("torchserve")
    for target in ("/models/m/invoke?a=1&b=%FF&a=2", "/m/predict?a=2&b=%FF", "/invocations?model_name=m&a=2&b=%FF"):
        desk.ask(target, body=b"x")
        found = row(desk.asked())
        assert found["a"] == ("", b"2") and found["b"] == ("", b"\xff") and found["body"] == ("", b"x")
    desk.ask("/predictions/m?a=1")
    assert row(desk.asked()) == {"body": ("", b"")}


def test_the_body_wins_over_a_parameter_of_its_name() -> None:
    desk = desk_with("torchserve")
    desk.ask("/m/predict?body=query&a=query", body=b"a=form", content_type=FORM)
    assert row(desk.asked()) == {"body": ("", b"query"), "a": ("", b"form")}
    desk.ask("/m/predict?body=query", body=b"real")
    assert row(desk.asked()) == {"body": ("", b"real")}


def test_an_invocation_names_its_model_or_means_the_only_one_that_was_there_at_the_start() -> None:
    desk = Desk("torchserve")
    desk.add("m")
    desk.add("first", loaded_at_startup=True)
    desk.ask("/invocations", body=b"x")
    assert desk.asked("first").state.value == "running"
    desk.ask("/invocations?model_name=m")
    assert desk.asked("m").state.value == "running"
    desk.add("second", loaded_at_startup=True)
    assert desk.ask("/invocations").error[0] == 400


@pytest.mark.parametrize(
    ("content_type", "body"),
    [
        (FORM, b"model_name=m&x=1"),
        (
            "multipart/form-data; boundary=B",
            b'--B\r\nContent-Disposition: form-data; name="model_name"\r\n\r\nm\r\n'
            b'--B\r\nContent-Disposition: form-data; name="x"\r\n\r\n1\r\n--B--\r\n',
        ),
    ],
)
def test_an_invocation_may_name_its_model_in_a_form(content_type: str, body: bytes) -> None:
    desk = desk_with("torchserve")
    desk.add("n")
    desk.ask("/invocations", body=body, content_type=content_type)
    assert row(desk.asked()) == {"model_name": ("", b"m"), "x": ("", b"1")}
    desk.ask("/invocations", body=body.replace(b"\nm\r", b"\nn\r").replace(b"=m", b"=n"), content_type=content_type)
    assert row(desk.asked("n"))["x"] == ("", b"1")  # the target alone was not remembered

    mms = desk_with("mms")
    assert mms.ask("/invocations", body=body, content_type=content_type).error[0] == 400


@pytest.mark.parametrize(
    ("body", "fields"),
    [
        ('{"größe": 1}'.encode(), {}),
        (b"a=1&b=&c", {"a": ("", b"1"), "b": ("", b"")}),
        (b"x&a=1", {"x": ("", b""), "a": ("", b"1")}),
        ("a=größe".encode(), {"a": ("", "größe".encode())}),
    ],
)
def test_a_form_that_is_none_is_read_as_far_as_it_goes_upstream_and_refused_here(
    body: bytes, fields: dict[str, tuple[str, bytes]]
) -> None:
    desk = desk_with("torchserve")
    desk.ask("/predictions/m", body=body, content_type=FORM)
    assert row(desk.asked()) == fields
    assert desk_with().ask("/predictions/m", body=body, content_type=FORM).status == 400


def test_multipart_without_a_boundary_is_one_value_upstream_and_refused_here() -> None:
    desk = desk_with("torchserve")
    desk.ask("/predictions/m", body=b"x", content_type="multipart/form-data")
    assert row(desk.asked()) == {"body": ("multipart/form-data", b"x")}
    assert desk_with().ask("/predictions/m", body=b"x", content_type="multipart/form-data").status == 400


def test_a_success_in_upstreams_words_has_no_phrase_and_no_type_of_its_own() -> None:
    answer = desk_with("torchserve").ask("/predictions/m", Result(b"yes"), headers={"x-request-id": "mine"})

    assert answer.status_line == b"HTTP/1.1 200 "
    assert "content-type" not in answer.headers
    assert uuid.UUID(answer.headers["x-request-id"]).version == 4
    assert answer.headers["pragma"] == "no-cache"
    assert answer.headers["server-timing"].startswith("queue;dur=250.000, preprocess;dur=1.000")


def test_a_success_of_our_own_keeps_the_clients_id() -> None:
    desk = desk_with()
    answer = Answer("/predictions/m")
    answer.exchange.request_id = b"mine"
    desk.inference.predict(answer.exchange)
    desk.asked().batch.deliver(0, Result(b"yes", "text/plain"), True, 1.0)  # type: ignore[union-attr]  # running

    assert answer.status_line == b"HTTP/1.1 200 OK"
    assert answer.headers["x-request-id"] == "mine"
    assert answer.headers["content-type"] == "text/plain"
    assert "pragma" not in answer.headers


@pytest.mark.parametrize("compat", ["", "torchserve"])
def test_what_a_handler_says_of_its_answer_is_sent(compat: str) -> None:
    result = Result(
        b"no",
        status=429,
        reason="Slow Down",
        headers=[("X-Mine", "1"), ("Cache-Control", "mine"), ("Content-Length", "77"), ("Content-Type", "a/b")],
    )
    answer = desk_with(compat).ask("/predictions/m", result)

    assert answer.status_line == b"HTTP/1.1 429 Slow Down"
    assert answer.body == b"no"
    assert answer.headers["x-mine"] == "1"
    assert answer.headers["cache-control"] == "mine"
    assert answer.headers["content-length"] == "2"
    assert answer.headers["content-type"] == "a/b"


def test_a_handlers_own_origin_header_wins() -> None:
    desk = Desk("torchserve", cors_origin="*")
    desk.add("m")
    assert desk.ask("/predictions/m", Result(b"")).headers["access-control-allow-origin"] == "*"
    own = Result(b"", headers=[("access-control-allow-origin", "http://mine")])
    assert desk.ask("/predictions/m", own).headers["access-control-allow-origin"] == "http://mine"


def test_a_stream_comes_in_chunks_with_the_workers_mark() -> None:
    first = Result(b"one", headers=[("ts_stream_next", "true")])
    answer = desk_with("torchserve").ask("/predictions/m", first, Result(b"two"))

    assert answer.status_line == b"HTTP/1.1 200 "
    assert answer.headers["ts_stream_next"] == "true"
    assert answer.headers["transfer-encoding"] == "chunked"
    assert answer.body == b"3\r\none\r\n3\r\ntwo\r\n0\r\n\r\n"


def test_an_error_inside_a_stream_cuts_the_connection() -> None:
    answer = desk_with("torchserve").ask("/predictions/m", Result(b"one"), HandlerFailed("late"))

    assert answer.link.aborted and answer.link.sent.count(b"HTTP/1.1") == 1


def test_a_failure_is_answered_with_the_id_of_its_request() -> None:
    answer = desk_with("torchserve").ask("/predictions/m", WorkerDied("x"))

    assert answer.error == (500, "InternalServerException", "Worker died.")
    assert uuid.UUID(answer.headers["x-request-id"]).version == 4
    assert answer.link.keep is True


def test_whoever_finds_no_place_hears_the_version_only_if_it_asked_for_one() -> None:
    desk = Desk("torchserve", limit=1)
    desk.add("m")
    desk.ask("/predictions/m")

    assert desk.ask("/predictions/m").error[2].startswith('Model "m" has no worker')
    refused = desk.ask("/predictions/m/1.0")
    assert refused.error[2].startswith('Model "m" Version 1.0" has no worker')
    assert refused.headers["retry-after"] == "7"
    idle = Desk("mms")
    idle.add("m", workers=0)
    assert "Consider increasing job queue size" in idle.ask("/predictions/m").error[2]


def test_tracebacks_are_for_developers() -> None:
    error = HandlerFailed("x", traceback="line 1")
    desk = Desk("torchserve", development=True)
    desk.add("m")

    assert desk.ask("/predictions/m", error).json["traceback"] == "line 1"
    assert "traceback" not in desk_with("torchserve").ask("/predictions/m", error).json


@pytest.mark.parametrize("target", ["/predictions/n", "/x", "/ping", "/predictions/m?OPTIONS"])
def test_lent_memory_comes_back_when_nobody_reads_it(target: str) -> None:
    loan = Loan(5)
    desk = desk_with()
    method = "OPTIONS" if "OPTIONS" in target else "POST"
    answer = Answer(target, body=loan, method=method)
    if not desk.inference.predict(answer.exchange) and not desk.inference.others(answer.exchange):
        answer.exchange.drop_body()

    assert loan.released == 1


def test_options_describe_the_model() -> None:
    desk = desk_with("torchserve")
    answer = desk.ask("/predictions/m", method="OPTIONS")

    assert answer.status == 200
    assert answer.json["info"] == {"title": "RESTful API for: m", "version": "1.0.0"}
    assert list(answer.json["paths"]) == [
        "/prediction/m",
        "/v1/models/{model_name}:predict",
        "/v2/models/{model_name}/infer",
    ]
    assert desk.ask("/predictions/n", method="OPTIONS").status == 404


def test_the_open_inference_routes_are_there_when_asked_for() -> None:
    desk = Desk("torchserve", open_inference=True)
    desk.add("m")
    about = desk.ask("/v2", method="GET").json

    assert (about["name"], about["version"]) == ("Torchserve", "0.12.0")
    assert about["extenstion"] == about["extensions"] == ["kserve", "kubeflow"]
    assert desk.ask("/v2/health/live", method="GET").json == {"live": True}
    assert desk.ask("/v2/health/ready/", method="GET").json == {"ready": True}
    refused = desk.ask("/v2/models/m/versions/1/infer")
    assert (refused.status, refused.json) == (501, {"error": "Model versioning is not yet supported."})
    assert desk.ask("/v2/models/m/ready").status == 404
    assert desk.ask("/v2/models/m/infer", Result(b"y")).body == b"y"


@pytest.mark.parametrize("target", ["/predictions/m", "/ping", "/predictions/unknown", "/m/predict"])
def test_where_there_are_tokens_every_inference_route_asks_for_one(target: str, tmp_path: Path) -> None:
    tokens = Tokens(str(tmp_path / "keys"), 60.0, lambda: 0.0)
    desk = Desk("torchserve", tokens=tokens)
    desk.add("m")
    key = tokens._keys["inference"].text
    refused = desk.ask(target)

    assert refused.error == (
        400,
        "InvalidKeyException",
        "Token Authorization failed. Token either incorrect, expired, or not provided correctly",
    )
    allowed = Answer(target, headers={"Authorization": f"Bearer {key}"})
    if not desk.inference.predict(allowed.exchange):
        desk.inference.others(allowed.exchange)
    assert not allowed.link.sent or allowed.status in (200, 404)
    if target == "/predictions/m":
        again = desk.ask(target)  # a remembered target is guarded all the same
        assert again.status == 400


def test_a_queue_that_is_full_says_so_in_our_own_words_too() -> None:
    desk = Desk(limit=1)
    desk.add("m")
    desk.ask("/predictions/m")

    assert desk.ask("/predictions/m").error[2] == str(QueueFull("m", 1, 1.0))
