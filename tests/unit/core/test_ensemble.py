"""Ensembles: what runs when, with which tensors, how often it answers, and how it ends."""

from collections.abc import Callable, Mapping, Sequence
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.config.scheduling import EnsembleScheduling, Step
from shoal.core.ensemble import Course, Ensemble, Tensors, Told
from shoal.errors import ConfigError, HandlerFailed, ServingError, Unavailable


def step(model: str, reads: Mapping[str, str], writes: Mapping[str, str]) -> Step:
    return Step(model_name=model, input_map=dict(reads), output_map=dict(writes))


def ensemble(inputs: Sequence[str], outputs: Sequence[str], *steps: Step) -> Ensemble:
    return Ensemble("e", inputs, outputs, EnsembleScheduling(step=list(steps)))


CHAIN = (step("pre", {"RAW": "raw"}, {"OUT": "image"}), step("net", {"X": "image"}, {"Y": "scores"}))


class Models:
    """The models behind an ensemble: they answer when the test says so."""

    def __init__(self, ensemble: Ensemble, *, at_once: bool = False) -> None:
        self.started: list[tuple[str, Tensors]] = []
        self.called_off: list[str] = []
        self.heard: list[tuple[object, bool]] = []
        self.on_heard: Callable[[], None] = lambda: None
        self._told: list[tuple[str, Told]] = []
        self._at_once = at_once
        self.course = Course(ensemble, self._run, self._hear)

    def _run(self, step: Step, tensors: Tensors, told: Told) -> Callable[[], None]:
        self.started.append((step.model_name, dict(tensors)))
        if self._at_once:
            told({name: f"{step.model_name}.{name}" for name in step.output_map}, True)
        else:
            self._told.append((step.model_name, told))
        return lambda: self.called_off.append(step.model_name)

    def _hear(self, outcome: Tensors | ServingError | None, is_last: bool) -> None:
        assert not any(last for _, last in self.heard), "told after the end"
        self.heard.append((outcome, is_last))
        self.on_heard()

    def answer(self, model: str, outcome: Tensors | ServingError, *, last: bool = True) -> None:
        """The oldest open call of a model answers."""
        index = next(index for index, (name, _) in enumerate(self._told) if name == model)
        told = self._told.pop(index) if last else self._told[index]
        told[1](outcome, last)

    @property
    def open(self) -> list[str]:
        return [name for name, _ in self._told]


def test_a_chain_passes_tensors_on_by_the_names_of_each_model() -> None:
    models = Models(ensemble(["raw"], ["scores"], *CHAIN))
    models.course.begin({"raw": b"jpeg"})
    assert models.started == [("pre", {"RAW": b"jpeg"})]
    models.answer("pre", {"OUT": "pixels"})
    assert models.started[1:] == [("net", {"X": "pixels"})]
    models.answer("net", {"Y": [0.9]})

    assert models.heard == [({"scores": [0.9]}, True)]
    assert models.course.has_ended


def test_steps_run_side_by_side_and_a_join_waits_for_both() -> None:
    models = Models(
        ensemble(
            ["a"],
            ["c", "l"],
            step("join", {"L": "l", "R": "r"}, {"C": "c"}),
            step("left", {"A": "a"}, {"O": "l"}),
            step("right", {"A": "a"}, {"O": "r"}),
        )
    )
    models.course.begin({"a": 1})
    assert [name for name, _ in models.started] == ["left", "right"]
    models.answer("right", {"O": "R"})
    assert models.open == ["left"]
    models.answer("left", {"O": "L"})
    assert models.started[-1] == ("join", {"L": "L", "R": "R"})
    models.answer("join", {"C": "C"})

    assert models.heard == [({"c": "C", "l": "L"}, True)]


def test_only_what_the_outputs_asked_for_need_is_run() -> None:
    models = Models(
        ensemble(
            ["a"],
            ["x", "y"],
            step("mx", {"A": "a"}, {"O": "x"}),
            step("my", {"A": "a"}, {"O": "y"}),
        )
    )
    models.course.begin({"a": 1}, ["y"])
    assert models.open == ["my"]
    models.answer("my", {"O": 2})

    assert models.heard == [({"y": 2}, True)]


def test_an_optional_input_may_be_missing() -> None:
    models = Models(ensemble(["a", "b"], ["c"], step("m", {"A": "a", "B": "b"}, {"C": "c"})))
    models.course.begin({"a": 1})

    assert models.started == [("m", {"A": 1})]


def test_the_first_error_ends_it_and_calls_off_what_runs() -> None:
    models = Models(ensemble(["a"], ["x", "y"], step("mx", {"A": "a"}, {"O": "x"}), step("my", {"A": "a"}, {"O": "y"})))
    models.course.begin({"a": 1})
    error = Unavailable("full")
    models.answer("mx", error)

    assert models.heard == [(error, True)]
    assert models.called_off == ["my"]
    assert models.course.failed is not None
    assert models.course.failed.model_name == "mx"
    models.answer("my", {"O": 1})
    assert len(models.heard) == 1


def test_a_model_that_leaves_out_an_output_is_named() -> None:
    models = Models(ensemble(["raw"], ["scores"], *CHAIN))
    models.course.begin({"raw": 1})
    models.answer("pre", {"OTHER": 1})

    (error, is_last), *rest = models.heard
    assert isinstance(error, HandlerFailed)
    assert str(error) == "in ensemble 'e', model 'pre' gave no output 'OUT'"
    assert is_last and not rest


def test_a_client_that_leaves_hears_nothing_more() -> None:
    models = Models(ensemble(["raw"], ["scores"], *CHAIN))
    models.course.begin({"raw": 1})
    models.course.withdraw()
    assert models.called_off == ["pre"]
    models.answer("pre", {"OUT": 1})

    assert models.heard == []
    assert models.open == []


def test_models_that_answer_at_once_are_no_different() -> None:
    models = Models(ensemble(["raw"], ["scores"], *CHAIN), at_once=True)
    models.course.begin({"raw": 1})

    assert models.heard == [({"scores": "net.Y"}, True)]
    assert models.called_off == []


def test_a_step_that_fails_at_once_starts_nothing_more() -> None:
    started: list[str] = []
    heard: list[object] = []

    def run(step: Step, tensors: Tensors, told: Told) -> Callable[[], None]:
        started.append(step.model_name)
        told(Unavailable("full"), True)
        return lambda: None

    course = Course(
        ensemble(["a"], ["x", "y"], step("mx", {"A": "a"}, {"O": "x"}), step("my", {"A": "a"}, {"O": "y"})),
        run,
        lambda outcome, is_last: heard.append(outcome),
    )
    course.begin({"a": 1})

    assert started == ["mx"]
    assert len(heard) == 1


def test_every_answer_of_a_model_runs_what_is_behind_it() -> None:
    models = Models(ensemble(["raw"], ["scores"], *CHAIN))
    models.course.begin({"raw": 1})
    models.answer("pre", {"OUT": "p1"}, last=False)
    models.answer("pre", {"OUT": "p2"}, last=False)
    models.answer("net", {"Y": "s1"})
    assert models.heard == [({"scores": "s1"}, False)]
    models.answer("pre", {}, last=True)
    models.answer("net", {"Y": "s2"})

    assert [tensors for name, tensors in models.started if name == "net"] == [{"X": "p1"}, {"X": "p2"}]
    assert models.heard[1:] == [({"scores": "s2"}, True)]


def test_a_stream_that_ends_without_a_word_is_told_to_have_ended() -> None:
    models = Models(ensemble(["raw"], ["image"], CHAIN[0]))
    models.course.begin({"raw": 1})
    models.answer("pre", {"OUT": 1}, last=False)
    models.answer("pre", {}, last=True)
    assert models.heard == [({"image": 1}, False), (None, True)]

    silent = Models(ensemble(["raw"], ["image"], CHAIN[0]))
    silent.course.begin({"raw": 1})
    silent.answer("pre", {}, last=True)
    assert silent.heard == [(None, True)]


def test_two_ways_from_one_answer_meet_only_again_in_the_same_answer() -> None:
    models = Models(
        ensemble(
            ["a"],
            ["z"],
            step("many", {"A": "a"}, {"D": "d"}),
            step("mx", {"D": "d"}, {"O": "x"}),
            step("my", {"D": "d"}, {"O": "y"}),
            step("join", {"X": "x", "Y": "y"}, {"Z": "z"}),
        )
    )
    models.course.begin({"a": 1})
    models.answer("many", {"D": 1}, last=False)
    models.answer("many", {"D": 2}, last=True)
    models.answer("mx", {"O": "x1"})
    models.answer("mx", {"O": "x2"})
    models.answer("my", {"O": "y1"})
    models.answer("my", {"O": "y2"})

    joined = [tensors for name, tensors in models.started if name == "join"]
    assert joined == [{"X": "x1", "Y": "y1"}, {"X": "x2", "Y": "y2"}]
    models.answer("join", {"Z": 1})
    models.answer("join", {"Z": 2})
    assert models.heard == [({"z": 1}, False), ({"z": 2}, True)]


def test_a_client_may_leave_from_inside_an_answer() -> None:
    models = Models(ensemble(["raw"], ["scores"], *CHAIN))
    models.on_heard = models.course.withdraw
    models.course.begin({"raw": 1})
    models.answer("pre", {"OUT": 1}, last=False)
    models.answer("net", {"Y": 1})

    assert models.heard == [({"scores": 1}, False)]
    assert models.called_off == ["pre"]


def limited(most: int, *, at_once: bool = False) -> Models:
    settings = EnsembleScheduling(step=list(CHAIN), max_inflight_requests=most)
    return Models(Ensemble("e", ["raw"], ["scores"], settings), at_once=at_once)


def test_only_so_many_runs_of_a_step_are_under_way_and_the_others_wait_in_their_order() -> None:
    models = limited(2)
    models.course.begin({"raw": 1})
    for number in range(4):
        models.answer("pre", {"OUT": number}, last=number == 3)
    assert models.open == ["net", "net"]
    models.answer("net", {"Y": "a"})
    assert models.open == ["net", "net"]
    for name in "bcd":
        models.answer("net", {"Y": name})

    assert [tensors["X"] for name, tensors in models.started if name == "net"] == [0, 1, 2, 3]
    assert models.heard == [({"scores": name}, name == "d") for name in "abcd"]


def test_runs_that_wait_are_never_started_once_it_has_ended() -> None:
    models = limited(1)
    models.course.begin({"raw": 1})
    models.answer("pre", {"OUT": 1}, last=False)
    models.answer("pre", {"OUT": 2}, last=False)
    models.answer("net", HandlerFailed("no"))

    assert [name for name, _ in models.started] == ["pre", "net"]
    assert models.called_off == ["pre"]


def test_very_many_runs_that_wait_and_answer_at_once_do_not_pile_up() -> None:
    heard: list[object] = []
    tells: dict[str, list[Told]] = {"pre": [], "net": []}

    def run(step: Step, tensors: Tensors, told: Told) -> Callable[[], None]:
        tells[step.model_name].append(told)
        if len(tells["net"]) > 1:
            told({"Y": tensors["X"]}, True)
        return lambda: None

    settings = EnsembleScheduling(step=list(CHAIN), max_inflight_requests=1)
    course = Course(Ensemble("e", ["raw"], ["scores"], settings), run, lambda outcome, _: heard.append(outcome))
    course.begin({"raw": 1})
    for number in range(5000):
        tells["pre"][0]({"OUT": number}, number == 4999)
    tells["net"][0]({"Y": 0}, True)

    assert heard == [{"scores": number} for number in range(5000)]


@pytest.mark.parametrize(
    ("inputs", "outputs", "steps", "message"),
    [
        (["a"], ["b"], [], "at least one step"),
        (["a"], [], [step("m", {"A": "a"}, {"B": "b"})], "one output"),
        (["a"], ["b"], [step("m", {"A": "a"}, {"B": "b"}), step("n", {"A": "a"}, {"B": "b"})], "'b' is written more"),
        (["a"], ["b"], [step("m", {"A": "a"}, {"B": "a"})], "'a' is written more than once"),
        (["a"], ["b"], [step("m", {"A": "a", "C": "c"}, {"B": "b"})], "'c', which input 'C' of model 'm' reads"),
        (["a"], ["c"], [step("m", {"A": "a"}, {"B": "b"})], "output 'c' is written by no step"),
        (["a", "z"], ["b"], [step("m", {"A": "a"}, {"B": "b"})], "nobody reads these tensors: z"),
        (["a"], ["b"], [step("m", {"A": "a"}, {"B": "b", "C": "c"})], "nobody reads these tensors: c"),
        (["a"], ["b"], [step("m", {}, {"B": "b"})], "model 'm' needs an input_map"),
        (
            ["a"],
            ["b"],
            [step("m", {"A": "a", "C": "c"}, {"B": "b"}), step("n", {"B": "b"}, {"C": "c"})],
            "in a circle through models 'm', 'n'",
        ),
    ],
)
def test_a_graph_that_cannot_run_is_refused(
    inputs: list[str], outputs: list[str], steps: list[Step], message: str
) -> None:
    with pytest.raises(ConfigError, match=message):
        ensemble(inputs, outputs, *steps)


@given(data=st.data(), widths=st.lists(st.integers(1, 3), min_size=1, max_size=4))
@settings(max_examples=60, deadline=None)
def test_any_graph_answers_once_with_what_its_steps_would_give(data: Any, widths: list[int]) -> None:
    """Layers of steps, each reading some tensors of all layers before; they answer in any order."""
    tensors, steps = ["t"], []
    for layer, width in enumerate(widths):
        known = list(tensors)
        for number in range(width):
            reads = data.draw(st.lists(st.sampled_from(known), min_size=1, max_size=3, unique=True))
            name = f"{layer}.{number}"
            steps.append(step(f"m{name}", {f"I{tensor}": tensor for tensor in reads}, {"O": name}))
            tensors.append(name)
    read = {tensor for one in steps for tensor in one.input_map.values()}
    if "t" not in read:
        return
    outputs = [tensor for tensor in tensors if tensor not in read]
    models = Models(ensemble(["t"], outputs, *data.draw(st.permutations(steps))))
    models.course.begin({"t": "t"})

    def value(tensor: str) -> str:
        for one in steps:
            if one.output_map["O"] == tensor:
                return f"{tensor}({','.join(sorted(value(read) for read in one.input_map.values()))})"
        return tensor

    while models.open:
        model = data.draw(st.sampled_from(models.open))
        inputs = next(given for name, given in models.started if name == model)
        models.answer(model, {"O": f"{model[1:]}({','.join(sorted(map(str, inputs.values())))})"})

    assert models.heard == [({output: value(output) for output in outputs}, True)]
    assert len(models.started) == len(steps)
