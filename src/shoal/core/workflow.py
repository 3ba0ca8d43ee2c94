"""Workflow: models and functions joined into a graph under one name, and the registry of those a server has."""

import asyncio
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import dataclass

from shoal.clock import Clock
from shoal.config.model import ModelConfig
from shoal.core.graph import Graph, Walk
from shoal.core.repository import Repository
from shoal.core.request import Outcome, Request
from shoal.errors import Conflict, DeadlineExceeded, ServingError, WorkflowNotFound
from shoal.payload import Payload, Result

OnEnd = Callable[[dict[str, Result] | ServingError, str], None]


@dataclass(frozen=True, slots=True)
class Node:
    """One model or function of a workflow, and how hard it is tried."""

    config: ModelConfig
    attempts: int = 1
    timeout: float = 10.0  # s for one attempt


@dataclass(frozen=True, slots=True)
class Workflow:
    """A graph whose nodes are models of their own, named `<workflow>__<node>`."""

    name: str
    url: str
    graph: Graph
    nodes: Mapping[str, Node]
    defaults: Mapping[str, int]  # of its specification: min-workers, max-workers, batch-size, max-batch-delay
    folder: str = ""  # what its archive was unpacked to


class Workflows:
    """Registers workflows whole or not at all, finds them, runs requests through them."""

    def __init__(self, repository: Repository, clock: Clock) -> None:
        self._repository = repository
        self._clock = clock
        self._workflows: dict[str, Workflow] = {}

    def __iter__(self) -> Iterator[Workflow]:
        return iter(sorted(self._workflows.values(), key=lambda workflow: workflow.name))

    def find(self, name: str) -> Workflow:
        """Give the workflow of a name; raises WorkflowNotFound."""
        try:
            return self._workflows[name]
        except KeyError:
            raise WorkflowNotFound(name) from None

    async def register(self, workflow: Workflow) -> None:
        """Load every model of it; when one cannot be loaded none stays, and the reason is raised."""
        if workflow.name in self._workflows:
            raise Conflict(f"Workflow {workflow.name} is already registered.")
        self._workflows[workflow.name] = workflow
        loads = [asyncio.ensure_future(self._repository.register(node.config)) for node in workflow.nodes.values()]
        outcomes = await asyncio.gather(*loads, return_exceptions=True)
        failed = [outcome for outcome in outcomes if isinstance(outcome, BaseException)]
        if failed:
            del self._workflows[workflow.name]
            loaded = [outcome for outcome in outcomes if not isinstance(outcome, BaseException)]
            await asyncio.gather(*(self._repository.unregister(model.name, model.version, 0.0) for model in loaded))
            raise failed[0]

    async def unregister(self, name: str, timeout: float) -> Workflow:
        """Take it out at once, then let its models finish what they had."""
        workflow = self.find(name)
        del self._workflows[name]
        configs = [node.config for node in workflow.nodes.values()]
        await asyncio.gather(*(self._repository.unregister(c.name, c.version, timeout) for c in configs))
        return workflow

    def begin(self, workflow: Workflow, payload: Payload, on_end: OnEnd, *, id: bytes = b"") -> Walk:
        """Send a request through the graph; its payload holds no lent memory."""
        walk = Walk(
            workflow.graph, lambda node, data, done: Attempt(self, workflow.nodes[node], data, done, id).stop, on_end
        )
        walk.begin(payload)
        return walk

    def submit(self, config: ModelConfig, request: Request) -> Callable[[], None]:
        """Give a request to a node's model; gives the way to withdraw it."""
        model = self._repository.find(config.name, config.version)
        model.submit(request)
        return lambda: model.withdraw(request)

    def now(self) -> float:
        """The time on the clock of the models."""
        return self._clock.now()


class Attempt:
    """The tries of one node for one request; what a node streams is joined."""

    def __init__(
        self,
        workflows: Workflows,
        node: Node,
        payload: Payload,
        done: Callable[[Result | ServingError], None],
        id: bytes,
    ) -> None:
        self._workflows = workflows
        self._node = node
        self._payload = payload
        self._done = done
        self._id = id
        self._left = node.attempts
        self._pieces: list[bytes] = []
        self._withdraw: Callable[[], None] = _nothing
        self._try()

    def stop(self) -> None:
        """Nobody waits for it any more."""
        self._withdraw()

    def _try(self) -> None:
        self._left -= 1
        self._pieces = []
        now = self._workflows.now()
        deadline = now + self._node.timeout if self._node.timeout else math.inf
        request = Request(self._payload, self._answer, now, id=self._id, deadline=deadline)
        try:
            self._withdraw = self._workflows.submit(self._node.config, request)
        except ServingError as error:
            self._withdraw = _nothing
            self._done(error)

    def _answer(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        if isinstance(outcome, ServingError):
            self._withdraw = _nothing
            if self._left > 0 and not isinstance(outcome, DeadlineExceeded):
                self._try()
            else:
                self._done(outcome)
            return
        self._pieces.append(bytes(outcome.body))
        if is_last:
            self._withdraw = _nothing
            self._done(Result(b"".join(self._pieces), outcome.content_type, outcome.status))


def _nothing() -> None:
    pass
