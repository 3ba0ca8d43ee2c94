"""GRPCInferenceService beside inference: what each method answers, without a transport."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.model import ModelConfig
from shoal.config.proto.model_config_pb2 import ModelConfig as ModelConfigMessage
from shoal.core.model import Life
from shoal.errors import LoadFailed
from shoal.frontend.grpc.kserve import HEALTH, PREFIX, KServe
from shoal.frontend.grpc.proto import grpc_service_pb2 as pb
from shoal.frontend.grpc.proto.health_pb2 import HealthCheckRequest, HealthCheckResponse
from shoal.frontend.kserve.access import Access
from shoal.frontend.rpc import Code
from tests.unit.frontend.grpc.calling import FakeCall
from tests.unit.frontend.kserve.bed import Bed, interface, spec

METHODS = [method.removeprefix(PREFIX) for method in Bed().services if method.startswith(PREFIX)]


def call(bed: Bed, method: str, request: Any = None) -> FakeCall:
    async def go() -> FakeCall:
        message = b"" if request is None else request.SerializeToString()
        made = FakeCall(PREFIX + method).begin(bed.services, message)
        for _ in range(5):
            await asyncio.sleep(0)
        return made

    return asyncio.run(go())


def ask(bed: Bed, method: str, request: Any = None) -> Any:
    made = call(bed, method, request)
    assert made.code == Code.OK, made.status
    return getattr(pb, f"{method}Response").FromString(made.sent[0])


def refused(bed: Bed, method: str, request: Any) -> tuple[Code, str]:
    made = call(bed, method, request)
    assert made.status is not None and not made.sent
    return made.status


def test_there_is_every_method() -> None:
    assert len(METHODS) == 20 and HEALTH in Bed().services


def test_health() -> None:
    bed = Bed()
    model = bed.add()
    assert ask(bed, "ServerLive").live and ask(bed, "ServerReady").ready
    assert ask(bed, "ModelReady", pb.ModelReadyRequest(name="m")).ready
    assert not ask(bed, "ModelReady", pb.ModelReadyRequest(name="m", version="2")).ready
    assert not ask(bed, "ModelReady", pb.ModelReadyRequest(name="nobody")).ready
    assert refused(bed, "ModelReady", pb.ModelReadyRequest(name="m", version="x"))[0] == Code.INVALID_ARGUMENT
    model.move(Life.DRAINING)
    assert not ask(bed, "ServerReady").ready


@pytest.mark.parametrize("is_live", [True, False])
def test_the_common_health_check_serves_any_name_while_live(is_live: bool) -> None:
    bed = Bed()
    bed.is_live = is_live
    made = FakeCall(HEALTH).begin(bed.services, HealthCheckRequest(service="any").SerializeToString())
    assert HealthCheckResponse.FromString(made.sent[0]).status == (1 if is_live else 2)


def test_metadata() -> None:
    bed = Bed()
    bed.add("m", spec("IN", "BYTES", [-1]), version="2")
    bed.add("m", version="3")
    about = ask(bed, "ServerMetadata")
    assert (about.name, about.version) == ("triton", "2.51.0") and "statistics" in about.extensions
    told = ask(bed, "ModelMetadata", pb.ModelMetadataRequest(name="m", version="2"))
    assert (list(told.versions), told.inputs[0].datatype, list(told.inputs[0].shape)) == (["2"], "BYTES", [-1, -1])
    assert list(ask(bed, "ModelMetadata", pb.ModelMetadataRequest(name="m")).versions) == ["2", "3"]


@pytest.mark.parametrize("method", ["ModelMetadata", "ModelConfig"])
def test_a_model_that_is_not_there_is_not_found(method: str) -> None:
    bed = Bed()
    bed.add_config(ModelConfig(name="plain", path="x"))
    kind = getattr(pb, f"{method}Request")
    assert refused(bed, method, kind(name="x")) == (Code.NOT_FOUND, "Request for unknown model: 'x' is not found")
    assert refused(bed, method, kind(name="plain"))[0] == Code.UNIMPLEMENTED


def test_a_configuration_is_a_message() -> None:
    bed = Bed()
    settings = {
        "name": "t", "backend": "python", "max_batch_size": 4, "version_policy": {"latest": {"num_versions": 1}},
        "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [4]}], "a_field_of_tomorrow": 1,
        "dynamic_batching": {"preferred_batch_size": [4]},
    }  # fmt: skip
    bed.add_config(ModelConfig(name="t", version="1", path="t", interface=interface(), settings=settings))
    config = ModelConfigMessage.FromString(ask(bed, "ModelConfig", pb.ModelConfigRequest(name="t")).config)
    assert (config.name, config.max_batch_size, config.input[0].data_type) == ("t", 4, 11)
    assert list(config.dynamic_batching.preferred_batch_size) == [4]


def test_statistics_have_every_field() -> None:
    bed = Bed()
    bed.add("a")
    bed.add("b")
    (one,) = ask(bed, "ModelStatistics", pb.ModelStatisticsRequest(name="a")).model_stats
    assert (one.name, one.version) == ("a", "1") and one.inference_stats.HasField("cache_miss")
    assert [each.name for each in ask(bed, "ModelStatistics").model_stats] == ["a", "b"]
    assert refused(bed, "ModelStatistics", pb.ModelStatisticsRequest(name="x")) == (
        Code.INVALID_ARGUMENT, "requested model 'x' is not available"
    )  # fmt: skip


def test_the_repository() -> None:
    bed = Bed()
    index = ask(bed, "RepositoryIndex").models
    assert [(m.name, m.version, m.state, m.reason) for m in index] == [
        ("a", "1", "READY", ""), ("b", "1", "UNAVAILABLE", "unloaded"), ("c", "", "", "")
    ]  # fmt: skip
    assert len(ask(bed, "RepositoryIndex", pb.RepositoryIndexRequest(ready=True)).models) == 1
    load = pb.RepositoryModelLoadRequest(model_name="m")
    load.parameters["config"].string_param = "{}"
    load.parameters["file:1/a"].bytes_param = b"abc"
    ask(bed, "RepositoryModelLoad", load)
    unload = pb.RepositoryModelUnloadRequest(model_name="m")
    unload.parameters["unload_dependents"].bool_param = True
    ask(bed, "RepositoryModelUnload", unload)
    assert bed.control.told == [("load", "m", {"config": "{}", "file:1/a": b"abc"}), ("unload", "m", True)]


def test_what_cannot_be_loaded_is_told() -> None:
    bed = Bed()
    bad = pb.RepositoryModelLoadRequest(model_name="m")
    bad.parameters["config"].bytes_param = b"x"
    assert refused(bed, "RepositoryModelLoad", bad)[0] == Code.INVALID_ARGUMENT
    bad = pb.RepositoryModelLoadRequest(model_name="m")
    bad.parameters["other"].string_param = "x"
    assert refused(bed, "RepositoryModelLoad", bad)[0] == Code.INVALID_ARGUMENT
    bad_unload = pb.RepositoryModelUnloadRequest(model_name="m")
    bad_unload.parameters["unload_dependents"].int64_param = 1
    assert refused(bed, "RepositoryModelUnload", bad_unload)[0] == Code.INVALID_ARGUMENT
    assert not bed.control.told
    bed.control.error = LoadFailed("no")
    assert refused(bed, "RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="m")) == (
        Code.INVALID_ARGUMENT,
        "no",
    )
    bed.control.error = RuntimeError("secret")
    assert refused(bed, "RepositoryModelLoad", pb.RepositoryModelLoadRequest(model_name="m"))[0] == Code.INTERNAL
    bed.control.mode = "none"
    for method in ("RepositoryModelLoad", "RepositoryModelUnload"):
        kind = getattr(pb, f"{method}Request")
        assert refused(bed, method, kind(model_name="m")) == (
            Code.UNAVAILABLE, "explicit model load / unload is not allowed if polling is enabled"
        )  # fmt: skip
        assert refused(bed, method, kind(repository_name="r", model_name="m"))[0] == Code.UNIMPLEMENTED


def test_shared_memory(tmp_path: Path) -> None:
    (tmp_path / "obj").write_bytes(bytes(8))
    bed = Bed(tmp_path)
    request = pb.SystemSharedMemoryRegisterRequest(name="r", key="/obj", offset=2, byte_size=6)
    ask(bed, "SystemSharedMemoryRegister", request)
    region = ask(bed, "SystemSharedMemoryStatus").regions["r"]
    assert (region.name, region.key, region.offset, region.byte_size) == ("r", "/obj", 2, 6)
    assert refused(bed, "SystemSharedMemoryRegister", request)[0] == Code.ALREADY_EXISTS
    request.key, request.name = "/no", "q"
    assert refused(bed, "SystemSharedMemoryRegister", request)[0] == Code.INTERNAL
    ask(bed, "SystemSharedMemoryUnregister", pb.SystemSharedMemoryUnregisterRequest(name="r"))
    assert not ask(bed, "SystemSharedMemoryStatus").regions
    assert refused(bed, "SystemSharedMemoryStatus", pb.SystemSharedMemoryStatusRequest(name="r"))[0] == Code.NOT_FOUND
    assert not ask(bed, "CudaSharedMemoryStatus").regions
    ask(bed, "CudaSharedMemoryUnregister")
    assert (
        refused(bed, "CudaSharedMemoryRegister", pb.CudaSharedMemoryRegisterRequest(name="r"))[0] == Code.UNIMPLEMENTED
    )
    assert refused(bed, "CudaSharedMemoryStatus", pb.CudaSharedMemoryStatusRequest(name="r"))[0] == Code.NOT_FOUND


def trace(model: str = "", **settings: list[str]) -> pb.TraceSettingRequest:
    request = pb.TraceSettingRequest(model_name=model)
    for key, values in settings.items():
        request.settings[key].value.extend(values)
    return request


def test_trace_settings_are_read_and_changed_in_one_call() -> None:
    bed = Bed()
    bed.add()
    assert list(ask(bed, "TraceSetting").settings["trace_level"].value) == ["OFF"]
    assert list(ask(bed, "TraceSetting", trace(trace_rate=["5"], unknown=["x"])).settings["trace_rate"].value) == ["5"]
    assert list(ask(bed, "TraceSetting", trace("m", trace_rate=["9"])).settings["trace_rate"].value) == ["9"]
    request = pb.TraceSettingRequest()
    request.settings["trace_rate"].SetInParent()
    assert list(ask(bed, "TraceSetting", request).settings["trace_rate"].value) == ["1000"]
    assert refused(bed, "TraceSetting", trace(trace_rate=["1", "2"])) == (
        Code.INVALID_ARGUMENT,
        "expect only 1 value for 'trace_rate'",
    )
    assert refused(bed, "TraceSetting", trace("x"))[0] == Code.INVALID_ARGUMENT
    assert refused(bed, "TraceSetting", trace(trace_file=["x"]))[0] == Code.UNIMPLEMENTED


def test_log_settings_are_read_and_changed_in_one_call() -> None:
    bed = Bed()
    request = pb.LogSettingsRequest()
    request.settings["log_info"].bool_param = False
    request.settings["log_verbose_level"].uint32_param = 0
    request.settings["log_format"].string_param = "ISO8601"
    settings = ask(bed, "LogSettings", request).settings
    assert settings["log_info"].WhichOneof("parameter_choice") == "bool_param" and not settings["log_info"].bool_param
    assert settings["log_verbose_level"].WhichOneof("parameter_choice") == "uint32_param"
    assert settings["log_format"].string_param == "ISO8601" and bed.levels == [30]
    bad = pb.LogSettingsRequest()
    bad.settings["log_format"].string_param = "x"
    assert refused(bed, "LogSettings", bad)[0] == Code.INVALID_ARGUMENT


def test_groups_of_methods_can_be_guarded() -> None:
    groups = {
        "ServerLive": "health",
        "RepositoryIndex": "model-repository",
        "SystemSharedMemoryStatus": "shared-memory",
        "CudaSharedMemoryStatus": "shared-memory",
        "ModelStreamInfer": "inference",
        "ModelConfig": "model-config",
    }
    for method, group in groups.items():
        services = KServe(Bed(grpc=Access({group: ("triton-grpc-protocol-key", "k")})).parts).services()
        for other, another in groups.items():
            if another == group:
                made = FakeCall(PREFIX + other).begin(services, b"")
                assert made.code == Code.UNAVAILABLE and "restricted" in made.words, (method, other)
        metadata = [(b"triton-grpc-protocol-key", b"k")]
        made = FakeCall(PREFIX + method, metadata=metadata)
        if method not in ("RepositoryIndex", "ModelStreamInfer"):
            assert made.begin(services, b"").code != Code.UNAVAILABLE
    services = KServe(Bed(grpc=Access({"inference": ("key", "k")})).parts).services()
    assert FakeCall(PREFIX + "ServerLive").begin(services, b"").code == Code.OK


@given(st.binary(max_size=60))
@pytest.mark.parametrize("method", METHODS)
def test_any_message_is_answered_or_refused(method: str, message: bytes) -> None:
    bed = Bed()
    bed.add()

    async def go() -> FakeCall:
        made = FakeCall(PREFIX + method).begin(bed.services, message)
        for _ in range(5):
            await asyncio.sleep(0)
        return made

    made = asyncio.run(go())
    assert made.code not in (Code.UNKNOWN, Code.INTERNAL) or "shared memory region" in made.words
    assert made.code is not None or len(bed.running()) == 1


def test_the_messages_have_upstreams_numbers() -> None:
    numbers: dict[Any, dict[str, int]] = {
        pb.InferParameter: {"bool_param": 1, "int64_param": 2, "string_param": 3, "double_param": 4, "uint64_param": 5},
        pb.ModelInferRequest: {
            "model_name": 1,
            "model_version": 2,
            "id": 3,
            "parameters": 4,
            "inputs": 5,
            "outputs": 6,
            "raw_input_contents": 7,
        },
        pb.ModelInferResponse: {
            "model_name": 1,
            "model_version": 2,
            "id": 3,
            "parameters": 4,
            "outputs": 5,
            "raw_output_contents": 6,
        },
        pb.ModelStreamInferResponse: {"error_message": 1, "infer_response": 2},
        pb.ModelStatistics: {
            "name": 1,
            "version": 2,
            "last_inference": 3,
            "inference_count": 4,
            "execution_count": 5,
            "inference_stats": 6,
            "batch_stats": 7,
            "memory_usage": 8,
            "response_stats": 9,
        },
        pb.InferStatistics: {
            "success": 1,
            "fail": 2,
            "queue": 3,
            "compute_input": 4,
            "compute_infer": 5,
            "compute_output": 6,
            "cache_hit": 7,
            "cache_miss": 8,
        },
        pb.InferResponseStatistics: {
            "compute_infer": 1,
            "compute_output": 2,
            "success": 3,
            "fail": 4,
            "empty_response": 5,
            "cancel": 6,
        },
        pb.SystemSharedMemoryRegisterRequest: {"name": 1, "key": 2, "offset": 3, "byte_size": 4},
        pb.CudaSharedMemoryRegisterRequest: {"name": 1, "raw_handle": 2, "device_id": 3, "byte_size": 4},
        pb.TraceSettingRequest: {"settings": 1, "model_name": 2},
        pb.RepositoryModelLoadRequest: {"repository_name": 1, "model_name": 2, "parameters": 3},
    }
    for kind, fields in numbers.items():
        assert {field.name: field.number for field in kind.DESCRIPTOR.fields} == fields
    assert pb.ModelInferRequest.DESCRIPTOR.full_name == "inference.ModelInferRequest"
