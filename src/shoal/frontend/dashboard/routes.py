"""The dashboard on the management listener: its page, its stream of events, and what can be done from it."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from typing import Any
from urllib.parse import parse_qs

import msgspec

from shoal.clock import Clock
from shoal.core.repository import Repository
from shoal.errors import InvalidInput, ServingError
from shoal.frontend.actions import Actions, Sentence
from shoal.frontend.admin import Pages
from shoal.frontend.dashboard.viewers import Viewers
from shoal.frontend.dialect import Dialect
from shoal.frontend.exchange import Exchange
from shoal.frontend.kserve.control import Control
from shoal.frontend.origin import objection
from shoal.frontend.status import JSON, error_body, error_head, http_status
from shoal.frontend.tokens import Tokens

log = logging.getLogger("shoal.management")
EVENTS = b"/dashboard/events"
ORDERS = b"/dashboard/orders/"


class Order(msgspec.Struct, frozen=True, forbid_unknown_fields=True):
    """What somebody at the page wants done to a model."""

    model: str = ""
    version: str = ""
    workers: int = 1
    url: str = ""


_decode_order = msgspec.json.Decoder(Order).decode


class Dashboard:
    """The page itself says nothing about the server; its data and its actions need the management key."""

    def __init__(
        self,
        repository: Repository,
        actions: Actions,
        dialect: Dialect,
        clock: Clock,
        *,
        tokens: Tokens | None = None,
        cors_origin: str = "",
        is_local: bool = True,
        control: Control | None = None,
        about: dict[str, Any] | None = None,
    ) -> None:
        self._actions = actions
        self._dialect = dialect
        self._tokens = tokens
        self._cors_origin = cors_origin
        self._is_local = is_local
        self._control = control  # which models there are, where that is a model repository's business
        self._pages = Pages(dialect, "dashboard", b"/dashboard")
        self._tasks: set[asyncio.Task[None]] = set()
        self.viewers = Viewers(repository, clock, about or {})

    def start(self) -> None:
        """Read the page's files."""
        self._pages.load()

    async def stop(self) -> None:
        """End the streams, so that nobody waits for them."""
        await self.viewers.stop()

    def take(self, exchange: Exchange) -> bool:
        """Answer what is the dashboard's."""
        path = exchange.path
        if path == EVENTS:
            self._answer(exchange, "GET", self._watch)
        elif path.startswith(ORDERS):
            self._answer(exchange, "POST", self._order)
        else:
            return self._pages.show(exchange)
        return True

    def _answer(self, exchange: Exchange, method: str, work: Callable[[Exchange], None]) -> None:
        words = objection(exchange, self._cors_origin, is_local=self._is_local)
        try:
            if words:
                exchange.respond(403, error_body(403, "ForbiddenException", words), JSON)
            elif exchange.method != method:
                self._dialect.not_allowed(exchange, (method,))
            else:
                self._check(exchange)
                work(exchange)
        except ServingError as error:
            _refuse(exchange, error)
        exchange.drop_body()

    def _check(self, exchange: Exchange) -> None:
        if self._tokens is not None:
            self._tokens.check("management", exchange.header(b"authorization"))

    def _watch(self, exchange: Exchange) -> None:
        try:
            query = parse_qs(exchange.query.decode("ascii", "replace"), max_num_fields=8)
        except ValueError as error:
            raise InvalidInput(f"the query cannot be read: {error}") from None
        name, version = (query.get(key, [""])[0] for key in ("model", "version"))
        self.viewers.join(exchange, name, version, lambda: self._check(exchange))

    def _order(self, exchange: Exchange) -> None:
        if not exchange.content_type.startswith(b"application/json"):
            raise InvalidInput("an order is sent as application/json")  # which no form of another page can be
        body = exchange.body if isinstance(exchange.body, bytes) else bytes(exchange.body.view)
        try:
            order = _decode_order(body)
        except msgspec.MsgspecError as error:
            raise InvalidInput(f"the order cannot be read: {error}") from None
        verb = exchange.path[len(ORDERS) :].decode("ascii", "replace")
        acting = self._act(verb, order)
        if acting is None:
            self._dialect.not_found(exchange)
            return
        task = asyncio.get_running_loop().create_task(_finish(exchange, acting))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _act(self, verb: str, order: Order) -> Awaitable[Sentence] | None:
        actions, number = self._actions, str(order.workers)
        match verb:
            case "scale":
                wanted = {"min_worker": number, "max_worker": number, "synchronous": "true"}
                return actions.scale(order.model, order.version, wanted)
            case "load" if self._control is not None:
                return self._load(self._control, order.url)
            case "unload" if self._control is not None:
                return self._unload(self._control, order.model)
            case "load":
                wanted = {"url": order.url, "initial_workers": number, "synchronous": "true"}
                return actions.register(wanted | ({"model_name": order.model} if order.model else {}))
            case "unload":
                return actions.unregister(order.model, order.version)
            case "drain":
                return actions.drain(order.model, order.version)
            case "default":
                return actions.set_default(order.model, order.version)
        return None

    async def _load(self, control: Control, name: str) -> Sentence:
        await control.load(name, {})
        return 200, f'Model "{name}" loaded'

    async def _unload(self, control: Control, name: str) -> Sentence:
        control.unload(name)
        return 200, f'Model "{name}" unloaded'


async def _finish(exchange: Exchange, acting: Awaitable[Sentence]) -> None:
    try:
        status, sentence = await acting
    except ServingError as error:
        _refuse(exchange, error)
    except Exception:
        log.exception("an order from the dashboard failed")
        exchange.respond(500, error_body(500, "InternalServerException", "internal error, see the log"), JSON)
    else:
        exchange.respond(status, msgspec.json.encode({"status": sentence}), JSON)


def _refuse(exchange: Exchange, error: ServingError) -> None:
    status, kind = http_status(error)
    exchange.respond(status, error_body(status, kind, str(error)), error_head(error, status))
