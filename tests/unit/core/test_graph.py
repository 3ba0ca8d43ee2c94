from collections.abc import Callable
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.graph import Graph, Walk
from shoal.errors import HandlerFailed, InvalidInput, ServingError
from shoal.payload import Part, Payload, Result

DIAMOND = {"a": ["b", "c"], "b": ["d"], "c": ["d"]}


class Yard:
    """Runs nodes when told to; keeps what each was given."""

    def __init__(self, graph: Graph) -> None:
        self.given: dict[str, dict[str, bytes]] = {}
        self.waiting: dict[str, Callable[[Result | ServingError], None]] = {}
        self.called_off: list[str] = []
        self.ends: list[tuple[dict[str, bytes] | str, str]] = []
        self.walk = Walk(graph, self.run, self.end)

    def run(self, node: str, payload: Payload, done: Callable[[Result | ServingError], None]) -> Callable[[], None]:
        assert node not in self.given, "a node runs once"
        self.given[node] = {part.name: _bytes(part) for part in payload.parts}
        self.waiting[node] = done
        return lambda: self.called_off.append(node)

    def end(self, outcome: dict[str, Result] | ServingError, node: str) -> None:
        said: Any = str(outcome)
        if not isinstance(outcome, ServingError):
            said = {leaf: bytes(result.body) for leaf, result in outcome.items()}
        self.ends.append((said, node))

    def begin(self, data: bytes = b"in") -> "Yard":
        self.walk.begin(Payload([Part("data", "text/plain", data)]))
        return self

    def answer(self, node: str, body: bytes = b"") -> None:
        self.waiting.pop(node)(Result(body or f"<{node}>".encode()))

    def fail(self, node: str) -> None:
        self.waiting.pop(node)(HandlerFailed("no"))


def _bytes(part: Part) -> bytes:
    assert isinstance(part.data, bytes)
    return part.data


def test_the_first_node_sees_what_the_client_sent_and_the_next_ones_a_body() -> None:
    yard = Yard(Graph({"a": ["b"], "b": []})).begin()
    assert yard.given == {"a": {"data": b"in"}}
    yard.answer("a")

    assert yard.given["b"] == {"body": b"<a>"}
    yard.answer("b")
    assert yard.ends == [({"b": b"<b>"}, "b")]


def test_a_node_with_several_before_it_waits_for_all_and_sees_them_by_name() -> None:
    yard = Yard(Graph(DIAMOND)).begin()
    yard.answer("a")
    yard.answer("c")
    assert "d" not in yard.given
    yard.answer("b")

    assert yard.given["d"] == {"b": b"<b>", "c": b"<c>"}
    yard.answer("d")
    assert yard.ends == [({"d": b"<d>"}, "d")]


def test_several_leaves_answer_together() -> None:
    yard = Yard(Graph({"a": ["b", "c"]})).begin()
    for node in "abc":
        yard.answer(node)

    assert yard.ends == [({"b": b"<b>", "c": b"<c>"}, "c")]


def test_a_failure_ends_it_once_and_calls_the_others_off() -> None:
    yard = Yard(Graph(DIAMOND)).begin()
    yard.answer("a")
    yard.fail("b")
    yard.answer("c")

    assert yard.ends == [("no", "b")]
    assert yard.called_off == ["c"]
    assert "d" not in yard.given


def test_a_client_that_left_hears_nothing_and_nothing_goes_on() -> None:
    yard = Yard(Graph(DIAMOND)).begin()
    yard.walk.withdraw()
    yard.answer("a")

    assert (yard.ends, yard.called_off) == ([], ["a"])
    assert list(yard.given) == ["a"]


@pytest.mark.parametrize(
    ("edges", "problem"),
    [
        ({}, "has no nodes"),
        ({"a": ["a"]}, "circle: a -> a"),
        ({"a": ["b"], "b": ["c"], "c": ["b"]}, "circle: b -> c -> b"),
        ({"a": ["c"], "b": ["c"]}, "exactly one node to begin with, it has a, b"),
    ],
)
def test_a_graph_that_cannot_be_walked_is_refused(edges: dict[str, list[str]], problem: str) -> None:
    with pytest.raises(InvalidInput, match=problem):
        Graph(edges)


@st.composite
def graphs(draw: st.DrawFn) -> Graph:
    size = draw(st.integers(1, 8))
    edges: dict[str, list[str]] = {"0": []}
    for node in range(1, size):
        for before in draw(st.sets(st.integers(0, node - 1), min_size=1)):
            edges.setdefault(str(before), []).append(str(node))
    return Graph(edges)


@given(graphs(), st.randoms(use_true_random=False))
def test_every_node_runs_once_after_all_before_it_in_whatever_order_they_answer(graph: Graph, random: Any) -> None:
    yard = Yard(graph).begin()
    answered: list[str] = []
    while yard.waiting:
        node = random.choice(sorted(yard.waiting))
        assert set(graph.before[node]) <= set(answered)
        answered.append(node)
        yard.answer(node)

    assert sorted(answered) == sorted(graph.nodes)
    assert [set(said) for said, _ in yard.ends] == [set(graph.leaves)]
