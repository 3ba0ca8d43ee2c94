import asyncio
import gzip
import json
import struct
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given as hypothesis_given
from hypothesis import strategies as st

from shoal.config.model import ModelConfig
from shoal.core.model import Life
from shoal.errors import LoadFailed, ServingError
from shoal.frontend.kserve.access import Access
from shoal.frontend.kserve.describe import EXTENSIONS
from tests.unit.frontend.api_fakes import Answer
from tests.unit.frontend.kserve.bed import Bed, given, spec, tensors

FOUR = ("OUT", "FP32", [1, 4], struct.pack("<4f", 1, 2, 3, 4))


def error(answer: Answer) -> tuple[int, str]:
    assert answer.headers["content-type"] == "application/json" and list(answer.json) == ["error"]
    return answer.status, answer.json["error"]


def waited(bed: Bed, *ask: Any) -> Answer:
    async def go() -> Answer:
        answer = bed.ask(*ask)
        await asyncio.gather(*bed.routes._tasks)
        return answer

    return asyncio.run(go())


def test_a_server_tells_what_it_is() -> None:
    assert Bed().ask("/v2").json == {"name": "triton", "version": "2.51.0", "extensions": list(EXTENSIONS)}


def test_health_has_no_body() -> None:
    bed = Bed()
    model = bed.add()
    for path in ("/v2/health/live", "/v2/health/ready", "/v2/models/m/ready", "/v2/models/m/versions/1/ready"):
        assert (bed.ask(path).status, bed.ask(path).body) == (200, b"")
    model.move(Life.DRAINING)
    assert bed.ask("/v2/health/ready").status == 400 and bed.ask("/v2/health/live").status == 200
    assert error(bed.ask("/v2/models/m/ready")) == (400, "Model version not ready")
    assert bed.ask("/v2/models/nobody/ready").status == bed.ask("/v2/models/m/versions/2/ready").status == 400
    bed.is_live = False
    assert bed.ask("/v2/health/live").status == 503


@pytest.mark.parametrize(
    "target",
    [
        "/v2/",
        "/v2/x",
        "/v2/models",
        "/v2/models/m/",
        "/v2/models//infer",
        "/v2/models/m/x",
        "/v2/health",
        "/v2/models/m/versions/1/trace/setting",
        "/v2/repository/models/m",
        "/v2/systemsharedmemory/region/r",
        "/v2/systemsharedmemory/register",
    ],
)
def test_a_path_that_is_none_is_not_found(target: str) -> None:
    bed = Bed()
    bed.add()
    assert error(bed.ask(target)) == (404, "Not Found")


@pytest.mark.parametrize(
    ("target", "method"),
    [
        ("/v2", "POST"),
        ("/v2/models/m/infer", "GET"),
        ("/v2/health/live", "HEAD"),
        ("/v2/logging", "DELETE"),
        ("/v2/repository/index", "GET"),
    ],
)
def test_a_method_that_a_path_has_not_is_refused(target: str, method: str) -> None:
    bed = Bed()
    bed.add()
    answer = bed.ask(target, method=method)
    assert answer.status == 405 and answer.headers["allow"]
    assert method == "HEAD" or error(answer) == (405, "Method Not Allowed")


@pytest.mark.parametrize("target", ["/", "/v1/models/m", "/v22", "/predictions/m", "/v2x/models"])
def test_other_paths_are_somebody_elses(target: str) -> None:
    assert not Bed().routes.take(Answer(target).exchange)


@pytest.mark.parametrize("rest", ["", "/infer", "/explain", "/ready", "/config", "/stats"])
@pytest.mark.parametrize("method", ["GET", "POST", "PUT"])
def test_a_model_without_tensors_is_somebody_elses(rest: str, method: str) -> None:
    bed = Bed()
    bed.add_config(ModelConfig(name="plain", path="x"))
    assert not bed.routes.take(Answer(f"/v2/models/plain{rest}", method, b"x").exchange)


def test_a_model_tells_of_its_tensors() -> None:
    bed = Bed()
    bed.add("m", spec("IN"), spec("IN2", "BYTES", [-1], is_optional=True), version="2")
    bed.add("m", spec("IN"), version="10")
    bed.add("flat", rows=0)

    assert bed.ask("/v2/models/m").json == {
        "name": "m",
        "versions": ["2", "10"],
        "platform": "shoal",
        "inputs": [{"name": "IN", "datatype": "FP32", "shape": [-1, 4]}],
        "outputs": [{"name": "OUT", "datatype": "FP32", "shape": [-1, 4]}],
    }
    older = bed.ask("/v2/models/m/versions/2").json
    assert older["versions"] == ["2"] and [row["name"] for row in older["inputs"]] == ["IN", "IN2"]
    assert bed.ask("/v2/models/flat?x=1").json["inputs"][0]["shape"] == [4]


def test_a_configuration_is_shown_as_it_is() -> None:
    bed = Bed()
    model = bed.add()
    settings = {"name": "t", "platform": "onnxruntime_onnx", "max_batch_size": 4}
    config = {**{field: getattr(model.config, field) for field in ("path", "interface")}, "name": "t", "version": "1"}
    bed.add_config(ModelConfig(**config, settings=settings))

    assert bed.ask("/v2/models/t/config").json == settings
    assert bed.ask("/v2/models/t").json["platform"] == "onnxruntime_onnx"
    made = bed.ask("/v2/models/m/config").json
    assert (made["max_batch_size"], made["input"][0]["data_type"]) == (4, "TYPE_FP32")


@pytest.mark.parametrize("rest", ["", "/config", "/infer", "/generate"])
def test_a_model_that_is_not_there_is_not_found(rest: str) -> None:
    bed = Bed()
    bed.add("loading", ready=False)
    bed.add("m")
    body: dict[str, Any] | None = {} if rest in ("/infer", "/generate") else None

    assert error(bed.ask(f"/v2/models/x{rest}", body)) == (404, "Request for unknown model: 'x' is not found")
    assert error(bed.ask(f"/v2/models/m/versions/3{rest}", body)) == (
        404,
        "Request for unknown model: 'm' version 3 is not found",
    )
    assert error(bed.ask(f"/v2/models/loading{rest}", body)) == (
        404,
        "Request for unknown model: 'loading' has no available versions",
    )


def test_names_may_be_quoted() -> None:
    bed = Bed()
    bed.add("a-b.c")
    assert bed.ask("/v2/models/a%2Db%2Ec").json["name"] == "a-b.c"


def test_a_bare_name_means_the_highest_version_that_is_ready() -> None:
    bed = Bed()
    bed.add(version="9")
    newest = bed.add(version="10", ready=False)
    body = {"inputs": [given()]}
    bed.infer(body)
    assert len(bed.running(version="9")) == 1

    newest.move(Life.READY)
    bed.instances["m", "10"] = bed.benches["m", "10"].join()
    bed.infer(body)
    assert len(bed.running(version="10")) == 1
    newest.move(Life.DRAINING)
    bed.infer(body)
    bed.reply(tensors(FOUR), version="9")
    assert len(bed.running(version="9")) == 1


def test_a_remembered_target_is_forgotten_when_the_models_change() -> None:
    bed = Bed()
    bed.add()
    body = {"inputs": [given()]}
    bed.infer(body)
    bed.infer(body)
    bed.add(version="2")
    bed.infer(body)
    assert len(bed.running(version="2")) == 1


def test_statistics_are_of_models_that_are_ready() -> None:
    bed = Bed()
    bed.add("a")
    bed.add("b")
    bed.add("b", version="2")
    bed.add("c", ready=False)

    def names(target: str) -> list[tuple[str, str]]:
        return [(row["name"], row["version"]) for row in bed.ask(target).json["model_stats"]]

    assert names("/v2/models/stats") == [("a", "1"), ("b", "1"), ("b", "2")]
    assert names("/v2/models/b/stats") == [("b", "1"), ("b", "2")]
    assert names("/v2/models/b/versions/2/stats") == [("b", "2")]
    assert error(bed.ask("/v2/models/x/stats")) == (400, "requested model 'x' is not available")
    assert error(bed.ask("/v2/models/a/versions/7/stats")) == (
        400,
        "requested model version is not available for model 'a'",
    )


def test_the_repository_is_listed() -> None:
    bed = Bed()
    every = [
        {"name": "a", "version": "1", "state": "READY"},
        {"name": "b", "version": "1", "state": "UNAVAILABLE", "reason": "unloaded"},
        {"name": "c"},
    ]

    assert waited(bed, "/v2/repository/index", b"").json == waited(bed, "/v2/repository/any/index", {}).json == every
    assert waited(bed, "/v2/repository/index", {"ready": True}).json == every[:1]
    assert (
        error(bed.ask("/v2/repository/index", {"ready": 1}))[0]
        == error(bed.ask("/v2/repository/index", b"{"))[0]
        == 400
    )


def test_models_are_loaded_and_unloaded() -> None:
    bed = Bed()
    assert (waited(bed, "/v2/repository/models/m/load", b"").status, bed.control.told.pop()) == (200, ("load", "m", {}))
    parameters = {"config": "{}", "file:1/model.py": "YWJj"}
    waited(bed, "/v2/repository/models/m/load", {"parameters": parameters})
    assert bed.control.told.pop() == ("load", "m", {"config": "{}", "file:1/model.py": b"abc"})
    assert bed.ask("/v2/repository/models/m/unload", b"").body == b"" and bed.control.told.pop() == (
        "unload",
        "m",
        False,
    )
    bed.ask("/v2/repository/models/m/unload", {"parameters": {"unload_dependents": True}})
    assert bed.control.told == [("unload", "m", True)]


@pytest.mark.parametrize(
    ("raised", "told"),
    [
        (LoadFailed("load failed for model 'm'"), (400, "load failed for model 'm'")),
        (ServingError("failed to poll"), (500, "failed to poll")),
        (RuntimeError("secret"), (500, "the server failed on this request; its log says why")),
    ],
)
def test_a_load_that_fails_is_told(raised: Exception, told: tuple[int, str]) -> None:
    bed = Bed()
    bed.control.error = raised
    assert error(waited(bed, "/v2/repository/models/m/load", b"")) == told


@pytest.mark.parametrize("parameters", [{"x": "y"}, {"config": {}}, {"file:1/a": "***"}, {"file:1/a": 1}, 3])
def test_a_load_that_is_wrong_is_refused(parameters: Any) -> None:
    bed = Bed()
    assert error(bed.ask("/v2/repository/models/m/load", {"parameters": parameters}))[0] == 400
    assert not bed.control.told


def test_models_are_loaded_by_clients_only_where_that_is_meant() -> None:
    bed = Bed()
    assert error(bed.ask("/v2/repository/r/models/m/load", b"")) == (
        501,
        "'repository_name' specification is not supported",
    )
    bed.control.mode = "poll"
    for verb in ("load", "unload"):
        assert error(bed.ask(f"/v2/repository/models/m/{verb}", b"")) == (
            503,
            "explicit model load / unload is not allowed if polling is enabled",
        )
    assert error(bed.ask("/v2/repository/models/m/unload", {"parameters": {"unload_dependents": 1}}))[0] == 503
    assert not bed.control.told


def test_shared_memory_is_registered_and_forgotten(tmp_path: Path) -> None:
    (tmp_path / "obj").write_bytes(bytes(64))
    bed = Bed(tmp_path)
    assert bed.ask("/v2/systemsharedmemory/region/r/register", {"key": "/obj", "byte_size": 64}).body == b""
    row = {"name": "r", "key": "/obj", "offset": 0, "byte_size": 64}
    assert (
        bed.ask("/v2/systemsharedmemory/status").json == bed.ask("/v2/systemsharedmemory/region/r/status").json == [row]
    )
    assert error(bed.ask("/v2/systemsharedmemory/region/r/register", {"key": "/obj", "byte_size": 1}))[0] == 400
    assert error(bed.ask("/v2/systemsharedmemory/region/q/register", {"key": "/no", "byte_size": 1}))[0] == 500
    assert error(bed.ask("/v2/systemsharedmemory/region/q/register", {"key": "/no"})) == (
        400,
        "Shared memory register request has no 'byte_size' field",
    )
    assert error(bed.ask("/v2/systemsharedmemory/region/q/status"))[0] == 404
    assert (
        bed.ask("/v2/systemsharedmemory/region/r/unregister", b"").status
        == bed.ask("/v2/systemsharedmemory/unregister", b"").status
        == 200
    )
    assert bed.ask("/v2/systemsharedmemory/status").json == []
    off = Bed(shared_memory=False)
    assert error(off.ask("/v2/systemsharedmemory/region/r/register", {"key": "/obj", "byte_size": 1}))[0] == 501


def test_cuda_shared_memory_is_not_there_and_says_so() -> None:
    bed = Bed()
    assert (
        bed.ask("/v2/cudasharedmemory/status").json == []
        and bed.ask("/v2/cudasharedmemory/unregister", b"").status == 200
    )
    assert error(bed.ask("/v2/cudasharedmemory/region/r/register", {}))[0] == 501
    assert error(bed.ask("/v2/cudasharedmemory/region/r/status")) == (
        404,
        "Unable to find cuda shared memory region: 'r'",
    )


def test_trace_and_log_settings_are_read_and_changed() -> None:
    bed = Bed()
    bed.add()
    assert bed.ask("/v2/trace/setting", {"trace_rate": "7"}).json["trace_rate"] == "7"
    assert bed.ask("/v2/models/m/trace/setting", {"trace_rate": "8"}).json["trace_rate"] == "8"
    assert (
        bed.ask("/v2/models/m/trace/setting").json["trace_rate"] == "8"
        and bed.ask("/v2/trace/setting").json["trace_rate"] == "7"
    )
    assert (
        error(bed.ask("/v2/models/x/trace/setting"))
        == error(bed.ask("/v2/models/x/trace/setting", {}))
        == (400, "Request for unknown model : x")
    )
    assert bed.ask("/v2/logging", {"log_info": False}).json["log_info"] is False and bed.levels == [30]
    assert bed.ask("/v2/logging").json["log_info"] is False
    assert error(bed.ask("/v2/logging", {"log_format": "x"}))[0] == 503


def test_a_version_that_is_no_number_is_no_route() -> None:
    bed = Bed()
    bed.add()

    for path in ("versions/one", "versions/-1/ready", "versions//config", "versions/1x/infer"):
        assert error(bed.ask(f"/v2/models/m/{path}")) == (404, "Not Found")


def test_a_model_that_was_here_has_no_versions_and_another_is_not_found() -> None:
    bed = Bed()
    bed.desk.is_known = lambda name: name == "was"

    assert error(bed.ask("/v2/models/was")) == (404, "Request for unknown model: 'was' has no available versions")
    assert error(bed.ask("/v2/models/never")) == (404, "Request for unknown model: 'never' is not found")


def test_groups_of_routes_can_be_guarded() -> None:
    targets: list[tuple[str, Any, str]] = [
        ("/v2/health/live", None, "health"),
        ("/v2", None, "metadata"),
        ("/v2/models/m/config", None, "model-config"),
        ("/v2/models/m/stats", None, "statistics"),
        ("/v2/models/m/infer", {"inputs": [given()]}, "inference"),
        ("/v2/repository/index", b"", "model-repository"),
        ("/v2/systemsharedmemory/status", None, "shared-memory"),
        ("/v2/trace/setting", None, "trace"),
        ("/v2/logging", None, "logging"),
    ]
    for target, body, group in targets:
        bed = Bed(http=Access({group: ("key", "k")}))
        bed.add()
        assert error(bed.ask(target, body)) == (403, "This API is restricted, expecting header 'key'")
        for other, more, another in targets:
            if another not in (group, "inference", "model-repository"):  # those answer later
                assert bed.ask(other, more).status == 200
    bed = Bed(http=Access({"inference": ("key", "k")}))
    bed.add()
    body = {"inputs": [given()]}
    bed.infer(body, {"Key": "k"})
    assert bed.infer(body).status == 403, "a remembered target is guarded as well"
    assert len(bed.running()) == 1


@hypothesis_given(st.binary(max_size=40), st.sampled_from(["GET", "POST", "PUT", "HEAD"]), st.binary(max_size=20))
def test_any_target_below_v2_is_answered_and_never_with_a_500(path: bytes, method: str, body: bytes) -> None:
    bed = Bed()
    bed.add()
    target = "/v2/" + path.decode("latin-1")
    exchange = Answer(target, method, body)

    async def go() -> None:
        assert bed.routes.take(exchange.exchange)
        await asyncio.gather(*bed.routes._tasks)

    asyncio.run(go())
    assert exchange.status < 500


VERBS = ["infer", "generate", "generate_stream"]


@hypothesis_given(
    st.sampled_from(VERBS),
    st.binary(max_size=80) | st.just(json.dumps({"inputs": [given()]}).encode()),
    st.none() | st.integers(-2, 90).map(str) | st.text(max_size=3).filter(str.isascii),
    st.sampled_from(["", "gzip", "deflate", "br", "identity"]),
)
def test_any_body_is_run_or_refused_and_never_with_a_500(verb: str, body: bytes, size: str | None, packed: str) -> None:
    bed = Bed()
    bed.add()
    headers = {"Inference-Header-Content-Length": size} if size is not None else {}
    answer = bed.ask(f"/v2/models/m/{verb}", body, {**headers, "Content-Encoding": packed})

    if answer.link.sent:
        assert answer.status in (400, 501) and "error" in answer.json
    else:
        assert len(bed.running()) == 1


def test_a_body_may_come_packed() -> None:
    bed = Bed()
    bed.add()
    text = json.dumps({"inputs": [given()]}).encode()
    bed.infer(gzip.compress(text), {"Content-Encoding": "gzip"})
    assert len(bed.running()) == 1
    refused = bed.infer(text, {"Content-Encoding": "br"})
    assert (
        error(refused) == (501, "Unsupported compression type")
        and refused.headers["accept-encoding"] == "gzip, deflate"
    )
    assert error(bed.infer(text, {"Content-Encoding": "gzip"}))[0] == 400
    assert error(bed.infer(gzip.compress(bytes(2 << 20)), {"Content-Encoding": "gzip"})) == (
        400,
        "the body is larger than the 1048576 bytes allowed once it is unpacked",
    )
