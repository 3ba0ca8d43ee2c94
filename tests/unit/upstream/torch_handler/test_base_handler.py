import json
import logging
import os
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
import torch
from onnx import TensorProto, helper, save

from shoal.upstream.ts.torch_handler.base_handler import BaseHandler
from tests.unit.upstream.torch_handler.serving import context

pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning")  # as torch calls TorchScript

MODEL = """
import torch
from torch.nn import Linear  # imported: does not count

class Net(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.line = Linear(2, 3)

    def forward(self, x):
        return self.line(x)
"""
STATE = {"line.weight": torch.arange(6.0).reshape(3, 2), "line.bias": torch.tensor([0.5, 0.0, -0.5])}
ROWS = [[1.0, 2.0], [0.0, 1.0]]
ANSWERS = [[2.5, 8.0, 13.5], [1.5, 3.0, 4.5]]  # rows @ weight.T + bias


@pytest.fixture(autouse=True)
def modules() -> Iterator[None]:
    before = set(sys.modules)
    yield
    for name in ("net", "two", "none", "broken"):
        if name not in before:
            sys.modules.pop(name, None)


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "net.py").write_text(MODEL)
    torch.save(STATE, tmp_path / "net.pth")
    return tmp_path


EAGER = {"modelFile": "net.py", "serializedFile": "net.pth"}


def handled(folder: Path, described: dict[str, str], rows: Any = None, **options: Any) -> Any:
    rows = ROWS if rows is None else rows
    told = context(folder, described, rows=len(rows), **options)
    handler = BaseHandler()
    handler.initialize(told)
    return handler.handle(rows, told)


class Net(torch.nn.Module):
    def __init__(self) -> None:
        super().__init__()
        self.line = torch.nn.Linear(2, 3)
        self.load_state_dict(STATE)

    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return self.line(x)  # type: ignore[no-any-return]


def test_a_model_file_with_its_weights_answers(folder: Path) -> None:
    assert handled(folder, EAGER) == ANSWERS


def test_a_model_file_without_weights_answers(folder: Path) -> None:
    torch.manual_seed(7)

    (answer,) = handled(folder, {"modelFile": "net.py"}, [[1.0, 1.0]])

    assert len(answer) == 3


def test_a_model_file_that_was_saved_again_is_read_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Even where Python cannot tell the two apart: the same size and, as in an image, the same date."""
    monkeypatch.setattr(sys, "dont_write_bytecode", False)
    answers = []
    for times in "12":
        (folder / "net.py").write_text(MODEL.replace("self.line(x)", f"{times} * self.line(x)"))
        os.utime(folder / "net.py", (1e9, 1e9))
        answers.append(handled(folder, EAGER, ROWS[:1]))
        del sys.modules["net"]

    assert answers == [[[2.5, 8.0, 13.5]], [[5.0, 16.0, 27.0]]]


def test_the_model_is_the_one_of_this_folder(folder: Path) -> None:
    """A module of this name may be in the process already, from elsewhere."""
    elsewhere = type(sys)("net")
    sys.modules["net"] = elsewhere

    assert handled(folder, EAGER) == ANSWERS
    assert sys.modules.pop("net") is not elsewhere


def test_a_model_module_that_the_handler_imported_is_used_again(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(folder))
    import net  # type: ignore[import-not-found]

    handler = BaseHandler()
    handler.initialize(context(folder, EAGER))

    assert type(handler.model) is net.Net


def test_fields_are_there_before_and_after_loading(folder: Path) -> None:
    handler = BaseHandler()
    assert vars(handler) == {
        "model": None,
        "mapping": None,
        "device": None,
        "initialized": False,
        "context": None,
        "model_pt_path": None,
        "manifest": None,
        "map_location": None,
        "explain": False,
        "target": 0,
        "profiler_args": {},
    }

    told = context(folder, EAGER, settings={"mine": 1})
    handler.initialize(told)

    assert handler.initialized is True
    assert handler.device == handler.get_device() == torch.device("cpu")
    assert handler.map_location == "cpu"
    assert handler.model_pt_path == str(folder / "net.pth")
    assert handler.manifest is told.manifest
    assert handler.model_yaml_config == {"mine": 1}
    assert handler.mapping is None
    assert not handler.model.training


def test_a_handler_that_does_not_call_our_constructor_works(folder: Path) -> None:
    class Own(BaseHandler):
        def __init__(self) -> None:
            self.mine = 1

    handler = Own()
    told = context(folder, EAGER)
    handler.initialize(told)

    assert handler.handle([[1.0, 2.0]], told) == ANSWERS[:1]


def test_torchscript_answers(tmp_path: Path) -> None:
    torch.jit.save(torch.jit.script(Net()), tmp_path / "net.pt")

    assert handled(tmp_path, {"serializedFile": "net.pt"}) == ANSWERS


def test_an_exported_program_answers(tmp_path: Path) -> None:
    torch.export.save(torch.export.export(Net().eval(), (torch.ones(2, 2),)), tmp_path / "net.pt2")

    assert handled(tmp_path, {"serializedFile": "net.pt2"}) == ANSWERS


def onnx_file(path: Path, outputs: int = 1) -> None:
    """x (n, 2) to sums and, if asked, doubles."""
    nodes = [helper.make_node("Add", ["x", "x"], ["double"]), helper.make_node("Neg", ["x"], ["negative"])]
    shape: list[str | int | None] = ["n", 2]
    given = [helper.make_tensor_value_info("x", TensorProto.FLOAT, shape)]
    made = [helper.make_tensor_value_info(name, TensorProto.FLOAT, shape) for name in ("double", "negative")][:outputs]
    graph = helper.make_graph(nodes[:outputs], "g", given, made)
    save(helper.make_model(graph, opset_imports=[helper.make_opsetid("", 17)], ir_version=8), str(path))


def test_an_onnx_file_answers_and_takes_whole_numbers_for_floats(tmp_path: Path) -> None:
    onnx_file(tmp_path / "m.onnx")

    assert handled(tmp_path, {"serializedFile": "m.onnx"}) == [[2.0, 4.0], [0.0, 2.0]]
    assert handled(tmp_path, {"serializedFile": "m.onnx"}, [[1, 2]]) == [[2.0, 4.0]]


def test_an_onnx_model_is_a_session_that_handlers_may_call_themselves(tmp_path: Path) -> None:
    onnx_file(tmp_path / "m.onnx", outputs=2)
    handler = BaseHandler()
    handler.initialize(context(tmp_path, {"serializedFile": "m.onnx"}))

    double, negative = handler.model.run(None, {"x": torch.ones(1, 2).numpy()})
    assert (double.tolist(), negative.tolist()) == ([[2.0, 2.0]], [[-1.0, -1.0]])

    outputs = handler.inference({"x": torch.ones(1, 2)})
    assert [output.tolist() for output in outputs] == [[[2.0, 2.0]], [[-1.0, -1.0]]]
    with pytest.raises(ValueError, match="also wants x; its inputs are x"):
        handler.inference({"y": torch.ones(1, 2)})
    with pytest.raises(ValueError, match=r"has 1 inputs \(x\), preprocess gave 2"):
        handler.inference((torch.ones(1, 2), torch.ones(1, 2)))


@pytest.mark.parametrize(
    ("described", "kind", "complaint"),
    [
        ({"modelFile": "gone.py"}, RuntimeError, r"Missing the gone.py file"),
        ({"modelFile": "two.py"}, ValueError, r"Expected only one class as model definition. \[<class 'two.A'>, "),
        ({"modelFile": "none.py"}, ValueError, r"Expected only one class as model definition. \[\]"),
        ({"modelFile": "net.py", "serializedFile": "gone.pth"}, FileNotFoundError, "gone.pth"),
        ({"serializedFile": "gone.pt"}, ValueError, "gone.pt does not exist"),
        ({"serializedFile": "net.pth"}, RuntimeError, "No model weights could be loaded: .* it is net.pth"),
        ({"serializedFile": "net.so"}, RuntimeError, "No model weights could be loaded: .* it is net.so"),
        ({}, RuntimeError, "No model weights could be loaded: .* it is not given"),
    ],
)
def test_a_model_that_cannot_be_loaded_says_why(
    folder: Path, described: dict[str, str], kind: type[Exception], complaint: str
) -> None:
    (folder / "two.py").write_text("class A: ...\nclass B: ...\n")
    (folder / "none.py").write_text("x = 1\n")

    with pytest.raises(kind, match=complaint):
        handled(folder, described)


def test_a_model_file_that_fails_is_not_left_half_imported(folder: Path) -> None:
    (folder / "broken.py").write_text("class A: ...\n1 / 0\n")

    with pytest.raises(ZeroDivisionError):
        handled(folder, {"modelFile": "broken.py"})
    assert "broken" not in sys.modules


def test_a_library_compiled_ahead_of_time_is_opened_when_the_settings_say_so(folder: Path) -> None:
    (folder / "net.so").write_bytes(b"no library")

    with pytest.raises(RuntimeError, match=r"dlopen.*net.so"):
        handled(folder, {"serializedFile": "net.so"}, settings={"pt2": {"export": {"aot_compile": True}}})


def test_labels_are_read(folder: Path) -> None:
    (folder / "index_to_name.json").write_text('{"0": ["n01", "cat"]}')
    handler = BaseHandler()
    handler.initialize(context(folder, EAGER))

    assert handler.mapping == {"0": "cat"}


def test_the_time_of_a_batch_is_reported(folder: Path) -> None:
    told = context(folder, EAGER)
    handler = BaseHandler()
    handler.initialize(told)
    handler.handle([[1.0, 2.0]], told)

    ((name, value, index, unit),) = told.metrics.times
    assert (name, index, unit) == ("HandlerTime", None, "ms")
    assert value >= 0
    assert handler.context is told


def test_the_time_of_each_step_is_reported_on_request(folder: Path) -> None:
    told = context(folder, EAGER, settings={"handler": {"profile": True}})
    handler = BaseHandler()
    handler.initialize(told)
    handler.handle([[1.0, 2.0]], told)

    steps = [f"ts_handler_{step}" for step in ("preprocess", "inference", "postprocess")]
    assert [name for name, *_ in told.metrics.times] == [*steps, "HandlerTime"]


class Own(BaseHandler):
    def preprocess(self, data: Any) -> Any:
        return ["prepared", *data]

    def get_insights(self, tensor: Any, inputs: Any, target: Any) -> Any:
        assert self.explain
        return [(tensor, inputs, target)]

    def describe_handle(self) -> Any:
        return {"about": "me"}


def test_a_describe_call_is_answered_by_describe_handle() -> None:
    told = context(".", rows=1, headers={"describe": "True"})

    assert Own().handle([{}], told) == [{"about": "me"}]
    assert BaseHandler().handle([{}], told) == [None]
    assert [name for name, *_ in told.metrics.times] == ["HandlerTime", "HandlerTime"]


@pytest.mark.parametrize(
    ("row", "inputs", "target"),
    [
        ({"data": "d", "body": "b"}, "d", 0),
        ({"body": "b", "target": 2}, "b", 2),
        ({"body": "b", "target": bytearray(b"3")}, "b", 3),
        ({"body": "b", "target": "4"}, "b", 4),
        ([1.0], None, 0),
    ],
)
def test_an_explain_call_is_answered_by_get_insights(row: Any, inputs: Any, target: int) -> None:
    told = context(".", headers={"explain": "True"})

    assert Own().handle([row], told) == [(["prepared", row], inputs, target)]


def test_a_prediction_after_an_explanation_is_a_prediction(folder: Path) -> None:
    handler = BaseHandler()
    handler.initialize(context(folder, EAGER))
    with pytest.raises(NotImplementedError, match="BaseHandler gives no explanations"):
        handler.handle(ROWS, context(folder, EAGER, rows=2, headers={"explain": "True"}))

    assert handler.handle(ROWS, context(folder, EAGER, rows=2, headers={"explain": "False"})) == ANSWERS
    assert not handler.explain


def test_without_a_context_there_is_nothing_to_explain_or_describe() -> None:
    handler = BaseHandler()

    assert (handler._is_explain(), handler._is_describe()) == (False, False)


@pytest.mark.parametrize(
    ("pt2", "is_compiled"),
    [
        ("eager", True),
        ({"backend": "eager"}, True),
        ({"compile": {"enable": True, "backend": "eager"}}, True),
        ({"compile": {"enable": False, "backend": "eager"}}, False),
        ({"export": {"aot_compile": False}}, False),
        ("bogus", False),
        ({"compile": {"enable": True, "backend": "bogus"}}, False),
        ({"compile": {"enable": True, "backend": "eager", "bogus": 1}}, False),
        (None, False),
    ],
)
def test_a_model_is_compiled_as_pt2_says(
    folder: Path, pt2: Any, is_compiled: bool, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    handler = BaseHandler()
    handler.initialize(context(folder, EAGER, settings={"pt2": pt2}))

    assert (type(handler.model).__name__ == "OptimizedModule") == is_compiled
    assert ("Compiled model with backend eager" in caplog.text) == is_compiled
    if "bogus" in str(pt2):
        assert "bogus" in caplog.text


def test_compile_settings_have_to_say_whether_they_count(folder: Path) -> None:
    with pytest.raises(ValueError, match="needs `enable: true` or `enable: false`"):
        BaseHandler().initialize(context(folder, EAGER, settings={"pt2": {"compile": {"backend": "eager"}}}))


@pytest.mark.filterwarnings("ignore")  # the profiler's own
def test_a_batch_is_profiled_when_the_environment_asks(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENABLE_TORCH_PROFILER", "TRUE")
    monkeypatch.setattr(tempfile, "tempdir", str(folder))
    told = context(folder, EAGER, rows=2)
    handler = BaseHandler()
    handler.initialize(told)

    assert handler.handle(ROWS, told) == ANSWERS
    (trace,) = (folder / "pytorch_profiler" / "m").iterdir()
    named = {event["name"] for event in json.loads(trace.read_text())["traceEvents"]}
    assert {"preprocess", "inference", "postprocess"} <= named


@pytest.mark.filterwarnings("ignore")
def test_a_handler_may_choose_what_the_profiler_does(folder: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("ENABLE_TORCH_PROFILER", "1")
    ready: list[Any] = []
    handler = BaseHandler()
    handler.profiler_args = {"activities": [torch.profiler.ProfilerActivity.CPU], "on_trace_ready": ready.append}
    told = context(folder, EAGER, rows=2)
    handler.initialize(told)

    assert handler.handle(ROWS, told) == ANSWERS
    assert len(ready) == 1
