"""WorkflowIntake: from a workflow archive to models that are ready to be registered, and their graph."""

from collections.abc import Mapping

import msgspec

from shoal.archive.intake import Intake, Obtained
from shoal.archive.workflow import Specification, read_specification
from shoal.config.model import Batching, ModelConfig
from shoal.core.graph import Graph
from shoal.core.workflow import Node, Workflow
from shoal.errors import BadArchive, InvalidInput, ServingError, SourceNotFound, WorkflowNotFound

SHOWN = ("min-workers", "max-workers", "batch-size", "max-batch-delay")


class WorkflowIntake:
    """Takes workflows in; what fails leaves nothing behind."""

    def __init__(self, intake: Intake, store: str) -> None:
        self._intake = intake
        self._store = store
        self._kept: dict[str, Obtained] = {}

    async def prepare(self, parameters: Mapping[str, str]) -> Workflow:
        """Make a workflow of what `url` names; every model in it is prepared as if it were registered alone."""
        try:
            obtained = await self._intake.obtain(parameters, store=self._store)
        except SourceNotFound as error:
            raise _not_found(error, parameters["url"]) from None
        nodes: dict[str, Node] = {}
        try:
            spec = read_specification(obtained.path, parameters.get("workflow_name", ""))
            graph = Graph(spec.edges)
            times = {key: parameters[key] for key in ("response_timeout", "startup_timeout") if key in parameters}
            for node in graph.nodes:
                nodes[node] = await self._node(spec, node, str(obtained.path), times)
        except BaseException as error:
            self._discard_models(nodes)
            self._intake.release(obtained)
            if isinstance(error, InvalidInput) and not isinstance(error, BadArchive):
                raise BadArchive(f"Invalid workflow: {error}") from None
            raise
        self._kept[str(obtained.path)] = obtained
        shown = {key: spec.defaults[key] for key in SHOWN}
        return Workflow(spec.name, parameters["url"], graph, nodes, shown, str(obtained.path))

    def discard(self, workflow: Workflow) -> None:
        """Remove what was unpacked and downloaded for a workflow that is gone."""
        self._discard_models(workflow.nodes)
        if (obtained := self._kept.pop(workflow.folder, None)) is not None:
            self._intake.release(obtained)

    async def _node(self, spec: Specification, node: str, folder: str, times: Mapping[str, str]) -> Node:
        name = f"{spec.name}__{node}"
        settings = spec.models.get(node)
        if settings is None:
            return Node(_function(name, folder, f"{spec.handler}:{node}", spec.name), *_trying(spec.defaults))
        config = await self._intake.prepare(
            {
                **times,
                "url": settings["url"],
                "model_name": name,
                "initial_workers": str(max(1, settings["min-workers"])),
                "batch_size": str(max(1, settings["batch-size"])),
                "max_batch_delay": str(settings["max-batch-delay"]),
            }
        )
        most = max(config.workers, settings["max-workers"])
        return Node(msgspec.structs.replace(config, max_workers=most, workflow=spec.name), *_trying(settings))

    def _discard_models(self, nodes: Mapping[str, Node]) -> None:
        for node in nodes.values():
            self._intake.discard(node.config)


def _not_found(error: SourceNotFound, url: str) -> ServingError:
    """Say that a workflow is missing where a model would be said to be."""
    if not str(error).startswith("Model not found"):
        return error
    missing = WorkflowNotFound(url)
    missing.args = (f"Workflow not found in workflow store: {url}",)
    return missing


def _function(name: str, folder: str, handler: str, workflow: str) -> ModelConfig:
    """A function of the workflow's own file, as a model that lists do not show."""
    return ModelConfig(
        name=name,
        path=folder,
        handler=handler,
        flavour="torchserve",
        is_hidden=True,
        workflow=workflow,
        isolate=False,
        batching=Batching(policy="fixed", batch_size=1, max_batch_delay=0.0),
    )


def _trying(settings: Mapping[str, int]) -> tuple[int, float]:
    return 1 + settings["retry-attempts"], settings["timeout-ms"] / 1000
