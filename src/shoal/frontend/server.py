"""Server: the listeners and which routes each of them has. It admits, it drains; it knows no model."""

import asyncio
import ssl
from collections.abc import Callable, Mapping, Sequence
from typing import Literal, NamedTuple

from shoal.clock import Clock
from shoal.config.server import ServerConfig
from shoal.frontend.admin import MetricsPage, Pages, show_metrics
from shoal.frontend.budget import Budget
from shoal.frontend.dialect import Dialect
from shoal.frontend.exchange import Exchange
from shoal.frontend.http import Application, HttpLimits, Lend
from shoal.frontend.kserve.status import refusal as kserve_refusal
from shoal.frontend.listen import Listen, Listener, Listening
from shoal.frontend.management import Management
from shoal.frontend.mms import Inference
from shoal.frontend.openapi import INFERENCE, MANAGEMENT, METRICS, Operation, describe
from shoal.frontend.routes import segments_of

Api = Literal["inference", "management", "metrics"]
APIS: tuple[Api, ...] = ("inference", "management", "metrics")
Take = Callable[[Exchange], bool]  # answers what is its own, says False to the rest
OnAnswered = Callable[[Exchange, int, float], None]  # the exchange, its status, and milliseconds until its answer began


class Place(NamedTuple):
    """An address to listen at: a port, or the path of a socket."""

    host: str
    port: int  # below zero: any free one
    path: str = ""
    is_tls: bool = False


def places_of(config: ServerConfig) -> dict[Place, list[Api]]:
    """Say where the APIs are served; those that are given one address share it."""
    places: dict[Place, list[Api]] = {}
    ports: tuple[tuple[Api, str, int, str], ...] = (
        ("inference", config.host, config.port, config.unix_socket),
        ("management", config.management_host, config.management_port, config.management_unix_socket),
        ("metrics", config.metrics_host or config.host, config.metrics_port, config.metrics_unix_socket),
    )
    for api, host, port, _ in ports:
        if port >= 0:
            place = Place(host, port or -len(places) - 1, is_tls=api in config.tls_on)
            places.setdefault(place, []).append(api)
    for api, _, _, path in ports:
        if path:
            places.setdefault(Place("", 0, path), []).append(api)
    return places


class Server:
    """Inference, management and metrics, each on its own port; on one port where they are set equal.

    `first` are routes that see inference requests before all others, `more` those that other parts add to an API.
    `on_answered` hears of every answer to a request that could be read; without it, nothing is measured. `listen` makes
    the listeners.
    """

    def __init__(
        self,
        config: ServerConfig,
        inference: Inference,
        management: Management,
        metrics: MetricsPage,
        dialect: Dialect,
        clock: Clock,
        *,
        lend: Lend,
        listen: Listen = Listener,
        budget: Budget | None = None,
        tls: ssl.SSLContext | None,
        first: Sequence[Take] = (),
        more: Mapping[Api, Sequence[Take]] | None = None,
        on_answered: OnAnswered | None = None,
    ) -> None:
        self._config = config
        self._dialect = dialect
        self._pages = Pages(dialect, "demo", b"/")
        self._now = clock.now
        self._on_answered = on_answered
        more = more or {}
        takes: dict[Api, list[Take]] = {
            "inference": [*first, inference.predict, inference.others, *more.get("inference", ())],
            "management": [management.manage, inference.others, *more.get("management", ())],
            "metrics": [*more.get("metrics", ())],
        }
        if config.enable_metrics_api:
            takes["metrics"].append(lambda exchange: show_metrics(metrics, exchange, dialect))
        limits = HttpLimits(
            max_body=config.max_request_size, idle_timeout=config.idle_timeout, max_connections=config.max_connections
        )
        self._schemes: dict[Api, str] = {}
        self._by_name: dict[Api, Listening] = {}
        self._listeners: list[Listening] = []
        for place, apis in places_of(config).items():
            context = tls if place.is_tls else None
            listener = listen(
                self._application(apis, takes),
                limits,
                lend,
                host=place.host or None,
                port=None if place.path else max(0, place.port),
                unix_path=place.path or None,
                ssl_context=context,
            )
            listener.hub.budget = budget or listener.hub.budget
            listener.hub.refusal = kserve_refusal if config.compat == "triton" else dialect.refusal
            self._listeners.append(listener)
            for api in apis:
                if api not in self._by_name:  # its port comes before its socket
                    self._by_name[api] = listener
                    self._schemes[api] = "unix" if place.path else "https" if context else "http"

    @property
    def addresses(self) -> dict[str, str]:
        """Where each of inference, management and metrics is bound: its port, or its socket where it has no port."""
        return {
            api: f"{self._schemes[api]}:{'' if self._schemes[api] == 'unix' else '//'}{self._by_name[api].address}"
            for api in APIS
            if api in self._by_name
        }

    @property
    def dashboard(self) -> str:
        """Where the dashboard is; empty where no browser on this machine can get there."""
        address = self.addresses.get("management", "")
        return f"{address}/dashboard" if address.startswith("http") else ""

    @property
    def answers(self) -> list[int]:
        """How many answers of each class there were, by the first digit of their status."""
        return [sum(counts) for counts in zip(*(listener.hub.answers for listener in self._listeners), strict=True)]

    async def start(self) -> None:
        """Bind every listener, or none: an address in use is an OSError."""
        try:
            for listener in self._listeners:
                await listener.start()
        except BaseException:
            await self.drain(0.0)
            raise
        if self._config.page:
            self._pages.load(dashboard=self.dashboard)

    async def drain(self, timeout: float) -> None:
        """Take no new connections; end the open ones when their answers are out."""
        await asyncio.gather(*(listener.drain(timeout) for listener in self._listeners))

    def _application(self, apis: Sequence[Api], takes: Mapping[Api, Sequence[Take]]) -> Application:
        """Put together what one listener answers; predictions are asked first, for they are the most.

        Where inference and management share a listener, the metrics are there as well, as upstream.
        """
        if "inference" in apis and "management" in apis:
            apis = APIS
        chain = list(dict.fromkeys(take for api in apis for take in takes[api]))
        chain.append(self._about(apis))
        if "inference" in apis:
            chain.append(self._pages.show)
        dialect, on_answered, now = self._dialect, self._on_answered, self._now

        def answer(exchange: Exchange) -> None:
            for take in chain:
                if take(exchange):
                    return
            exchange.drop_body()
            dialect.not_found(exchange)

        def answer_and_tell(exchange: Exchange) -> None:
            assert on_answered is not None
            began = now()
            exchange.on_head = lambda exchange, status: on_answered(exchange, status, 1000 * (now() - began))
            answer(exchange)

        return answer if on_answered is None else answer_and_tell

    def _about(self, apis: Sequence[Api]) -> Take:
        """Make the routes that describe the API."""
        tables: dict[Api, Sequence[Operation]] = {
            "inference": INFERENCE,
            "management": MANAGEMENT,
            "metrics": [METRICS],
        }
        operations = [operation for api in apis for operation in tables[api]]
        dialect = self._dialect

        def about(exchange: Exchange) -> bool:
            match segments_of(exchange.path):
                case [] if exchange.method == "OPTIONS":
                    pass
                case ["api-description"]:
                    pass
                case [] if dialect.has_index and not self._config.page:
                    exchange.drop_body()
                    dialect.not_allowed(exchange, ("OPTIONS",))
                    return True
                case _:
                    return False
            exchange.drop_body()
            dialect.say(exchange, 200, describe(dialect.title, dialect.version, operations))
            return True

        return about
