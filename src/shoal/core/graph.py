"""Graph: nodes that pass a request on. Walk: one request on its way through all of them.

A node runs once everything before it has answered; whoever has nothing after it gives a part of the final answer.
"""

from collections.abc import Callable, Mapping, Sequence
from typing import Final

from shoal.errors import InvalidInput, ServingError, Withdrawn
from shoal.payload import Part, Payload, Result

BODY: Final = "body"
Done = Callable[[Result | ServingError], None]
Run = Callable[[str, Payload, Done], Callable[[], None]]  # start a node; gives the way to call it off


class Graph:
    """Which node comes after which: exactly one begins, none comes round again."""

    def __init__(self, edges: Mapping[str, Sequence[str]]) -> None:
        self.edges = {node: tuple(dict.fromkeys(after)) for node, after in edges.items()}
        self.nodes = tuple(dict.fromkeys([*self.edges, *(node for after in self.edges.values() for node in after)]))
        if not self.nodes:
            raise InvalidInput("the graph has no nodes")
        self.before = {
            node: tuple(other for other in self.nodes if node in self.edges.get(other, ())) for node in self.nodes
        }
        self.leaves = tuple(node for node in self.nodes if not self.edges.get(node))
        starts = [node for node in self.nodes if not self.before[node]]
        if circle := self._circle():
            raise InvalidInput(f"the graph goes round in a circle: {' -> '.join(circle)}")
        if len(starts) != 1:
            raise InvalidInput(f"the graph needs exactly one node to begin with, it has {', '.join(starts)}")
        self.start = starts[0]

    def _circle(self) -> list[str]:
        """The nodes of a circle, if there is one."""
        seen: set[str] = set()
        for origin in self.nodes:
            path = [origin]
            ways = [iter(self.edges.get(origin, ()))]
            while ways and origin not in seen:
                node = next(ways[-1], None)
                if node is None:
                    seen.add(path.pop())
                    ways.pop()
                elif node in path:
                    return [*path[path.index(node) :], node]
                elif node not in seen:
                    path.append(node)
                    ways.append(iter(self.edges.get(node, ())))
        return []


class Walk:
    """One request in a graph. `on_end` hears the leaves' answers by name, or the first error with its node; once."""

    def __init__(self, graph: Graph, run: Run, on_end: Callable[[dict[str, Result] | ServingError, str], None]) -> None:
        self._graph = graph
        self._run = run
        self._on_end: Callable[[dict[str, Result] | ServingError, str], None] | None = on_end
        self._answers: dict[str, Result] = {}
        self._running: dict[str, Callable[[], None]] = {}

    @property
    def has_ended(self) -> bool:
        """Whether its end was told, or nobody wants to hear it."""
        return self._on_end is None

    def begin(self, payload: Payload) -> None:
        """Run the first node with what the client sent."""
        self._launch(self._graph.start, payload)

    def withdraw(self) -> None:
        """The client left: whatever runs is called off, nobody hears of it."""
        self._on_end = None
        self._call_off()

    def _launch(self, node: str, payload: Payload) -> None:
        is_done = False

        def done(outcome: Result | ServingError) -> None:
            nonlocal is_done
            is_done = True
            self._running.pop(node, None)
            self._done(node, outcome)

        call_off = self._run(node, payload, done)
        if not is_done and not self.has_ended:
            self._running[node] = call_off
        elif not is_done:
            call_off()

    def _done(self, node: str, outcome: Result | ServingError) -> None:
        if self._on_end is None:
            return
        if isinstance(outcome, ServingError):
            self._end(outcome, node)
            return
        self._answers[node] = outcome
        graph = self._graph
        for after in graph.edges.get(node, ()):
            if self._on_end is not None and all(other in self._answers for other in graph.before[after]):
                self._launch(after, self._payload_for(after))
        if self._on_end is not None and all(leaf in self._answers for leaf in graph.leaves):
            self._end({leaf: self._answers[leaf] for leaf in graph.leaves}, node)

    def _payload_for(self, node: str) -> Payload:
        """What the nodes before gave: as `body` from a single one, by their names from several."""
        before = self._graph.before[node]
        names = [BODY] if len(before) == 1 else before
        return Payload([Part(name, "", self._answers[other].body) for name, other in zip(names, before, strict=True)])

    def _end(self, outcome: dict[str, Result] | ServingError, node: str) -> None:
        on_end, self._on_end = self._on_end, None
        self._call_off()
        if on_end is not None and not isinstance(outcome, Withdrawn):
            on_end(outcome, node)

    def _call_off(self) -> None:
        running, self._running = self._running, {}
        for call_off in running.values():
            call_off()
