"""Server: the listeners and which routes each of them has. It admits, it drains; it knows no model."""

import asyncio
import ssl

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
        self,
        config: ServerConfig,
        inference: Inference,
        management: Management,
        metrics: Metrics,
        *,
        lend: Lend,
        tls: ssl.SSLContext | None,
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
        keys: dict[str, int] = {}
        for name, host, port, app in (
            ("inference", config.host, config.port, self._on_inference),
            ("management", config.management_host, config.management_port, self._on_management),
            ("metrics", config.host, config.metrics_port, self._on_metrics),
        ):
            key = keys[name] = port or -len(plan) - 1  # 0 asks for any free port: never shared
            plan[key] = (host, self._on_everything if key in plan else app)
        self._tls = tls
        listeners = {
            key: Listener(app, limits, lend, host=host, port=max(0, key), unix_path=None, ssl_context=tls)
            for key, (host, app) in plan.items()
        }
        self._listeners = list(listeners.values())
        self._by_name = {name: listeners[key] for name, key in keys.items()}
        if path := config.unix_socket:
            extra = Listener(self._on_inference, limits, lend, host=None, port=None, unix_path=path)
            self._listeners.append(extra)

    @property
    def addresses(self) -> dict[str, str]:
        """Where each of inference, management and metrics is bound."""
        scheme = "https" if self._tls else "http"
        return {name: f"{scheme}://{listener.address}" for name, listener in self._by_name.items()}

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
