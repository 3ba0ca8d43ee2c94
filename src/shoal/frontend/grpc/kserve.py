"""GRPCInferenceService: everything that is under /v2 over HTTP, as gRPC's clients of Triton call it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Final

from google.protobuf import json_format

from shoal.config.proto.model_config_pb2 import ModelConfig as ModelConfigMessage
from shoal.errors import InvalidInput, ServingError
from shoal.frontend.grpc.calls import encode, one_message, parse
from shoal.frontend.grpc.kserve_calls import Stream, Unary
from shoal.frontend.grpc.proto import grpc_service_pb2 as messages
from shoal.frontend.grpc.proto.health_pb2 import HealthCheckRequest, HealthCheckResponse
from shoal.frontend.grpc.repeats import Repeats
from shoal.frontend.kserve.access import Access
from shoal.frontend.kserve.control import check_explicit, list_models
from shoal.frontend.kserve.describe import model_config, model_metadata, server_metadata
from shoal.frontend.kserve.desk import Desk
from shoal.frontend.kserve.parts import Parts
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.routes import NO_CUDA
from shoal.frontend.kserve.status import NotThere, Unsupported, explain
from shoal.frontend.rpc import Call, Code, Service

log = logging.getLogger("shoal.kserve")
PREFIX: Final = "/inference.GRPCInferenceService/"
HEALTH: Final = "/grpc.health.v1.Health/Check"
GROUPS: Mapping[str, str] = {
    "ServerLive": "health",
    "ServerReady": "health",
    "ModelReady": "health",
    "ServerMetadata": "metadata",
    "ModelMetadata": "metadata",
    "ModelInfer": "inference",
    "ModelStreamInfer": "inference",
    "ModelConfig": "model-config",
    "ModelStatistics": "statistics",
    "TraceSetting": "trace",
    "LogSettings": "logging",
}


class KServe:
    """The service. Its parts are those of the routes over HTTP, and shared with them."""

    def __init__(self, parts: Parts) -> None:
        self._desk = parts.desk
        self._control = parts.control
        self._statistics = parts.statistics
        self._about = parts.about
        self._trace = parts.trace
        self._logs = parts.logs
        self._access = parts.grpc
        self.repeats = Repeats()
        self._tasks: set[asyncio.Task[None]] = set()

    def services(self) -> dict[str, Service]:
        """Give each method by its path."""
        answers: dict[str, Callable[[Any], Any]] = {
            "ServerLive": lambda _: messages.ServerLiveResponse(live=self._about.is_live()),
            "ServerReady": lambda _: messages.ServerReadyResponse(ready=self._about.is_ready()),
            "ModelReady": self._model_ready,
            "ServerMetadata": self._server_metadata,
            "ModelMetadata": self._model_metadata,
            "ModelConfig": self._model_config,
            "ModelStatistics": self._model_statistics,
            "SystemSharedMemoryStatus": self._memory_status,
            "SystemSharedMemoryRegister": self._memory_register,
            "SystemSharedMemoryUnregister": self._memory_unregister,
            "CudaSharedMemoryStatus": _cuda_status,
            "CudaSharedMemoryRegister": _no_cuda,
            "CudaSharedMemoryUnregister": lambda _: messages.CudaSharedMemoryUnregisterResponse(),
            "TraceSetting": self._trace_setting,
            "LogSettings": self._log_settings,
        }
        methods: dict[str, Service] = {
            name: _method(getattr(messages, f"{name}Request"), answer) for name, answer in answers.items()
        }
        methods["RepositoryIndex"] = self._task(messages.RepositoryIndexRequest, self._index)
        methods["RepositoryModelLoad"] = self._task(messages.RepositoryModelLoadRequest, self._load)
        methods["RepositoryModelUnload"] = self._task(messages.RepositoryModelUnloadRequest, self._unload)
        methods["ModelInfer"] = lambda call: _start(Unary, call, self)
        methods["ModelStreamInfer"] = lambda call: _start(Stream, call, self)
        services = {PREFIX + name: self._guarded(name, service) for name, service in methods.items()}
        return {**services, HEALTH: self._guarded("ServerLive", _method(HealthCheckRequest, self._health))}

    def find(self, name: str, version: str) -> Plan:
        """Find a model as a message names it."""
        return self._desk.find(name, _version(version))

    @property
    def access(self) -> Access:
        """What a call's metadata may do."""
        return self._access

    @property
    def desk(self) -> Desk:
        """Where requests go."""
        return self._desk

    def _guarded(self, name: str, service: Service) -> Service:
        access = self._access
        if not access.is_restricted:
            return service
        group = GROUPS.get(name, "model-repository" if name.startswith("Repository") else "shared-memory")

        def serve(call: Call) -> None:
            try:
                access.check(group, call.metadata)
            except ServingError as error:
                _turn_away(call, error)
            else:
                service(call)

        return serve

    def _task(self, kind: Any, act: Callable[[Any], Awaitable[Any]]) -> Service:
        def serve(call: Call) -> None:
            one_message(call, lambda message: self._spawn(_answer(call, kind, message, act)))

        return serve

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _health(self, asked: Any) -> Any:
        return HealthCheckResponse(status="SERVING" if self._about.is_live() else "NOT_SERVING")

    def _model_ready(self, asked: messages.ModelReadyRequest) -> Any:
        return messages.ModelReadyResponse(ready=self._desk.is_ready(asked.name, _version(asked.version)))

    def _server_metadata(self, asked: messages.ServerMetadataRequest) -> Any:
        return messages.ServerMetadataResponse(**server_metadata(self._about))

    def _model_metadata(self, asked: messages.ModelMetadataRequest) -> Any:
        plan = self.find(asked.name, asked.version)
        versions = [plan.model] if asked.version else self._desk.versions(asked.name)
        return messages.ModelMetadataResponse(**model_metadata(plan, versions))

    def _model_config(self, asked: messages.ModelConfigRequest) -> Any:
        settings = model_config(self.find(asked.name, asked.version).model.config)
        config = json_format.ParseDict(settings, ModelConfigMessage(), ignore_unknown_fields=True)
        return messages.ModelConfigResponse(config=encode(config))

    def _model_statistics(self, asked: messages.ModelStatisticsRequest) -> Any:
        if asked.name:
            models = self._desk.measured(asked.name, _version(asked.version))
        else:
            models = [model for name in self._desk.repository.names() for model in self._desk.versions(name)]
        response = messages.ModelStatisticsResponse()
        for model in models:
            json_format.ParseDict(self._statistics(model), response.model_stats.add())
        return response

    async def _index(self, asked: messages.RepositoryIndexRequest) -> Any:
        return messages.RepositoryIndexResponse(models=await list_models(self._control, asked.ready))

    async def _load(self, asked: messages.RepositoryModelLoadRequest) -> Any:
        check_explicit(self._control, asked.repository_name)
        parameters: dict[str, str | bytes] = {}
        for name, value in asked.parameters.items():
            kind = value.WhichOneof("parameter_choice")
            expected = "string_param" if name == "config" else "bytes_param" if name.startswith("file:") else ""
            if not expected:
                raise InvalidInput(f"unrecognized load parameter '{name}'; known are 'config' and 'file:<path>'")
            if kind != expected:
                raise InvalidInput(f"invalid value type for load parameter '{name}', expected {expected}.")
            parameters[name] = getattr(value, kind)
        await self._control.load(asked.model_name, parameters)
        return messages.RepositoryModelLoadResponse()

    async def _unload(self, asked: messages.RepositoryModelUnloadRequest) -> Any:
        check_explicit(self._control, asked.repository_name)
        dependents = False
        if "unload_dependents" in asked.parameters:
            if asked.parameters["unload_dependents"].WhichOneof("parameter_choice") != "bool_param":
                raise InvalidInput("invalid value type for 'unload_dependents' parameter, expected bool_param.")
            dependents = asked.parameters["unload_dependents"].bool_param
        self._control.unload(asked.model_name, unload_dependents=dependents)
        return messages.RepositoryModelUnloadResponse()

    def _memory_status(self, asked: messages.SystemSharedMemoryStatusRequest) -> Any:
        response = messages.SystemSharedMemoryStatusResponse()
        for row in self._desk.regions.status(asked.name):
            region = response.regions[row["name"]]
            region.name, region.key, region.offset, region.byte_size = row.values()
        return response

    def _memory_register(self, asked: messages.SystemSharedMemoryRegisterRequest) -> Any:
        self._desk.regions.register(asked.name, asked.key, asked.offset, asked.byte_size)
        return messages.SystemSharedMemoryRegisterResponse()

    def _memory_unregister(self, asked: messages.SystemSharedMemoryUnregisterRequest) -> Any:
        self._desk.regions.unregister(asked.name)
        return messages.SystemSharedMemoryUnregisterResponse()

    def _trace_setting(self, asked: messages.TraceSettingRequest) -> Any:
        name = asked.model_name
        if name and not self._desk.versions(name):
            raise InvalidInput(f"Request for unknown model : {name}")
        changes: dict[str, Any] = {}
        for key, setting in asked.settings.items():
            values = list(setting.value)
            if key != "trace_level" and len(values) > 1:
                raise InvalidInput(f"expect only 1 value for '{key}'")
            changes[key] = values if key == "trace_level" and values else values[0] if values else None
        settings = self._trace.change(changes, name)
        response = messages.TraceSettingResponse()
        for key, value in settings.items():
            response.settings[key].value.extend(value if isinstance(value, list) else [value])
        return response

    def _log_settings(self, asked: messages.LogSettingsRequest) -> Any:
        changes = {}
        for key, setting in asked.settings.items():
            kind = setting.WhichOneof("parameter_choice")
            changes[key] = getattr(setting, kind) if kind else None
        response = messages.LogSettingsResponse()
        for key, value in self._logs.change(changes).items():
            kind = "bool_param" if isinstance(value, bool) else "uint32_param" if isinstance(value, int) else ""
            setattr(response.settings[key], kind or "string_param", value)
        return response


def _start(kind: type[Unary] | type[Stream], call: Call, service: KServe) -> None:
    kind(call, service.desk, service.find, service.access, service.repeats)


def _method(kind: Any, answer: Callable[[Any], Any]) -> Service:
    def serve(call: Call) -> None:
        def hear(message: bytes) -> None:
            try:
                response = answer(parse(kind, message))
            except ServingError as error:
                _refuse(call, error)
            else:
                call.send(encode(response))
                call.finish()

        one_message(call, hear)

    return serve


async def _answer(call: Call, kind: Any, message: bytes, act: Callable[[Any], Awaitable[Any]]) -> None:
    try:
        response = await act(parse(kind, message))
    except ServingError as error:
        _refuse(call, error)
    except Exception:
        log.exception("%s failed", call.method)
        call.finish(Code.INTERNAL, "the server failed on this call; its log says why")
    else:
        call.send(encode(response))
        call.finish()


def _refuse(call: Call, error: ServingError) -> None:
    _, code, message = explain(error)
    call.finish(code, message)


def _turn_away(call: Call, error: ServingError) -> None:
    call.on_message = lambda message: None
    call.on_end = call.on_gone = lambda: None
    _refuse(call, error)


def _version(version: str) -> str:
    if version and not (version.isascii() and version.isdecimal() and int(version[:20]) > 0):
        raise InvalidInput(
            f"failed to get model version from specified version string '{version[:80]}', version should be an "
            "integral value > 0"
        )
    return version


def _cuda_status(asked: messages.CudaSharedMemoryStatusRequest) -> Any:
    if asked.name:
        raise NotThere(f"Unable to find cuda shared memory region: '{asked.name}'")
    return messages.CudaSharedMemoryStatusResponse()


def _no_cuda(asked: messages.CudaSharedMemoryRegisterRequest) -> Any:
    raise Unsupported(NO_CUDA)
