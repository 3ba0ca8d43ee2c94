"""Server: the listeners and which routes each of them has. It admits, it drains; it knows no model."""

import asyncio

from shoal.config.server import ServerConfig
from shoal.frontend.admin import Pages, show_metrics
from shoal.frontend.exchange import Exchange
from shoal.frontend.http import Application, HttpLimits, Lend
from shoal.frontend.listen import Listener
from shoal.frontend.management import Management, not_found
from shoal.frontend.mms import Inference
from shoal.telemetry import Metrics


class Server:
    """Inference, management and metrics, each on its own port; on one port where they are set equal."""

    def __init__(
        self, config: ServerConfig, inference: Inference, management: Management, metrics: Metrics, lend: Lend
    ) -> None:
        self._config = config
        self._inference = inference
        self._management = management
        self._metrics = metrics
        self._pages = Pages()
        limits = HttpLimits(
            max_body=config.max_request_size, idle_timeout=config.idle_timeout, max_connections=config.max_connections
        )
        plan: dict[int, tuple[str, Application]] = {}
        for host, port, app in (
            (config.host, config.port, self._on_inference),
            (config.management_host, config.management_port, self._on_management),
            (config.host, config.metrics_port, self._on_metrics),
        ):
            key = port or -len(plan) - 1  # 0 asks for any free port: never shared
            plan[key] = (host, self._on_everything if key in plan else app)
        self._listeners = [
            Listener(app, limits, lend, host=host, port=max(0, port), unix_path=None)
            for port, (host, app) in plan.items()
        ]

    @property
    def addresses(self) -> list[str]:
        """Where each listener is bound, inference first."""
        bound = [listener.addresses[0] for listener in self._listeners]
        return [address if isinstance(address, str) else f"http://{address[0]}:{address[1]}" for address in bound]

    async def start(self) -> None:
        """Bind every listener, or none: an address in use is an OSError."""
        if self._config.page:
            self._pages.load()
        try:
            for listener in self._listeners:
                await listener.start()
        except BaseException:
            await self.drain(0.0)
            raise

    async def drain(self, timeout: float) -> None:
        """Take no new connections; end the open ones when their answers are out."""
        await asyncio.gather(*(listener.drain(timeout) for listener in self._listeners))

    def _on_inference(self, exchange: Exchange) -> None:
        if self._inference.predict(exchange):
            return
        if exchange.path == b"/ping":
            self._inference.ping(exchange)
        elif not self._pages.show(exchange):
            not_found(exchange)

    def _on_management(self, exchange: Exchange) -> None:
        if not self._management.manage(exchange):
            if exchange.path == b"/ping":
                self._inference.ping(exchange)
            else:
                not_found(exchange)

    def _on_metrics(self, exchange: Exchange) -> None:
        if exchange.path == b"/metrics":
            show_metrics(self._metrics, exchange)
        else:
            not_found(exchange)

    def _on_everything(self, exchange: Exchange) -> None:
        if exchange.path == b"/metrics":
            show_metrics(self._metrics, exchange)
        elif not self._management.manage(exchange):
            self._on_inference(exchange)
