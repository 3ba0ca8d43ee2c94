import json
from pathlib import Path

import pytest

from shoal.errors import InvalidInput, LoadFailed
from shoal.frontend.tokens import Tokens
from tests.unit.frontend.api_fakes import Answer, Desk, failing
from tests.unit.frontend.http_fakes import Loan

NOT_ALLOWED = "Requested method is not allowed, please refer to API document."
JSON = "application/json"


def desk_with(compat: str = "torchserve") -> Desk:
    desk = Desk(compat)
    desk.add("m", "1.0", url="m.mar")
    desk.add("m", "2.0", url="m2.mar")
    return desk


@pytest.mark.parametrize(
    ("method", "target", "status", "body"),
    [
        ("GET", "/models", 200, {"models": [{"modelName": "m", "modelUrl": "m.mar"}]}),
        ("GET", "/models/?limit=1", 200, {"nextPageToken": "1", "models": [{"modelName": "m", "modelUrl": "m.mar"}]}),
        ("GET", "/models?limit=x&next_page_token=y", 200, {"models": [{"modelName": "m", "modelUrl": "m.mar"}]}),
        ("POST", "/models?url=n.mar&model_name=n", 200,
         {"status": 'Model "n" Version: 1.0 registered with 1 initial workers'}),
        ("POST", "/models?url=n.mar&model_name=n&synchronous=false", 202, {"status": "Processing worker updates..."}),
        ("PUT", "/models/m?min_worker=2&synchronous=true", 200, {"status": "Workers scaled to 2 for model: m"}),
        ("PUT", "/models/m/2.0?min_worker=2&synchronous=true", 200,
         {"status": "Workers scaled to 2 for model: m, version: 2.0"}),
        ("PUT", "/models/m?min_worker=2&synchronous=true&model_version=2.0", 200,
         {"status": "Workers scaled to 2 for model: m, version: 2.0"}),
        ("PUT", "/models/m?min_worker=2", 202, {"status": "Processing worker updates..."}),
        ("PUT", "/models/m/2.0/set-default", 200,
         {"status": 'Default version successfully updated for model "m" to "2.0"'}),
        ("DELETE", "/models/m/2.0?synchronous=false&timeout=1", 200, {"status": 'Model "m" unregistered'}),
        ("GET", "/v1/models/m", 200, {"name": "m", "ready": True}),
    ],
)  # fmt: skip
def test_each_route_does_what_it_says(method: str, target: str, status: int, body: object) -> None:
    answer = desk_with().manage(target, method)

    assert (answer.status, answer.json) == (status, body)
    assert answer.headers["pragma"] == "no-cache"
    assert answer.headers["content-type"] == JSON


@pytest.mark.parametrize(
    ("method", "target", "error"),
    [
        ("GET", "/models/n", (404, "ModelNotFoundException", "Model not found: n")),
        ("GET", "/models/n/all", (404, "ModelNotFoundException", "Model not found: n")),
        ("GET", "/models/m/9", (404, "ModelVersionNotFoundException", "Model version: 9 does not exist for model: m")),
        ("PUT", "/models/n", (404, "ModelNotFoundException", "Model not found: n")),
        ("PUT", "/models/m/9/set-default",
         (404, "ModelVersionNotFoundException", "Model version 9 does not exist for model m")),
        ("DELETE", "/models/n", (404, "ModelNotFoundException", "Model not found: n")),
        ("DELETE", "/models/m", (403, "InvalidModelVersionException", "Cannot remove default version for model m")),
        ("POST", "/models?model_name=m", (409, "ConflictStatusException",
                                          "Model version 1.0 is already registered for model m")),
        ("PUT", "/models/m?min_worker=3&max_worker=2",
         (400, "BadRequestException", "max_worker cannot be less than min_worker.")),
        ("PUT", "/models/m?min_worker=-1", (500, "IndexOutOfBoundsException", "min_worker must be 0 or more, got -1")),
        ("GET", "/v1/models/n", (404, "ModelNotFoundException", "Model not found: n")),
        ("OPTIONS", "/models/n", (404, "ModelNotFoundException", "Model not found: n")),
        *((method, target, (405, "MethodNotAllowedException", NOT_ALLOWED)) for method, target in (
            ("PUT", "/models"), ("DELETE", "/models"), ("OPTIONS", "/models"), ("POST", "/models/m"),
            ("POST", "/models/m/1.0"), ("GET", "/models/m/1.0/set-default"), ("POST", "/v1/models/m"),
        )),
        *(("GET", target, (404, "ResourceNotFoundException",
                           "Requested resource is not found, please refer to API document."))
          for target in ("/models/m/1.0/other", "/models/m/1.0/set-default/x", "/x", "/v1/models/m:predict",
                         "/token?type=inference")),
    ],
)  # fmt: skip
def test_each_mistake_is_told_in_upstreams_words(method: str, target: str, error: tuple[int, str, str]) -> None:
    assert desk_with().manage(target, method).error == error


def test_a_description_is_a_list_of_versions() -> None:
    desk = desk_with()

    assert [row["modelVersion"] for row in desk.manage("/models/m").json] == ["1.0"]
    assert [row["modelVersion"] for row in desk.manage("/models/m/2.0").json] == ["2.0"]
    assert [row["modelVersion"] for row in desk.manage("/models/m/all").json] == ["1.0", "2.0"]


def test_a_model_that_cannot_be_loaded_says_why_to_whoever_registers_it() -> None:
    desk = Desk("torchserve")
    desk.on_built = failing(LoadFailed("handler.py, line 3: No module named 'torhc'", "the traceback"))
    answer = desk.manage("/models?url=x", "POST")

    assert answer.error == (
        500,
        "InternalServerException",
        "Failed to start workers for model m version: 1.0: handler.py, line 3: No module named 'torhc'",
    )
    assert "traceback" not in answer.json


def test_the_handler_is_asked_where_the_query_says_so() -> None:
    desk = Desk("torchserve")
    desk.add("m", workers=0)

    assert desk.manage("/models/m?customized=false").status == 200
    assert desk.manage("/models/m?customized=True").error == (
        503,
        "ServiceUnavailableException",
        'Model "m" has no worker to serve describe request. Please use scale workers API to add workers.',
    )
    assert desk.manage("/models/m/all?customized=true").status == 200


def test_a_registration_in_json_is_read_from_the_body_alone() -> None:
    desk = Desk("torchserve")
    body = {"model_name": "n", "url": "n.mar", "initial_workers": 2, "synchronous": True, "s3_sse_kms": None}
    answer = desk.manage("/models?model_name=q", "POST", body=json.dumps(body).encode(), content_type=JSON)

    assert answer.status == 200
    assert desk.intake.asked == [{"model_name": "n", "url": "n.mar", "initial_workers": "2", "synchronous": "true"}]


def test_a_large_body_is_read_and_its_memory_given_back() -> None:
    desk, loan = Desk("torchserve"), Loan(20)
    loan.view[:] = b'{"model_name":"n"}  '
    answer = desk.manage("/models", "POST", body=loan, content_type=JSON)

    assert answer.status == 200
    assert loan.released == 1


@pytest.mark.parametrize("body", [b"{broken", b"[]", b'{"a": [1]}', b"", b"\xff"])
def test_a_body_that_is_no_json_object_is_refused(body: bytes) -> None:
    answer = Desk("torchserve").manage("/models", "POST", body=body, content_type=JSON)

    assert answer.error[:2] == (400, "BadRequestException")


def test_mms_counts_time_outs_of_a_query_in_minutes_and_of_a_body_in_seconds() -> None:
    desk = Desk("mms")
    desk.manage("/models?model_name=a&response_timeout=2", "POST")
    desk.manage("/models", "POST", body=b'{"model_name": "b", "response_timeout": 2}', content_type=JSON)
    desk.manage("/models?model_name=c&response_timeout=x", "POST")

    assert [asked.get("response_timeout") for asked in desk.intake.asked] == ["120", "2", None]


def test_mms_has_no_versions() -> None:
    desk = Desk("mms")
    desk.add("m", url="m.mar")

    assert desk.manage("/models/m").json["modelName"] == "m"
    for method, target in (("GET", "/models/m/1.0"), ("GET", "/models/m/all"), ("PUT", "/models/m/1.0/set-default"),
                           ("GET", "/v1/models/m")):  # fmt: skip
        assert desk.manage(target, method).status == 404
    assert desk.manage("/models/m?min_worker=2&synchronous=true", "PUT").json == {"status": "Workers scaled"}
    assert desk.manage("/models?url=x&model_name=m", "POST").error[2] == "Model m is already registered."
    assert desk.manage("/models/m", "DELETE").json == {"status": 'Model "m" unregistered'}


def test_without_the_model_api_models_are_only_looked_at_and_scaled() -> None:
    desk = Desk("torchserve", model_api=False)
    desk.add("m")

    assert desk.manage("/models?url=x", "POST").error == (405, "MethodNotAllowedException", NOT_ALLOWED)
    assert desk.manage("/models/m", "DELETE").error == (405, "MethodNotAllowedException", NOT_ALLOWED)
    assert desk.manage("/models").status == desk.manage("/models/m").status == 200
    assert desk.manage("/models/m?min_worker=2&synchronous=true", "PUT").status == 200


def test_numbers_that_are_none_are_refused_in_our_own_words() -> None:
    desk = desk_with("")

    assert desk.manage("/models?limit=x").error[:2] == (400, "BadRequestException")
    assert desk.manage("/models/m?min_worker=x", "PUT").status == 400
    assert desk.manage("/models/m?min_worker=-1", "PUT").status == 400
    assert "POST" in desk.manage("/models", "PUT").error[2]


@pytest.mark.parametrize("compat", ["", "torchserve"])
def test_pages_of_other_origins_may_not_manage_unless_they_are_allowed_to(compat: str) -> None:
    desk = Desk(compat)
    desk.add("m")
    evil = {"Origin": "http://evil.example"}

    assert desk.manage("/models/m", "DELETE", headers=evil).status == 403
    assert desk.manage("/models/m", headers={"Origin": "http://here:8081"}).status == 200
    assert desk.manage("/models/m", "OPTIONS", headers=evil).status == 200  # it changes nothing
    friendly = Desk(compat, cors_origin="http://evil.example")
    friendly.add("m")
    answer = friendly.manage("/models/m", headers=evil)
    assert answer.status == 200 and answer.headers["access-control-allow-origin"] == "http://evil.example"
    assert friendly.manage("/models/m", headers={"Origin": "http://other"}).status == 403


def test_options_describe_what_can_be_done_with_a_model() -> None:
    desk = desk_with()

    for target in ("/models/m", "/models/m/2.0"):
        answer = desk.manage(target, "OPTIONS")
        assert answer.json["info"]["title"] == "RESTful Management API for: m"


class Guarded:
    """A server with tokens."""

    def __init__(self, folder: Path, compat: str = "torchserve") -> None:
        self.tokens = Tokens(str(folder / "keys"), 60.0, lambda: 0.0)
        self.tokens.start()
        self.path = folder / "keys"
        self.desk = Desk(compat, tokens=self.tokens)
        self.desk.add("m")

    def key(self, name: str) -> dict[str, str]:
        return {"Authorization": f"Bearer {json.loads(self.path.read_text())[name]['key']}"}


@pytest.mark.parametrize("target", ["/models", "/models/m", "/models/unknown", "/v1/models/m"])
def test_management_needs_its_own_key(target: str, tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    text = "Token Authorization failed. Token either incorrect, expired, or not provided correctly"

    for headers in (None, guarded.key("inference"), guarded.key("API")):
        assert guarded.desk.manage(target, headers=headers).error == (400, "InvalidKeyException", text)
    assert guarded.desk.manage(target, headers=guarded.key("management")).status in (200, 404)
    assert Guarded(tmp_path, "").desk.manage(target).status == 401


def test_a_new_key_is_made_for_whoever_has_the_api_key(tmp_path: Path) -> None:
    guarded = Guarded(tmp_path)
    old = guarded.key("management")
    answer = guarded.desk.manage("/token?type=management", headers=guarded.key("API"))

    assert (answer.status, answer.body) == (200, b"\n")
    assert guarded.desk.manage("/models", headers=old).status == 400
    assert guarded.desk.manage("/models", headers=guarded.key("management")).status == 200
    for target, headers in (
        ("/token?type=x", guarded.key("API")),
        ("/token", guarded.key("API")),
        ("/token?type=management", guarded.key("management")),
        ("/token?type=inference", None),
    ):
        refused = guarded.desk.manage(target, headers=headers)
        assert refused.error[:2] == (400, "InvalidKeyException")
        assert refused.error[2].startswith("Token Authentication failed.")
    assert guarded.desk.manage("/token?type=inference", "POST", headers=guarded.key("API")).status == 405


def test_a_query_beyond_measure_is_refused() -> None:
    answer = Desk("torchserve").manage("/models?" + "&".join(f"a{n}=1" for n in range(300)), "POST")

    assert answer.error[:2] == (400, "BadRequestException")


def test_what_nobody_thought_of_is_a_plain_error(caplog: pytest.LogCaptureFixture) -> None:
    desk = Desk("torchserve")

    async def prepare(parameters: object) -> None:
        raise RuntimeError("a secret")

    desk.intake.prepare = prepare  # type: ignore[method-assign,assignment]  # a mistake of the server
    answer = desk.manage("/models?url=x", "POST")

    assert answer.error == (500, "InternalServerException", "internal error, see the log")
    assert "a secret" in caplog.text


def test_what_the_intake_refuses_is_told_to_the_client() -> None:
    desk = Desk("torchserve")

    async def prepare(parameters: object) -> None:
        raise InvalidInput("Parameter url is required.")

    desk.intake.prepare = prepare  # type: ignore[method-assign,assignment]  # what the real one says
    answer = desk.manage("/models", "POST")

    assert answer.error == (400, "BadRequestException", "Parameter url is required.")
    assert desk.intake.discarded == []


def test_an_answer_belongs_to_its_exchange() -> None:
    answer = Answer("/elsewhere", "GET")

    assert Desk().management.manage(answer.exchange) is False
    assert answer.link.sent == b""
