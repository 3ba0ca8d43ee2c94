"""The gRPC listeners of a server: which services each has, and where."""

import ssl
from collections.abc import Sequence
from dataclasses import replace

from shoal.clock import Clock
from shoal.config.server import ServerConfig
from shoal.core.repository import Repository
from shoal.frontend.dialect import Dialect
from shoal.frontend.grpc.calls import Api, Desk
from shoal.frontend.grpc.kserve import KServe
from shoal.frontend.grpc.open_inference import OpenInference
from shoal.frontend.grpc.torchserve_inference import TorchServeInference
from shoal.frontend.grpc.torchserve_management import Actions, TorchServeManagement
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.http2.server import Http2Listener
from shoal.frontend.kserve.parts import Parts
from shoal.frontend.listen import Listen, Listening
from shoal.frontend.tokens import Tokens


def grpc_listeners(
    config: ServerConfig,
    repository: Repository,
    actions: Actions,
    dialect: Dialect,
    clock: Clock,
    *,
    tokens: Tokens | None,
    kserve: Parts | None,
    tls: ssl.SSLContext | None,
    listen: Listen = Http2Listener,
) -> dict[str, Listening]:
    """Make a listener for each API that has a port, by name; none of them is started."""

    def authorise(metadata: Sequence[tuple[bytes, bytes]], api: Api) -> None:
        if tokens is not None:
            tokens.check(api, next((value for name, value in metadata if name == b"authorization"), None))

    desk = Desk(repository, clock, dialect.explain)
    inference = TorchServeInference(desk, health=lambda: dialect.health(repository)[1], authorise=authorise).services()
    if config.open_inference:
        inference |= OpenInference(
            desk, describe_error=dialect.explain, authorise=authorise, is_ready=lambda model: model.has_workers
        ).services()
    if kserve is not None:
        inference |= KServe(kserve).services()
    management = TorchServeManagement(
        actions, describe_error=dialect.explain, authorise=authorise, model_api=config.model_api
    ).services()
    plan = {
        "grpc inference": (
            *(config.grpc_host, config.grpc_port, inference),
            *(config.grpc_max_connection_age, config.grpc_max_connection_age_grace),
        ),
        "grpc management": (
            *(config.grpc_management_host, config.grpc_management_port, management),
            *(config.grpc_management_max_connection_age, config.grpc_management_max_connection_age_grace),
        ),
    }
    limits = Http2Limits(max_message=config.max_request_size, max_connections=config.max_connections)
    return {
        name: listen(services, replace(limits, max_age=age, max_age_grace=grace), host=host, port=port, ssl_context=tls)
        for name, (host, port, services, age, grace) in plan.items()
        if port >= 0
    }
