import asyncio
import json
from collections.abc import Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.errors import Conflict, InvalidInput, LoadFailed, ModelNotFound, ServingError, Unauthorised
from shoal.frontend.grpc.calls import Api
from shoal.frontend.grpc.proto import management_pb2 as messages
from shoal.frontend.grpc.torchserve_management import PREFIX, TorchServeManagement
from shoal.frontend.rpc import Code
from tests.unit.frontend.grpc.calling import FakeCall, anyone, describe


class Recorded:
    """Actions that only say what they were asked to do."""

    def __init__(self, error: Exception | None = None) -> None:
        self.asked: list[tuple[Any, ...]] = []
        self.error = error

    def _note(self, *what: Any) -> tuple[int, str]:
        self.asked.append(what)
        if self.error is not None:
            raise self.error
        return 200, f"{what[0]} done"

    async def register(self, parameters: Mapping[str, str]) -> tuple[int, str]:
        return self._note("register", dict(parameters))

    async def scale(self, name: str, version: str, parameters: Mapping[str, str]) -> tuple[int, str]:
        return self._note("scale", name, version, dict(parameters))

    async def set_default(self, name: str, version: str) -> tuple[int, str]:
        return self._note("set_default", name, version)

    async def unregister(self, name: str, version: str) -> tuple[int, str]:
        return self._note("unregister", name, version)

    async def describe(self, name: str, version: str, *, customized: bool) -> list[dict[str, Any]]:
        self._note("describe", name, version, customized)
        return [{"modelName": name, "modelVersion": version or "1.0"}]

    def list_models(self, limit: int, token: int) -> dict[str, Any]:
        self._note("list", limit, token)
        return {"nextPageToken": "1", "models": [{"modelName": "a", "modelUrl": "a.mar"}]}


def call(actions: Recorded, method: str, *sent: Any, model_api: bool = True, leaves: bool = False) -> FakeCall:
    service = TorchServeManagement(actions, describe_error=describe, authorise=anyone, model_api=model_api)
    made = FakeCall(PREFIX + method)

    async def play() -> None:
        raw = [message if isinstance(message, bytes) else message.SerializeToString() for message in sent]
        made.begin(service.services(), *raw)
        if leaves:
            made.on_gone()
        for _ in range(3):
            await asyncio.sleep(0)

    asyncio.run(play())
    return made


def words(made: FakeCall) -> str:
    assert made.code is Code.OK, made.status
    [message] = made.sent
    text: str = messages.ManagementResponse.FromString(message).msg
    return text


def test_a_registration_says_only_what_its_client_said_and_does_not_wait() -> None:
    actions = Recorded()

    assert words(call(actions, "RegisterModel", messages.RegisterModelRequest(url="a.mar"))) == "register done"
    assert actions.asked == [("register", {"url": "a.mar", "synchronous": "false"})]


def test_a_registration_may_say_everything() -> None:
    actions = Recorded()
    request = messages.RegisterModelRequest(
        batch_size=4,
        handler="h:f",
        initial_workers=2,
        max_batch_delay=50,
        model_name="a",
        response_timeout=10,
        runtime="python",
        synchronous=True,
        url="a.mar",
        s3_sse_kms=True,
        startup_timeout=20,
    )
    call(actions, "RegisterModel", request)

    assert actions.asked == [
        (
            "register",
            {
                "batch_size": "4",
                "handler": "h:f",
                "initial_workers": "2",
                "max_batch_delay": "50",
                "model_name": "a",
                "response_timeout": "10",
                "runtime": "python",
                "synchronous": "true",
                "url": "a.mar",
                "s3_sse_kms": "true",
                "startup_timeout": "20",
            },
        )
    ]


def test_numbers_of_nothing_or_less_are_not_said() -> None:
    actions = Recorded()
    call(actions, "RegisterModel", messages.RegisterModelRequest(url="a.mar", batch_size=-1, initial_workers=0))
    call(actions, "ScaleWorker", messages.ScaleWorkerRequest(model_name="a", min_worker=-2, max_worker=0))

    assert actions.asked == [
        ("register", {"url": "a.mar", "synchronous": "false"}),
        ("scale", "a", "", {"synchronous": "false"}),
    ]


def test_scaling_names_model_version_and_limits() -> None:
    actions = Recorded()
    request = messages.ScaleWorkerRequest(
        model_name="a", model_version="2", min_worker=1, max_worker=3, synchronous=True
    )

    assert words(call(actions, "ScaleWorker", request)) == "scale done"
    assert actions.asked == [("scale", "a", "2", {"min_worker": "1", "max_worker": "3", "synchronous": "true"})]


def test_a_default_is_set_and_a_model_removed() -> None:
    actions = Recorded()
    request = messages.SetDefaultRequest(model_name="a", model_version="2")

    assert words(call(actions, "SetDefault", request)) == "set_default done"
    assert words(call(actions, "UnregisterModel", messages.UnregisterModelRequest(model_name="a"))) == "unregister done"
    assert actions.asked == [("set_default", "a", "2"), ("unregister", "a", "")]


def test_a_description_is_the_json_of_http_without_its_last_line_end() -> None:
    actions = Recorded()
    request = messages.DescribeModelRequest(model_name="a", model_version="all", customized=True)

    assert words(call(actions, "DescribeModel", request)) == (
        '[\n  {\n    "modelName": "a",\n    "modelVersion": "all"\n  }\n]'
    )
    assert actions.asked == [("describe", "a", "all", True)]


@pytest.mark.parametrize(("limit", "meant"), [(0, 100), (7, 7), (-1, -1)])
def test_a_list_without_a_limit_is_a_hundred_long(limit: int, meant: int) -> None:
    actions = Recorded()
    text = words(call(actions, "ListModels", messages.ListModelsRequest(limit=limit, next_page_token=3)))

    assert json.loads(text) == {"nextPageToken": "1", "models": [{"modelName": "a", "modelUrl": "a.mar"}]}
    assert not text.endswith("\n")
    assert actions.asked == [("list", meant, 3)]


@pytest.mark.parametrize(
    ("method", "request_", "status"),
    [
        (
            "RegisterModel",
            messages.RegisterModelRequest(),
            (Code.INVALID_ARGUMENT, "Parameter url is required.\norg.pytorch.serve.http.BadRequestException"),
        ),
        (
            "ScaleWorker",
            messages.ScaleWorkerRequest(),
            (Code.INVALID_ARGUMENT, "Parameter model_name is required.\norg.pytorch.serve.http.BadRequestException"),
        ),
        (
            "UnregisterModel",
            messages.UnregisterModelRequest(),
            (Code.INVALID_ARGUMENT, "Parameter model_name is required.\norg.pytorch.serve.http.BadRequestException"),
        ),
        (
            "SetDefault",
            messages.SetDefaultRequest(model_name="a"),
            (
                Code.NOT_FOUND,
                "Model version:  does not exist for model: a\n"
                "org.pytorch.serve.archive.model.ModelVersionNotFoundException",
            ),
        ),
        (
            "DescribeModel",
            b"\xff",
            (Code.INTERNAL, "the 1 bytes are no org.pytorch.serve.grpc.management.DescribeModelRequest"),
        ),
    ],
)
def test_what_cannot_be_asked_is_refused_before_anything_is_done(
    method: str, request_: Any, status: tuple[Code, str]
) -> None:
    actions = Recorded()

    assert call(actions, method, request_).status == status
    assert actions.asked == []


@pytest.mark.parametrize(
    ("error", "code"),
    [
        (InvalidInput("max_worker cannot be less than min_worker."), Code.INVALID_ARGUMENT),
        (ModelNotFound("a"), Code.NOT_FOUND),
        (Conflict("twice"), Code.ALREADY_EXISTS),
        (LoadFailed("Failed to start workers for model a version: 1.0"), Code.INTERNAL),
    ],
)
def test_what_an_action_raises_ends_the_call_with_its_code(error: ServingError, code: Code) -> None:
    made = call(Recorded(error), "RegisterModel", messages.RegisterModelRequest(url="a.mar"))

    assert made.code is code
    assert made.words.startswith(f"{error}\n")


def test_a_fault_of_the_servers_own_is_told_without_its_innards(caplog: pytest.LogCaptureFixture) -> None:
    made = call(Recorded(ZeroDivisionError("secret")), "ListModels", messages.ListModelsRequest())

    assert made.status == (Code.INTERNAL, "internal error, see the log")
    assert "secret" in caplog.text


def test_an_error_is_told_with_the_names_the_client_used() -> None:
    request = messages.ScaleWorkerRequest(model_name="a", model_version="2")

    assert call(Recorded(LoadFailed("WHO")), "ScaleWorker", request).words.startswith("a/2\n")


@pytest.mark.parametrize("method", ["RegisterModel", "UnregisterModel"])
def test_models_are_neither_registered_nor_removed_where_that_is_switched_off(method: str) -> None:
    actions = Recorded()
    made = call(actions, method, messages.RegisterModelRequest(url="a.mar"), model_api=False)

    assert made.status == (Code.PERMISSION_DENIED, "Model API disabled\norg.pytorch.serve.archive.model.ModelException")
    assert actions.asked == []


@pytest.mark.parametrize("method", ["DescribeModel", "ListModels", "ScaleWorker", "SetDefault"])
def test_the_rest_works_where_that_is_switched_off(method: str) -> None:
    actions = Recorded()
    request = messages.SetDefaultRequest(model_name="a", model_version="2")
    call(actions, method, request if method != "ListModels" else b"", model_api=False)

    assert len(actions.asked) == 1


def test_a_client_that_leaves_does_not_undo_what_it_asked_for() -> None:
    actions = Recorded()
    call(actions, "RegisterModel", messages.RegisterModelRequest(url="a.mar"), leaves=True)

    assert len(actions.asked) == 1


@pytest.mark.parametrize("method", ["ListModels", "RegisterModel"])
def test_nothing_is_done_for_who_has_no_key(method: str) -> None:
    actions = Recorded()
    seen: list[Api] = []

    def authorise(metadata: Sequence[tuple[bytes, bytes]], api: Api) -> None:
        seen.append(api)
        raise Unauthorised("no key")

    service = TorchServeManagement(actions, describe_error=describe, authorise=authorise, model_api=False)
    made = FakeCall(PREFIX + method).begin(service.services(), b"")

    assert made.status == (Code.PERMISSION_DENIED, "no key")
    assert seen == ["management"]
    assert actions.asked == []


def test_all_methods_are_there() -> None:
    service = TorchServeManagement(Recorded(), describe_error=describe, authorise=anyone)

    assert PREFIX == "/org.pytorch.serve.grpc.management.ManagementAPIsService/"
    assert {method.removeprefix(PREFIX) for method in service.services()} == {
        "DescribeModel", "ListModels", "RegisterModel", "ScaleWorker", "SetDefault", "UnregisterModel",
    }  # fmt: skip


@given(
    st.binary(max_size=48),
    st.sampled_from(["DescribeModel", "ListModels", "RegisterModel", "ScaleWorker", "SetDefault", "UnregisterModel"]),
)
def test_whatever_bytes_come_the_call_ends(message: bytes, method: str) -> None:
    assert call(Recorded(), method, message).status is not None
