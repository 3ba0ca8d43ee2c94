"""Apis: everything that a server answers on, put together: HTTP and gRPC, for requests and for those who manage it."""

import asyncio
import ssl
from collections.abc import Callable, Sequence
from functools import partial

from shoal.archive.intake import Intake
from shoal.clock import Clock
from shoal.config.deployment import Deployment
from shoal.config.devices import GpuUsage
from shoal.config.exposure import is_loopback
from shoal.config.server import ServerConfig
from shoal.core.repository import Repository
from shoal.core.rollout import Rollouts
from shoal.core.workflow import Workflows
from shoal.frontend.actions import Actions
from shoal.frontend.budget import Budget
from shoal.frontend.dashboard.routes import Dashboard
from shoal.frontend.dialect import dialect_of
from shoal.frontend.exchange import Exchange
from shoal.frontend.grpc.listen import grpc_listeners
from shoal.frontend.http2.server import Http2Listener
from shoal.frontend.incoming import Lend
from shoal.frontend.listen import Listener, Listening
from shoal.frontend.management import Management
from shoal.frontend.mms import Inference
from shoal.frontend.server import Server
from shoal.frontend.tls import tls_context
from shoal.frontend.tokens import Api, Tokens
from shoal.frontend.workflows import WorkflowRoutes
from shoal.fronts.crew import Crew
from shoal.logs import AccessLog
from shoal.v2 import V2
from shoal.version import __version__
from shoal.workflows import WorkflowIntake


class Apis:
    """One server's. `start` binds; `drain` finishes what was asked; `close` comes when nobody answers any more.

    `page` gives the metrics; `on_changed` hears that somebody registered, scaled or removed a model.
    """

    def __init__(
        self,
        config: ServerConfig,
        deployment: Deployment,
        repository: Repository,
        clock: Clock,
        *,
        intake: Intake,
        rollouts: Rollouts,
        v2: V2,
        tokens: Tokens | None,
        lend: Lend,
        budget: Budget,
        crew: Crew | None,
        page: Callable[[Sequence[str]], bytes],
        on_changed: Callable[[], None],
    ) -> None:
        self._config = config
        self._repository = repository
        self._clock = clock
        self._v2 = v2 if config.compat in ("", "triton") else None
        self._tokens = tokens
        self._budget = budget
        self._crew = crew
        self._access = AccessLog(lambda delay, flush: asyncio.get_running_loop().call_later(delay, flush))
        self.dialect = dialect_of(config, __version__)
        self.actions = Actions(
            repository,
            intake,
            self.dialect,
            clock,
            drain_within=config.removal_timeout,
            model_api=config.model_api,
            gpu_usage=GpuUsage(clock),
            first_worker=deployment.defaults.first_worker_id,
            on_changed=on_changed,
            rollouts=rollouts,
        )
        can_load = config.model_api if v2.control is None else v2.control.mode == "explicit"
        self.dashboard = Dashboard(
            repository,
            self.actions,
            self.dialect,
            clock,
            tokens=tokens,
            cors_origin=config.cors_origin,
            is_local=is_loopback(config.management_host),
            control=v2.control,
            about={"version": __version__, "compat": config.compat, "can_load": can_load},
        )
        self.server = self._http(WorkflowIntake(intake, deployment.workflow_store), page, lend)
        self.grpc = self._grpc()

    def _http(self, intake: WorkflowIntake, page: Callable[[Sequence[str]], bytes], lend: Lend) -> Server:
        """What answers on the HTTP listeners."""
        config = self._config
        inference = Inference(
            self._repository,
            self._clock,
            self.dialect,
            open_inference=config.open_inference,
            authorise=partial(self._authorise, "inference") if self._tokens else None,
        )
        management = Management(
            self._repository,
            self.actions,
            self.dialect,
            tokens=self._tokens,
            cors_origin=config.cors_origin,
            is_local=is_loopback(config.management_host),
        )
        workflows = WorkflowRoutes(
            Workflows(self._repository, self._clock),
            intake,
            self.dialect,
            drain_within=config.removal_timeout,
            authorise=self._authorise if self._tokens else None,
        )
        has_workflows = config.compat != "mms"
        return Server(
            config,
            inference,
            management,
            page,
            self.dialect,
            self._clock,
            lend=lend,
            listen=self._crew.http if self._crew else Listener,
            budget=self._budget,
            tls=_tls(config),
            first=[self._v2.routes.take] if self._v2 else (),
            more={
                "inference": [workflows.predict] if has_workflows else [],
                "management": [*([workflows.manage] if has_workflows else []), self.dashboard.take],
            },
            on_answered=self._log_access if config.compat in ("torchserve", "mms") else None,
        )

    def _grpc(self) -> dict[str, Listening]:
        """What answers on the gRPC listeners."""
        listeners = grpc_listeners(
            self._config,
            self._repository,
            self.actions,
            self.dialect,
            self._clock,
            tokens=self._tokens,
            kserve=self._v2.parts if self._v2 else None,
            tls=_tls(self._config) if self._config.grpc_tls else None,
            listen=self._crew.grpc if self._crew else Http2Listener,
        )
        for listener in listeners.values():
            listener.hub.budget = self._budget
        return listeners

    @property
    def addresses(self) -> dict[str, str]:
        """Where each API is bound."""
        return self.server.addresses | {name: f"grpc://{listener.address}" for name, listener in self.grpc.items()}

    async def start(self) -> None:
        """Bind the listeners, and write the keys where callers show any."""
        self.dashboard.start()
        await self.server.start()
        for listener in self.grpc.values():
            await listener.start()
        if self._tokens is not None:
            self._tokens.start()

    async def drain(self, limit: float) -> None:
        """Take nothing new, finish what was taken, and cut what is left after `limit` seconds."""
        await self.dashboard.stop()
        await asyncio.gather(self.server.drain(limit), *(listener.drain(limit) for listener in self.grpc.values()))

    def close(self) -> None:
        """Remove the keys, and write the last lines of the access log."""
        if self._tokens is not None:
            self._tokens.stop()
        self._access.flush()

    def _authorise(self, api: Api, exchange: Exchange) -> None:
        assert self._tokens is not None
        self._tokens.check(api, exchange.header(b"authorization"))

    def _log_access(self, exchange: Exchange, status: int, milliseconds: float) -> None:
        self._access.add(exchange.peer, exchange.method, exchange.target.decode("latin-1"), status, milliseconds)


def _tls(config: ServerConfig) -> ssl.SSLContext | None:
    return tls_context(config.certificate_file, config.private_key_file) if config.certificate_file else None
