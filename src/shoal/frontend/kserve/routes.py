"""The KServe v2 routes: which path means what, and who may use it."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Final
from urllib.parse import unquote

import msgspec

from shoal.core.model import Life
from shoal.errors import InvalidInput, ServingError
from shoal.frontend.exchange import Exchange
from shoal.frontend.kserve.calls import refuse
from shoal.frontend.kserve.control import check_explicit, list_models, read_load, read_unload
from shoal.frontend.kserve.describe import model_config, model_metadata, server_metadata
from shoal.frontend.kserve.desk import NotOurs
from shoal.frontend.kserve.heads import read_object
from shoal.frontend.kserve.infer import Infer
from shoal.frontend.kserve.parts import Parts
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.status import NotThere, Unsupported, error_body
from shoal.frontend.status import JSON

log = logging.getLogger("shoal.kserve")
MOST_TARGETS: Final = 1024
NO_CUDA: Final = "CUDA shared memory is not supported by this server; register system shared memory instead"
Action = Callable[[Exchange], None]
Target = tuple[str, Mapping[str, Action]]  # the group, and what is done by method


class Routes:
    """Answers what is under /v2, except for models that take no tensors: those are somebody else's."""

    def __init__(self, parts: Parts, infer: Infer) -> None:
        self._desk = parts.desk
        self._control = parts.control
        self._statistics = parts.statistics
        self._about = parts.about
        self._trace = parts.trace
        self._logs = parts.logs
        self._infer = infer
        self._access = parts.http
        self._targets: dict[bytes, Plan] = {}  # of inferences, by their paths as clients write them
        self._seen = -1
        self._tasks: set[asyncio.Task[None]] = set()

    def take(self, exchange: Exchange) -> bool:
        """Answer if the target is one of ours."""
        target = exchange.target
        if target[:3] != b"/v2" and target[:1] == b"/":
            return False  # what is written with its scheme and host is looked at below
        plan = self._targets.get(target) if self._seen == self._desk.repository.changes else None
        if plan is not None and exchange.method == "POST" and plan.model.life is Life.READY:
            if not self._access.is_restricted or self._may(exchange, "inference"):
                self._infer.begin(exchange, plan)
            return True
        path = exchange.path
        if path != b"/v2" and not path.startswith(b"/v2/"):
            return False
        segments = [unquote(segment) for segment in path.decode("ascii", "replace").split("/")[2:]]
        try:
            found = self._target(segments)
            if found is None:
                return _say(exchange, 404, error_body("Not Found"))
            group, actions = found
            action = actions.get(exchange.method)
            if action is None:
                return _say(exchange, 405, error_body("Method Not Allowed"), allowed=actions)
            if not self._access.is_restricted or self._may(exchange, group):
                action(exchange)
        except NotOurs:
            return False
        except ServingError as error:
            exchange.drop_body()
            refuse(exchange, error)
        return True

    def _may(self, exchange: Exchange, group: str) -> bool:
        try:
            self._access.check(group, exchange.headers)
        except ServingError as error:
            exchange.drop_body()
            refuse(exchange, error)
            return False
        return True

    def _target(self, segments: list[str]) -> Target | None:
        match segments:
            case []:
                return _get("metadata", lambda: server_metadata(self._about))
            case ["health", "live"]:
                return "health", {"GET": lambda exchange: _empty(exchange, 200 if self._about.is_live() else 503)}
            case ["health", "ready"]:
                return "health", {"GET": lambda exchange: _empty(exchange, 200 if self._about.is_ready() else 400)}
            case ["models", "stats"]:
                return _get("statistics", lambda: self._all_statistics())
            case ["models", name, "versions", version, *rest] if name and _is_number(version):
                return self._of_model(name, version, rest)
            case ["models", name, *rest] if name and rest[:1] != ["versions"]:
                return self._of_model(name, "", rest)
            case ["repository", *rest]:
                return self._of_repository(rest)
            case ["systemsharedmemory" | "cudasharedmemory" as kind, *rest]:
                return self._of_memory(rest, is_cuda=kind[0] == "c")
            case ["trace", "setting"]:
                return self._of_trace("")
            case ["logging"]:
                return "logging", {
                    "GET": lambda exchange: _json(exchange, self._logs.read()),
                    "POST": lambda exchange: _json(exchange, self._logs.change(_object(exchange))),
                }
        return None

    def _of_model(self, name: str, version: str, rest: list[str]) -> Target | None:
        desk = self._desk
        desk.check_ours(name)
        match rest:
            case []:
                return _get("metadata", lambda: self._metadata(name, version))
            case ["ready"]:
                return "health", {"GET": lambda exchange: self._model_ready(exchange, name, version)}
            case ["config"]:
                return _get("model-config", lambda: model_config(desk.find(name, version).model.config))
            case ["stats"]:
                return _get("statistics", lambda: self._model_statistics(name, version))
            case ["infer"]:
                return "inference", {"POST": lambda exchange: self._begin(exchange, name, version)}
            case ["generate" | "generate_stream" as verb]:
                return "inference", {
                    "POST": lambda exchange: self._infer.generate(
                        exchange, desk.find(name, version), stream=verb == "generate_stream"
                    )
                }
            case ["trace", "setting"] if not version:
                return self._of_trace(name)
        return None

    def _begin(self, exchange: Exchange, name: str, version: str) -> None:
        plan = self._desk.find(name, version)
        changes = self._desk.repository.changes
        if self._seen != changes or len(self._targets) >= MOST_TARGETS:
            self._targets.clear()
            self._seen = changes
        if self._desk.is_lasting(name, version):
            self._targets[exchange.target] = plan
        self._infer.begin(exchange, plan)

    def _metadata(self, name: str, version: str) -> dict[str, Any]:
        plan = self._desk.find(name, version)
        return model_metadata(plan, [plan.model] if version else self._desk.versions(name))

    def _model_ready(self, exchange: Exchange, name: str, version: str) -> None:
        if self._desk.is_ready(name, version):
            _empty(exchange, 200)
        else:
            _say(exchange, 400, error_body("Model version not ready"))

    def _all_statistics(self) -> dict[str, Any]:
        models = [model for name in self._desk.repository.names() for model in self._desk.versions(name)]
        return {"model_stats": [self._statistics(model) for model in models]}

    def _model_statistics(self, name: str, version: str) -> dict[str, Any]:
        return {"model_stats": [self._statistics(model) for model in self._desk.measured(name, version)]}

    def _of_repository(self, rest: list[str]) -> Target | None:
        match rest:
            case ["index"] | [_, "index"]:
                return "model-repository", {"POST": self._index}
            case ["models", name, "load" | "unload" as verb] if name:
                repository = ""
            case [repository, "models", name, "load" | "unload" as verb] if name and repository:
                pass
            case _:
                return None
        work = self._load if verb == "load" else self._unload
        return "model-repository", {"POST": lambda exchange: work(exchange, name, repository)}

    def _index(self, exchange: Exchange) -> None:
        ready = _object(exchange).get("ready", False)
        if not isinstance(ready, bool):
            raise InvalidInput(f"'ready' is true or false, got {str(ready)[:80]}")
        self._spawn(exchange, list_models(self._control, ready))

    def _load(self, exchange: Exchange, name: str, repository: str) -> None:
        check_explicit(self._control, repository)
        self._spawn(exchange, self._control.load(name, read_load(_object(exchange))))

    def _unload(self, exchange: Exchange, name: str, repository: str) -> None:
        check_explicit(self._control, repository)
        self._control.unload(name, unload_dependents=read_unload(_object(exchange)))
        _empty(exchange, 200)

    def _of_memory(self, rest: list[str], *, is_cuda: bool) -> Target | None:
        regions = self._desk.regions
        match rest:
            case ["region", name, "status" | "register" | "unregister" as verb] if name:
                pass
            case ["status" | "unregister" as verb]:
                name = ""
            case _:
                return None

        def register(exchange: Exchange) -> None:
            body = _object(exchange)
            for field in ("key", "byte_size"):
                if field not in body:
                    raise InvalidInput(f"Shared memory register request has no '{field}' field")
            regions.register(name, body["key"], body.get("offset", 0), body["byte_size"])
            _empty(exchange, 200)

        def unregister(exchange: Exchange) -> None:
            regions.unregister(name)
            _empty(exchange, 200)

        group = "shared-memory"
        if verb == "status":
            return _get(group, lambda: _no_cuda_regions(name) if is_cuda else regions.status(name))
        if is_cuda:
            return group, {"POST": _no_cuda if verb == "register" else _forget_cuda}
        if verb == "unregister":
            return group, {"POST": unregister}

        return group, {"POST": register}

    def _of_trace(self, model: str) -> Target:
        def check() -> None:
            if model and not self._desk.versions(model):
                raise InvalidInput(f"Request for unknown model : {model}")

        def read(exchange: Exchange) -> None:
            check()
            _json(exchange, self._trace.read(model))

        def change(exchange: Exchange) -> None:
            check()
            _json(exchange, self._trace.change(_object(exchange), model))

        return "trace", {"GET": read, "POST": change}

    def _spawn(self, exchange: Exchange, work: Coroutine[Any, Any, Any]) -> None:
        task = asyncio.get_running_loop().create_task(_finish(exchange, work))
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _finish(exchange: Exchange, work: Coroutine[Any, Any, Any]) -> None:
    try:
        found = await work
    except ServingError as error:
        refuse(exchange, error)
    except Exception:
        log.exception("%s failed", exchange.target.decode("latin-1"))
        refuse(exchange, ServingError("the server failed on this request; its log says why"))
    else:
        _say(exchange, 200, b"" if found is None else msgspec.json.encode(found))


def _is_number(text: str) -> bool:
    return text.isascii() and text.isdecimal()


def _get(group: str, value: Callable[[], Any]) -> Target:
    return group, {"GET": lambda exchange: _json(exchange, value())}


def _object(exchange: Exchange) -> dict[str, Any]:
    body = exchange.body
    try:
        return read_object(body if isinstance(body, bytes) else body.view)
    finally:
        exchange.drop_body()


def _json(exchange: Exchange, value: Any) -> None:
    _say(exchange, 200, msgspec.json.encode(value))


def _empty(exchange: Exchange, status: int) -> None:
    _say(exchange, status, b"")


def _say(exchange: Exchange, status: int, body: bytes, allowed: Mapping[str, Action] | None = None) -> bool:
    exchange.drop_body()
    head = b"Allow: %b\r\n" % ", ".join(allowed).encode() if allowed else b""
    exchange.respond(status, body, JSON + head if body else head)
    return True


def _no_cuda(exchange: Exchange) -> None:
    raise Unsupported(NO_CUDA)


def _forget_cuda(exchange: Exchange) -> None:
    _empty(exchange, 200)


def _no_cuda_regions(name: str) -> list[dict[str, Any]]:
    if name:
        raise NotThere(f"Unable to find cuda shared memory region: '{name}'")
    return []
