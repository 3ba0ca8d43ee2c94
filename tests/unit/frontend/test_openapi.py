import re

import msgspec
import pytest

from shoal.config.model import Canary
from shoal.frontend.openapi import INFERENCE, MANAGEMENT, METRICS, describe, describe_managing, describe_model


def test_the_inference_api_is_described() -> None:
    document = describe("TorchServe APIs", "0.12.0", INFERENCE)

    assert document["openapi"] == "3.0.1"
    assert document["info"] == {"title": "TorchServe APIs", "version": "0.12.0"}
    assert list(document["paths"]) == [
        "/",
        "/ping",
        "/v1/models/{model_name}:predict",
        "/v2/models/{model_name}/infer",
        "/predictions/{model_name}",
        "/predictions/{model_name}/{model_version}",
        "/api-description",
        "/metrics",
    ]


def test_the_management_api_is_described() -> None:
    paths = describe("x", "1", MANAGEMENT)["paths"]

    assert list(paths) == [
        "/",
        "/models",
        "/models/{model_name}",
        "/models/{model_name}/{model_version}",
        "/models/{model_name}/{model_version}/set-default",
        "/models/{model_name}/{model_version}/canary",
        "/api-description",
        "/metrics",
    ]
    assert set(paths["/models/{model_name}"]) == {"get", "put", "delete", "options"}
    required = {row["name"]: row["required"] for row in paths["/models"]["post"]["parameters"]}
    assert required["url"] is True and required["batch_size"] is False


def test_a_canary_is_described_with_every_setting_it_has() -> None:
    paths = describe("x", "1", MANAGEMENT)["paths"]
    share = paths["/models/{model_name}/{model_version}/canary"]["put"]["parameters"]
    register = [row["name"] for row in paths["/models"]["post"]["parameters"]]
    settings = set(msgspec.structs.asdict(Canary()))

    assert {row["name"] for row in share if row["in"] == "query"} == settings
    assert {"replace", "canary", *(f"canary_{name}" for name in settings - {"weight"})} <= set(register)
    assert {row["name"]: row["schema"]["type"] for row in share}["weight"] == "number"
    assert len(register) == len(set(register))


def test_one_model_is_described() -> None:
    document = describe_model("m")

    assert document["info"] == {"title": "RESTful API for: m", "version": "1.0.0"}
    assert list(document["paths"])[:1] == ["/prediction/m"]
    managing = describe_managing("m")
    assert managing["info"]["title"] == "RESTful Management API for: m"
    assert list(managing["paths"])[:2] == ["/models/m", "/models/m/{model_version}"]


@pytest.mark.parametrize("operations", [INFERENCE, MANAGEMENT, [METRICS]])
def test_what_is_written_is_what_openapi_asks_for(operations: list[object]) -> None:
    seen = set()
    for path, methods in describe("x", "1", operations)["paths"].items():  # type: ignore[arg-type]  # operations
        for operation in methods.values():
            assert operation["operationId"] not in seen
            seen.add(operation["operationId"])
            assert "200" in operation["responses"]
            named = {row["name"] for row in operation["parameters"] if row["in"] == "path"}
            assert named == set(re.findall(r"{(\w+)}", path))
            for answer in operation["responses"].values():
                assert answer["description"] and all("schema" in media for media in answer["content"].values())
