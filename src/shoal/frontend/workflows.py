"""Workflows over HTTP in TorchServe's form: register, describe, list, remove, predict."""

import asyncio
import logging
from collections.abc import Awaitable, Callable, Mapping
from typing import Any, Protocol
from urllib.parse import parse_qsl

import msgspec

from shoal.core.workflow import Workflow, Workflows
from shoal.errors import HandlerFailed, InvalidInput, LoadFailed, ServingError
from shoal.frontend.dialect import Dialect
from shoal.frontend.exchange import Exchange
from shoal.frontend.forms import form_parts, is_form
from shoal.frontend.routes import segments_of
from shoal.frontend.status import error_body
from shoal.frontend.tokens import Api
from shoal.payload import Part, Payload, Result

log = logging.getLogger("shoal.workflows")
MOST_LISTED = 100
Answer = tuple[int, Any]


class Intake(Protocol):
    """Where workflows come from."""

    async def prepare(self, parameters: Mapping[str, str]) -> Workflow:
        """Fetch, check and unpack what a registration names; what fails leaves nothing behind."""
        ...

    def discard(self, workflow: Workflow) -> None:
        """Remove what was prepared."""
        ...


class WorkflowRoutes:
    """`/workflows...` for the management port and `/wfpredict/{workflow}` for the inference port."""

    def __init__(
        self,
        workflows: Workflows,
        intake: Intake,
        dialect: Dialect,
        *,
        drain_within: float,
        authorise: Callable[[Api, Exchange], None] | None = None,
    ) -> None:
        self._workflows = workflows
        self._intake = intake
        self._dialect = dialect
        self._drain_within = drain_within
        self._authorise = authorise
        self._tasks: set[asyncio.Task[None]] = set()

    def manage(self, exchange: Exchange) -> bool:
        """Act on `/workflows...`; False when the target is somebody else's."""
        segments = segments_of(exchange.path)
        if segments[:1] != ["workflows"]:
            return False
        allowed = {1: ("GET", "POST"), 2: ("GET", "DELETE")}.get(len(segments), ())
        name = segments[1] if len(segments) > 1 else ""
        query = dict(parse_qsl(exchange.query.decode("ascii", "replace"), keep_blank_values=True))
        if not allowed:
            self._dialect.not_found(exchange)
        elif not self._may("management", exchange):
            pass
        elif exchange.method not in allowed:
            self._dialect.not_allowed(exchange, allowed)
        else:
            act = {
                ("GET", False): lambda: self._list(query),
                ("POST", False): lambda: self._register(query),
                ("GET", True): lambda: self._describe(name),
                ("DELETE", True): lambda: self._unregister(name),
            }[exchange.method, bool(name)]
            task = asyncio.get_running_loop().create_task(self._answer(exchange, act))
            self._tasks.add(task)
            task.add_done_callback(self._tasks.discard)
        exchange.drop_body()
        return True

    def predict(self, exchange: Exchange) -> bool:
        """Send a request through a workflow; False when the target is somebody else's."""
        match segments_of(exchange.path):
            case ["wfpredict", name]:
                pass
            case _:
                return False
        if not self._may("inference", exchange):
            exchange.drop_body()
            return True
        try:
            workflow = self._workflows.find(name)
            payload = Payload(_parts(exchange))
        except ServingError as error:
            self._dialect.refuse(exchange, error)
        else:
            walk = self._workflows.begin(
                workflow, payload, lambda outcome, node: self._end(exchange, outcome, node), id=self._dialect.new_id()
            )
            if not walk.has_ended:
                exchange.on_gone = walk.withdraw
        exchange.drop_body()
        return True

    def _end(self, exchange: Exchange, outcome: dict[str, Result] | ServingError, node: str) -> None:
        exchange.on_gone = None
        if isinstance(outcome, ServingError):
            log.error(
                "%s failed: %s", node, outcome, extra={"fields": {"traceback": getattr(outcome, "traceback", "")}}
            )
            self._dialect.refuse(exchange, HandlerFailed(f"Error executing {node}", status=500))
            return
        if len(outcome) == 1:
            (result,) = outcome.values()
            self._dialect.respond(exchange, 200, bytes(result.body))
            return
        try:
            values = {leaf: msgspec.json.decode(result.body) for leaf, result in outcome.items()}
        except msgspec.DecodeError:
            words = "several nodes end this workflow, so each must answer JSON, and not all of them did"
            self._dialect.refuse(exchange, HandlerFailed(words, status=500))
            return
        self._dialect.say(exchange, 200, values)

    async def _answer(self, exchange: Exchange, act: Callable[[], Awaitable[Answer]]) -> None:
        try:
            status, body = await act()
        except ServingError as error:
            self._dialect.refuse(exchange, error)
        except Exception:
            log.exception("a call about workflows failed")
            body = error_body(500, "InternalServerException", "internal error, see the log")
            self._dialect.respond(exchange, 500, body)
        else:
            self._dialect.say(exchange, status, body)

    async def _register(self, parameters: Mapping[str, str]) -> Answer:
        if not parameters.get("url"):
            raise InvalidInput("Parameter url is required.")
        workflow = await self._intake.prepare(parameters)
        try:
            await self._workflows.register(workflow)
        except BaseException as error:
            self._intake.discard(workflow)
            if isinstance(error, LoadFailed):
                raise LoadFailed(f"Workflow {workflow.name} has failed to register. {error}", error.traceback) from None
            raise
        return 200, {"status": f"Workflow {workflow.name} has been registered and scaled successfully."}

    async def _unregister(self, name: str) -> Answer:
        self._intake.discard(await self._workflows.unregister(name, self._drain_within))
        return 200, {"status": f'Workflow "{name}" unregistered'}

    async def _list(self, query: Mapping[str, str]) -> Answer:
        limit, start = _number(query, "limit", MOST_LISTED), max(0, _number(query, "next_page_token", 0))
        limit = limit if 0 <= limit <= MOST_LISTED else MOST_LISTED
        every = list(self._workflows)
        page: dict[str, Any] = {"nextPageToken": str(start + limit)} if start + limit <= len(every) else {}
        rows = [{"workflowName": one.name, "workflowUrl": one.url} for one in every[start : start + limit]]
        return 200, {**page, "workflows": rows}

    async def _describe(self, name: str) -> Answer:
        workflow = self._workflows.find(name)
        edges = ", ".join(f"{node}=[{', '.join(after)}]" for node, after in workflow.graph.edges.items() if after)
        defaults = workflow.defaults
        return 200, [
            {
                "workflowName": workflow.name,
                "workflowUrl": workflow.url,
                "minWorkers": defaults["min-workers"],
                "maxWorkers": defaults["max-workers"],
                "batchSize": defaults["batch-size"],
                "maxBatchDelay": defaults["max-batch-delay"],
                "workflowDag": f"{{{edges}}}",
            }
        ]

    def _may(self, api: Api, exchange: Exchange) -> bool:
        if self._authorise is None:
            return True
        try:
            self._authorise(api, exchange)
        except ServingError as error:
            self._dialect.refuse(exchange, error)
            return False
        return True


def _parts(exchange: Exchange) -> list[Part]:
    """What the client sent, copied out of lent memory: it is read once for each node and try."""
    body = exchange.body if isinstance(exchange.body, bytes) else bytes(exchange.body.view)
    if is_form(exchange.content_type):
        return form_parts(exchange.content_type, body)
    return [Part("body", exchange.content_type.decode("latin-1"), body)]


def _number(query: Mapping[str, str], name: str, default: int) -> int:
    try:
        return int(query.get(name, default))
    except ValueError:
        return default
