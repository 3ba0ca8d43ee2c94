"""Management over HTTP in TorchServe's form: register, describe, scale, list, set default, remove."""

import asyncio
import logging
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime
from typing import Any
from urllib.parse import parse_qsl, unquote

import msgspec

from shoal.config.model import ModelConfig
from shoal.core.model import Model
from shoal.core.repository import Repository
from shoal.errors import InvalidInput, ServingError
from shoal.frontend.exchange import Exchange
from shoal.frontend.mms import refuse
from shoal.frontend.status import JSON, error_body, json_body

log = logging.getLogger("shoal.management")
Answer = tuple[int, Any]
Configure = Callable[[dict[str, str]], Awaitable[ModelConfig]]
METHODS = {  # segments after /models -> allowed methods
    0: ("GET", "POST"),
    1: ("GET", "PUT", "DELETE"),
    2: ("GET", "PUT", "DELETE"),
    3: ("PUT",),
}


class Management:
    """The management routes. `configure` turns the parameters of a registration into a ModelConfig."""

    def __init__(self, repository: Repository, configure: Configure, *, drain_within: float, development: bool) -> None:
        self._repository = repository
        self._configure = configure
        self._drain_within = drain_within
        self._development = development
        self._tasks: set[asyncio.Task[None]] = set()

    def manage(self, exchange: Exchange) -> bool:
        """Act on `/models...`; False when the target is somebody else's."""
        segments = [unquote(part) for part in exchange.path.decode("ascii", "replace").split("/") if part]
        if not segments or segments[0] != "models":
            return False
        if not _is_same_origin(exchange):
            message = "a page of another origin may not manage this server"
            exchange.respond(403, error_body(403, "ForbiddenException", message), JSON)
            return True
        rest = segments[1:]
        allowed = METHODS.get(len(rest), ())
        if len(rest) == 3 and rest[2] != "set-default":
            allowed = ()
        if not allowed:
            not_found(exchange)
        elif exchange.method not in allowed:
            not_allowed(exchange, allowed)
        else:
            self._spawn(self._answer(exchange, self._action(exchange, rest)))
        return True

    def _spawn(self, work: Any) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)

    def _action(self, exchange: Exchange, rest: list[str]) -> Callable[[], Awaitable[Answer]]:
        name, version = [*rest, "", ""][:2]
        query = dict(parse_qsl(exchange.query.decode("ascii", "replace"), keep_blank_values=True))
        if not rest:
            if exchange.method == "GET":
                return lambda: self._list(query)
            return lambda: self._register(_parameters(exchange, query))
        if len(rest) == 3:
            return lambda: self._set_default(name, version)
        match exchange.method:
            case "GET":
                return lambda: self._describe(name, version)
            case "PUT":
                return lambda: self._scale(name, version or query.get("model_version", ""), query)
            case _:
                return lambda: self._unregister(name, version)

    async def _answer(self, exchange: Exchange, action: Callable[[], Awaitable[Answer]]) -> None:
        try:
            status, body = await action()
            exchange.respond(status, json_body(body), JSON)
        except ServingError as error:
            refuse(exchange, error, development=self._development)
        except Exception:
            log.exception("management call failed")
            exchange.respond(500, error_body(500, "InternalServerException", "internal error, see the log"), JSON)

    async def _list(self, query: dict[str, str]) -> Answer:
        limit = _number(query, "limit", 100)
        limit = limit if 0 <= limit <= 100 else 100
        start = max(0, _number(query, "next_page_token", 0))
        names = self._repository.names()
        page: dict[str, Any] = {"nextPageToken": str(start + limit)} if start + limit <= len(names) and names else {}
        models = [self._repository.find(name) for name in names[start : start + limit]]
        return 200, {**page, "models": [{"modelName": m.name, "modelUrl": m.config.path} for m in models]}

    async def _register(self, parameters: dict[str, str]) -> Answer:
        config = await self._configure(parameters)
        if parameters.get("synchronous", "true").lower() != "true" and config.workers:
            model = self._repository.add(config)
            self._spawn(_start_later(model))
            return 202, {"status": "Processing worker updates..."}
        model = await self._repository.register(config)
        text = f'Model "{model.name}" Version: {model.version} registered with {config.workers} initial workers'
        if not config.workers:
            text += ". Use scale workers API to add workers for the model."
        return 200, {"status": text}

    async def _describe(self, name: str, version: str) -> Answer:
        if version == "all":
            return 200, [facts(model) for model in self._repository.versions(name)]
        return 200, [facts(self._repository.find(name, version))]

    async def _scale(self, name: str, version: str, query: dict[str, str]) -> Answer:
        model = self._repository.find(name, version)
        low = _number(query, "min_worker", 1)
        high = _number(query, "max_worker", low)
        if low < 0:
            raise InvalidInput(f"min_worker must be 0 or more, got {low}")
        if high < low:
            raise InvalidInput("max_worker cannot be less than min_worker.")
        target = min(max(model.pool.size, low), high)
        if query.get("synchronous", "false").lower() != "true":
            self._spawn(_scale_later(model, target))
            return 202, {"status": "Processing worker updates..."}
        await model.scale(target)
        suffix = f", version: {version}" if version else ""
        return 200, {"status": f"Workers scaled to {target} for model: {name}{suffix}"}

    async def _set_default(self, name: str, version: str) -> Answer:
        self._repository.set_default(name, version)
        return 200, {"status": f'Default version successfully updated for model "{name}" to "{version}"'}

    async def _unregister(self, name: str, version: str) -> Answer:
        await self._repository.unregister(name, version, self._drain_within)
        return 200, {"status": f'Model "{name}" unregistered'}


def facts(model: Model) -> dict[str, Any]:
    """Describe a version: TorchServe's keys first, then what only Shoal knows."""
    config, scheduler, stats = model.config, model.scheduler, model.scheduler.stats
    waiting = len(scheduler.batcher.queue)
    return {
        "modelName": model.name,
        "modelVersion": model.version,
        "modelUrl": config.path,
        "runtime": "python",
        "minWorkers": model.pool.size,
        "maxWorkers": model.pool.size,
        "batchSize": scheduler.batcher.policy.limit,
        "maxBatchDelay": config.batching.max_batch_delay if config.batching.rule == "fixed" else 0,
        "responseTimeout": config.response_timeout,
        "startupTimeout": config.startup_timeout,
        "deviceType": "gpu" if config.device.startswith("cuda") else "cpu",
        "workers": [
            {
                "id": worker.id,
                "startTime": datetime.fromtimestamp(worker.started, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
                "status": worker.state.upper(),
                "secondsInStatus": round(worker.since, 3),
                "memoryUsage": worker.memory,
                "pid": worker.pid,
                "gpu": worker.device.startswith("cuda"),
                "restarts": worker.restarts,
                "lastError": worker.last_error,
            }
            for worker in model.pool.describe()
        ],
        "jobQueueStatus": {"remainingCapacity": config.queue_size - waiting, "pendingRequests": waiting},
        "state": model.life.value,
        "error": model.error,
        "batching": {
            "policy": config.batching.rule,
            "reasons": stats.reasons,
            "answered": stats.answered,
            "failed": stats.failed,
            **scheduler.batcher.policy.describe(),
        },
    }


def not_found(exchange: Exchange) -> None:
    """Answer for a path that is nobody's."""
    message = "Requested resource is not found, please refer to API document."
    exchange.respond(404, error_body(404, "ResourceNotFoundException", message), JSON)


def not_allowed(exchange: Exchange, allowed: tuple[str, ...]) -> None:
    """Answer for a method that this path does not have."""
    message = f"Requested method is not allowed; this path takes {', '.join(allowed)}."
    head = JSON + b"Allow: %b\r\n" % ", ".join(allowed).encode()
    exchange.respond(405, error_body(405, "MethodNotAllowedException", message), head)


def _is_same_origin(exchange: Exchange) -> bool:
    """Whether this is no browser acting for a page from elsewhere."""
    origin = exchange.header(b"origin")
    return origin is None or origin.partition(b"://")[2] == exchange.header(b"host")


async def _start_later(model: Model) -> None:
    try:
        await model.start()
    except ServingError as error:
        log.error("%s", error, extra={"fields": {"model": model.name, "traceback": getattr(error, "traceback", "")}})


async def _scale_later(model: Model, workers: int) -> None:
    try:
        await model.scale(workers)
    except ServingError as error:
        log.error("scaling failed: %s", error, extra={"fields": {"model": model.name}})


def _parameters(exchange: Exchange, query: dict[str, str]) -> dict[str, str]:
    if not exchange.content_type.startswith(b"application/json"):
        return query
    body = exchange.body if isinstance(exchange.body, bytes) else bytes(exchange.body.view)
    try:
        fields = msgspec.json.decode(body, type=dict[str, str | int | float | bool])
    except msgspec.MsgspecError as error:
        raise InvalidInput(f"the body is not a JSON object of parameters: {error}") from None
    return {name: str(value).lower() if isinstance(value, bool) else str(value) for name, value in fields.items()}


def _number(query: dict[str, str], name: str, default: int) -> int:
    try:
        return int(query.get(name, default))
    except ValueError:
        raise InvalidInput(f"{name} is a whole number, got {query[name]!r}") from None
