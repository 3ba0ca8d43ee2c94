"""Management over HTTP in TorchServe's and MMS's form: paths and parameters in, actions' sentences out."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qsl

import msgspec

from shoal.core.repository import Repository
from shoal.errors import InvalidInput, ServingError
from shoal.frontend.actions import Actions
from shoal.frontend.dialect import Dialect
from shoal.frontend.exchange import Exchange
from shoal.frontend.openapi import describe_managing
from shoal.frontend.origin import objection
from shoal.frontend.routes import segments_of
from shoal.frontend.status import error_body
from shoal.frontend.tokens import Tokens

log = logging.getLogger("shoal.management")
Answer = tuple[int, Any]
Act = Callable[[], Awaitable[Answer]]
ONE_MODEL = ("GET", "PUT", "DELETE", "OPTIONS")
MOST_PARAMETERS = 256


class Management:
    """The management routes. They need the management key where there are tokens, `/token` the API key."""

    def __init__(
        self,
        repository: Repository,
        actions: Actions,
        dialect: Dialect,
        *,
        tokens: Tokens | None = None,
        cors_origin: str = "",
        is_local: bool = False,
    ) -> None:
        self._repository = repository
        self._actions = actions
        self._dialect = dialect
        self._tokens = tokens
        self._cors_origin = cors_origin
        self._is_local = is_local  # bound to this machine
        self._tasks: set[asyncio.Task[None]] = set()

    def manage(self, exchange: Exchange) -> bool:
        """Act on what the path names; False when it is somebody else's."""
        segments = segments_of(exchange.path)
        allowed = self._methods(segments)
        if allowed is None:
            return False
        words = objection(exchange, self._cors_origin, is_local=self._is_local)
        if exchange.method != "OPTIONS" and words:
            self._dialect.respond(exchange, 403, error_body(403, "ForbiddenException", words))
        elif not allowed:
            self._dialect.not_found(exchange)
        elif not self._is_authorised(exchange, segments):
            pass
        elif exchange.method not in allowed:
            self._dialect.not_allowed(exchange, allowed)
        else:
            self._begin(exchange, segments)
        exchange.drop_body()
        return True

    def _methods(self, segments: list[str]) -> tuple[str, ...] | None:
        """Give the methods of a path; none for one that is not there, None for one that is not ours."""
        match segments:
            case ["models"]:
                return "GET", "POST"
            case ["models", _]:
                return ONE_MODEL
            case ["models", _, _] if self._dialect.has_versions:
                return ONE_MODEL
            case ["models", _, _, "set-default" | "canary"] if self._dialect.has_versions:
                return ("PUT",)
            case ["models", *_]:
                return ()
            case ["v1", "models", name] if ":" not in name and self._dialect.has_explanations:
                return ("GET",)
            case ["token"] if self._tokens is not None:
                return ("GET",)
        return None

    def _is_authorised(self, exchange: Exchange, segments: list[str]) -> bool:
        if self._tokens is None or segments == ["token"]:  # which asks for another key by itself
            return True
        try:
            self._tokens.check("management", exchange.header(b"authorization"))
        except ServingError as error:
            self._dialect.refuse(exchange, error)
            return False
        return True

    def _begin(self, exchange: Exchange, segments: list[str]) -> None:
        try:
            act = self._act(exchange, segments)
        except ServingError as error:
            self._dialect.refuse(exchange, error)
            return
        task = asyncio.get_running_loop().create_task(self._answer(exchange, segments, act))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _act(self, exchange: Exchange, segments: list[str]) -> Act:
        """Read everything the request says, and give what is to be done."""
        actions, query = self._actions, _query(exchange)
        name, version = [*segments[1:], "", ""][:2]
        if segments[0] == "token":
            return lambda: self._rotate(exchange, query.get("type", ""))
        if segments[0] == "v1":
            return lambda: self._readiness(segments[2])
        if len(segments) == 4:
            if segments[3] == "canary":
                return lambda: _status(actions.share(name, version, query))
            return lambda: _status(actions.set_default(name, version))
        match exchange.method, name:
            case "GET", "":
                limit, token = self._number(query, "limit", 100), self._number(query, "next_page_token", 0)
                return lambda: _now(200, actions.list_models(limit, token))
            case "POST", _:
                parameters = self._parameters(exchange, query)
                return lambda: _status(actions.register(parameters))
            case "GET", _:
                customized = query.get("customized", "").lower() == "true"
                return lambda: self._describe(name, version, customized)
            case "PUT", _:
                version = version or (query.get("model_version", "") if self._dialect.has_versions else "")
                return lambda: _status(actions.scale(name, version, query))
            case "OPTIONS", _:
                return lambda: self._describe_api(name, version)
            case _:
                return lambda: _status(actions.unregister(name, version))

    async def _answer(self, exchange: Exchange, segments: list[str], act: Act) -> None:
        try:
            status, body = await act()
        except ServingError as error:
            name, version = [*segments[1:], "", ""][:2]
            self._dialect.refuse(exchange, error, model=name, version=version)
        except Exception:
            log.exception("management call failed")
            body = error_body(500, "InternalServerException", "internal error, see the log")
            self._dialect.respond(exchange, 500, body)
        else:
            if isinstance(body, bytes):
                self._dialect.respond(exchange, status, body)
            else:
                self._dialect.say(exchange, status, body)

    async def _describe(self, name: str, version: str, customized: bool) -> Answer:
        described = await self._actions.describe(name, version, customized=customized and not self._dialect.is_bare)
        return 200, described[0] if self._dialect.is_bare else described

    async def _describe_api(self, name: str, version: str) -> Answer:
        self._repository.find(name, version)
        return 200, describe_managing(name)

    async def _readiness(self, name: str) -> Answer:
        return 200, {"name": name, "ready": self._actions.is_ready(name)}

    async def _rotate(self, exchange: Exchange, api: str) -> Answer:
        assert self._tokens is not None
        self._tokens.rotate(api, exchange.header(b"authorization"))
        return 200, b"\n"

    def _parameters(self, exchange: Exchange, query: dict[str, str]) -> dict[str, str]:
        """Read a registration: the query's, or the body's alone where that is JSON; times in seconds."""
        if not exchange.content_type.startswith(b"application/json"):
            timeout = query.get("response_timeout", "")
            if self._dialect.minutes and timeout.isdecimal():
                return {**query, "response_timeout": str(60 * int(timeout[:8]))}
            return query
        body = exchange.body if isinstance(exchange.body, bytes) else bytes(exchange.body.view)
        try:
            fields = msgspec.json.decode(body, type=dict[str, str | int | float | bool | None])
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"the body is not a JSON object of parameters: {error}") from None
        return {name: _text(value) for name, value in fields.items() if value is not None}

    def _number(self, query: dict[str, str], name: str, default: int) -> int:
        try:
            return int(query.get(name, default))
        except ValueError:
            if self._dialect.is_lenient:
                return default
            raise InvalidInput(f"{name} is a whole number, got {query[name]!r}") from None


async def _now(status: int, body: Any) -> Answer:
    return status, body


async def _status(acting: Awaitable[tuple[int, str]]) -> Answer:
    status, sentence = await acting
    return status, {"status": sentence}


def _query(exchange: Exchange) -> dict[str, str]:
    try:
        text = exchange.query.decode("ascii", "replace")
        return dict(parse_qsl(text, keep_blank_values=True, max_num_fields=MOST_PARAMETERS))
    except ValueError as error:
        raise InvalidInput(f"the query cannot be read: {error}") from None


def _text(value: str | float | bool) -> str:
    return str(value).lower() if isinstance(value, bool) else str(value)
