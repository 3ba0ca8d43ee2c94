"""TorchServe's management service: register, scale, describe, list, set default, remove."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Coroutine, Mapping
from typing import Any, Protocol

from shoal.errors import ServingError, VersionNotFound
from shoal.frontend.grpc.calls import Authorise, encode, guarded, one_message, parse, turn_away
from shoal.frontend.grpc.codes import PACKAGES, DescribeError, Missing, Refusal, end, of_management
from shoal.frontend.grpc.proto import management_pb2 as messages
from shoal.frontend.rpc import Call, Code, Service
from shoal.frontend.status import json_body

log = logging.getLogger("shoal.management")
PREFIX = "/org.pytorch.serve.grpc.management.ManagementAPIsService/"
MOST_LISTED = 100
API_OFF = Refusal(Code.PERMISSION_DENIED, "Model API disabled", PACKAGES["ModelException"] + "ModelException")


class Actions(Protocol):
    """What can be done to models; `(status, sentence)` says how it went, what failed is raised."""

    async def register(self, parameters: Mapping[str, str]) -> tuple[int, str]:
        """Take a model in."""
        ...

    async def scale(self, name: str, version: str, parameters: Mapping[str, str]) -> tuple[int, str]:
        """Set how many workers a version has."""
        ...

    async def set_default(self, name: str, version: str) -> tuple[int, str]:
        """Make a version the one that the bare name means."""
        ...

    async def unregister(self, name: str, version: str) -> tuple[int, str]:
        """Take a version out."""
        ...

    async def describe(self, name: str, version: str, *, customized: bool) -> list[dict[str, Any]]:
        """Tell of a version, or of `all`."""
        ...

    def list_models(self, limit: int, token: int) -> dict[str, Any]:
        """Give a page of names."""
        ...


class TorchServeManagement:
    """The management service. A client that leaves does not undo what it asked for."""

    def __init__(
        self, actions: Actions, *, describe_error: DescribeError, authorise: Authorise, model_api: bool = True
    ) -> None:
        self._actions = actions
        self._describe_error = describe_error
        self._authorise = authorise
        self._model_api = model_api
        self._tasks: set[asyncio.Task[None]] = set()

    def services(self) -> dict[str, Service]:
        """Give each method by its path."""
        methods = {
            "DescribeModel": self._method(messages.DescribeModelRequest, self._describe),
            "ListModels": self._method(messages.ListModelsRequest, self._list),
            "RegisterModel": self._method(messages.RegisterModelRequest, self._register, is_off=not self._model_api),
            "ScaleWorker": self._method(messages.ScaleWorkerRequest, self._scale),
            "SetDefault": self._method(messages.SetDefaultRequest, self._set_default),
            "UnregisterModel": self._method(
                messages.UnregisterModelRequest, self._unregister, is_off=not self._model_api
            ),
        }
        return {PREFIX + name: guarded(service, self._authorise, "management") for name, service in methods.items()}

    def _method(self, kind: Any, act: Callable[[Any], Awaitable[str]], *, is_off: bool = False) -> Service:
        def serve(call: Call) -> None:
            if is_off:
                turn_away(call, API_OFF)
            else:
                one_message(call, lambda message: self._spawn(self._answer(call, kind, message, act)))

        return serve

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    async def _answer(self, call: Call, kind: Any, message: bytes, act: Callable[[Any], Awaitable[str]]) -> None:
        asked = None
        try:
            asked = parse(kind, message)
            words = await act(asked)
        except ServingError as error:
            name, version = getattr(asked, "model_name", ""), getattr(asked, "model_version", "")
            end(call, of_management(error, self._describe_error, name, version))
        except Exception:
            log.exception("%s failed", call.method)
            end(call, Refusal(Code.INTERNAL, "internal error, see the log"))
        else:
            call.send(encode(messages.ManagementResponse(msg=words)))
            call.finish()

    async def _describe(self, asked: messages.DescribeModelRequest) -> str:
        found = await self._actions.describe(asked.model_name, asked.model_version, customized=asked.customized)
        return _text(found)

    async def _list(self, asked: messages.ListModelsRequest) -> str:
        return _text(self._actions.list_models(asked.limit or MOST_LISTED, asked.next_page_token))

    async def _register(self, asked: messages.RegisterModelRequest) -> str:
        parameters = _said(
            asked,
            "batch_size",
            "handler",
            "initial_workers",
            "max_batch_delay",
            "model_name",
            "response_timeout",
            "runtime",
            "url",
            "startup_timeout",
        )
        if asked.s3_sse_kms:
            parameters["s3_sse_kms"] = "true"
        if not asked.url:
            raise Missing("url")
        return (await self._actions.register(parameters | _waits(asked.synchronous)))[1]

    async def _scale(self, asked: messages.ScaleWorkerRequest) -> str:
        if not asked.model_name:
            raise Missing("model_name")
        parameters = _said(asked, "min_worker", "max_worker", "number_gpu", "timeout") | _waits(asked.synchronous)
        return (await self._actions.scale(asked.model_name, asked.model_version, parameters))[1]

    async def _set_default(self, asked: messages.SetDefaultRequest) -> str:
        if asked.model_name and not asked.model_version:
            raise VersionNotFound(asked.model_name, "")
        return (await self._actions.set_default(asked.model_name, asked.model_version))[1]

    async def _unregister(self, asked: messages.UnregisterModelRequest) -> str:
        if not asked.model_name:
            raise Missing("model_name")
        return (await self._actions.unregister(asked.model_name, asked.model_version))[1]


def _said(asked: Any, *fields: str) -> dict[str, str]:
    """The fields that say something: texts that are not empty, numbers above 0."""
    values = {field: getattr(asked, field) for field in fields}
    return {field: str(value) for field, value in values.items() if (value > 0 if isinstance(value, int) else value)}


def _waits(synchronous: bool) -> dict[str, str]:
    return {"synchronous": "true" if synchronous else "false"}


def _text(value: Any) -> str:
    return json_body(value).decode().rstrip("\n")
