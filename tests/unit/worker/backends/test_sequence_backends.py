"""Models of every backend whose requests come in sequences: what they are fed, and what is kept for them."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shoal.errors import LoadFailed
from shoal.wire.messages import Failure
from shoal.worker.backends import completion
from shoal.worker.backends.received import Asked
from shoal.worker.backends.tensors import Call
from shoal.worker.backends.triton_replies import Reply
from tests.process.tensor_front import interface, spec
from tests.unit.worker.backends.making import node, onnx_file, program
from tests.unit.worker.backends.sequence_making import CONTROLS, Sent, batching, control, numbers, run, sent, state

IO = interface([spec("x", "FP32", 1)], [spec("y", "FP32", 1)], 4)
TEXT = state(
    "kept", "STRING", initial_state=[{"name": "e", "data_type": "TYPE_STRING", "dims": [1], "zero_data": True}]
)
ADDING = [node("Add", ["x", "kept"], ["y"]), node("Identity", ["y"], ["kept_next"])]
ADDING_IN = [("x", "FP32", ["N", 1]), ("kept", "FP32", ["N", 1])]
ADDING_OUT = [("y", "FP32", ["N", 1]), ("kept_next", "FP32", ["N", 1])]
START = control("START", fp32_false_true=[0, 1])

PYTHON_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.rows = 0

    def execute(self, requests):
        self.rows = len(requests)
        return [self.answer(request) for request in requests]

    def answer(self, request):
        names = [tensor.name() for tensor in request.inputs()]
        value = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        facts = [self.rows, value["READY"][0, 0], request.correlation_id() or 0, request.flags()]
        kept = value["kept"] + value["x"]
        if not value["READY"][0, 0]:
            assert request.requested_output_names() == set() and not value["x"].any()
            assert (request.correlation_id(), request.flags()) == (0, 0)
            kept = kept + 1000
        outputs = [("y", kept), ("kept_next", kept), ("facts", np.array([facts], "int64"))]
        return pb_utils.InferenceResponse([pb_utils.Tensor(*output) for output in outputs])
"""
STREAMING_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            ready = pb_utils.get_input_tensor_by_name(request, "READY").as_numpy()[0, 0]
            sender = request.get_response_sender()
            for number in range(3):
                tensor = pb_utils.Tensor("y", np.full((1, 1), number if ready else 99, "float32"))
                sender.send(pb_utils.InferenceResponse([tensor]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""


pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:`torch.jit:FutureWarning")


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """What a model sets for its process is set back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)


# -- ONNX --------------------------------------------------------------------------------------------------------------


def test_an_onnx_model_is_fed_the_state_it_gave(tmp_path: Path) -> None:
    made = program(onnx_file(tmp_path, ADDING, ADDING_IN, ADDING_OUT), "onnxruntime", IO, settings=batching(state()))

    first = run(made, sent(0, 5, "s", 1), sent(2, 6, "s", 10))
    assert [list(answer) for answer in first if isinstance(answer, dict)] == [["y"], ["y"]]
    assert numbers(first + run(made, sent(2, 6, "", 5))) == [1, 10, 15]


def test_texts_are_told_and_kept(tmp_path: Path) -> None:
    version = onnx_file(
        tmp_path,
        [node("Identity", ["kept"], ["y"]), node("Identity", ["CORRID"], ["kept_next"])],
        [("x", "FP32", ["N", 1]), ("kept", "BYTES", ["N", 1]), ("CORRID", "BYTES", ["N", 1])],
        [("y", "BYTES", ["N", 1]), ("kept_next", "BYTES", ["N", 1])],
    )
    io = interface([spec("x", "FP32", 1)], [spec("y", "BYTES", 1)], 4)
    settings = batching(TEXT, controls=[control("CORRID", data_type="TYPE_STRING")])
    made = program(version, "onnxruntime", io, settings=settings)

    (first,), (second,) = run(made, sent(1, "é", "s")), run(made, sent(1, "é"))
    assert isinstance(first, dict) and isinstance(second, dict)
    assert (first["y"].tolist(), second["y"].tolist()) == ([[b""]], [["é".encode()]])


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (batching(), "takes kept too, and its configuration has no such input"),
        (batching(state(), controls=[START]), "unexpected inference input 'START'"),
        (batching(state("kept", "INT32")), "expects datatype INT32 for input 'kept', model provides FP32"),
        (batching(state("kept", "FP32", 2)), r"tensor 'kept': the model expects 2 dimensions \(shape \[-1, 1\]\)"),
        (batching(state("other")), "unexpected inference input 'other'"),
    ],
)
def test_an_onnx_model_must_have_what_its_sequences_need(tmp_path: Path, settings: Any, reason: str) -> None:
    version = onnx_file(tmp_path, ADDING, ADDING_IN, ADDING_OUT)
    with pytest.raises(LoadFailed, match=reason):
        program(version, "onnxruntime", IO, settings=settings)


def test_controls_and_states_are_not_completed_as_tensors_of_clients(tmp_path: Path) -> None:
    version = onnx_file(tmp_path, ADDING, [*ADDING_IN, ("START", "FP32", ["N", 1])], ADDING_OUT)
    partial = {"sequence_batching": {"control_input": [START], "state": [state()]}}
    completed = completion.complete(partial, tmp_path, version, 4)

    assert [tensor["name"] for tensor in completed["input"]] == ["x"]
    assert [tensor["name"] for tensor in completed["output"]] == ["y"]
    assert completed["max_batch_size"] == 4 and "dynamic_batching" not in completed


def test_a_warm_up_leaves_no_state(tmp_path: Path) -> None:
    sample = {
        "name": "w",
        "batch_size": 2,
        "inputs": {"x": {"data_type": "TYPE_FP32", "dims": [1], "random_data": True}},
    }
    version = onnx_file(tmp_path, ADDING, ADDING_IN, ADDING_OUT)
    made = program(version, "onnxruntime", IO, settings={**batching(state()), "model_warmup": [sample]})

    assert numbers(run(made, sent(0, 5, "s", 1), sent(1, 6, "", 2))) == [1, 2]


# -- PyTorch -----------------------------------------------------------------------------------------------------------


class Named(torch.nn.Module):
    """Its arguments are in another order than the configuration's tensors."""

    def forward(self, kept, START, x):  # type: ignore[no-untyped-def]
        """Add."""
        y = kept + x + 100 * START
        return y, y - 100 * START


class Numbered(torch.nn.Module):
    """Its tensors are numbered, its state comes out first."""

    def forward(self, a, b, c):  # type: ignore[no-untyped-def]
        """Add."""
        return c + a, a + 100 * b + c


class Writing(torch.nn.Module):
    """Writes into what it is fed."""

    def forward(self, x, kept):  # type: ignore[no-untyped-def]
        """Add."""
        kept.add_(x)
        return kept.clone(), kept


def script(folder: Path, module: torch.nn.Module) -> Path:
    (folder / "1").mkdir()
    torch.jit.save(torch.jit.script(module), str(folder / "1" / "model.pt"))
    return folder / "1"


def test_a_torch_model_takes_controls_and_states_by_the_names_of_its_arguments(tmp_path: Path) -> None:
    made = program(script(tmp_path, Named()), "pytorch", IO, settings=batching(state(), controls=[START]))

    first = run(made, sent(1, 5, "s", 1), outputs=["y"])
    assert numbers(first + run(made, sent(1, 5, "", 2))) == [101, 3]
    assert isinstance(first[0], dict) and list(first[0]) == ["y"]


def test_a_torch_model_takes_them_by_their_numbers(tmp_path: Path) -> None:
    io = interface([spec("INPUT__0", "FP32", 1)], [spec("OUTPUT__1", "FP32", 1)], 4)
    kept = {**state(), "input_name": "INPUT__2", "output_name": "OUTPUT__0"}
    settings = batching(kept, controls=[control("READY", "INPUT__1", fp32_false_true=[0, 1])])
    made = program(script(tmp_path, Numbered()), "pytorch", io, settings=settings)

    def ask(flags: str, value: float) -> Any:
        return run(made, Sent(0, 5, flags, {"INPUT__0": np.full((1, 1), value, np.float32)}))

    assert numbers(ask("s", 1) + ask("", 2) + ask("", 3), "OUTPUT__1") == [101, 103, 106]


def test_what_a_torch_model_does_to_its_inputs_is_its_own(tmp_path: Path) -> None:
    made = program(script(tmp_path, Writing()), "pytorch", IO, settings=batching(state()))

    assert numbers(run(made, sent(0, 5, "s", 1)) + run(made, sent(0, 5, "", 1))) == [1, 2]
    assert numbers(run(made, sent(1, 6, "s", 1))) == [1]
    assert numbers(run(made, sent(0, 5, "", 1), outputs=["y"]) + run(made, sent(0, 5, "", 1))) == [3, 4]


# -- Python and identity -----------------------------------------------------------------------------------------------


def python_program(folder: Path, code: str, settings: dict[str, Any], io: dict[str, Any]) -> Any:
    (folder / "1").mkdir()
    (folder / "1" / "model.py").write_text(code)
    return program(folder / "1", "python", io, settings=settings)


def test_a_python_model_sees_null_requests_and_its_state_is_kept(tmp_path: Path) -> None:
    io = interface([spec("x", "FP32", 1)], [spec("y", "FP32", 1), spec("facts", "INT64", 4)], 4)
    made = python_program(tmp_path, PYTHON_MODEL, batching(state(), controls=CONTROLS), io)

    first, second = run(made, sent(0, 5, "s", 1)), run(made, sent(1, 6, "s", 10))
    third, fourth = run(made, sent(0, 5, "", 2), sent(1, 6, "e", 20)), run(made, sent(1, 6, "s", 1))
    answers = first + second + third + fourth

    assert numbers(answers) == [1, 10, 3, 30, 1]
    facts = [answer["facts"][0].tolist() for answer in answers if isinstance(answer, dict)]
    assert facts == [[1, 1, 5, 1], [2, 1, 6, 1], [2, 1, 5, 0], [2, 1, 6, 2], [2, 1, 6, 1]]
    assert all(set(answer) == {"y", "facts"} for answer in answers if isinstance(answer, dict))
    made.close()


def test_a_python_model_whose_state_is_of_another_kind_is_told(tmp_path: Path) -> None:
    io = interface([spec("x", "FP32", 1)], [spec("y", "FP32", 1), spec("facts", "INT64", 4)], 4)
    made = python_program(tmp_path, PYTHON_MODEL, batching(state("kept", "FP32", 2), controls=CONTROLS), io)
    (answer,) = run(made, sent(0, 5, "s", 1))

    assert numbers([answer]) == [1]  # two numbers, as its state has
    made.close()
    broken = PYTHON_MODEL.replace('("kept_next", kept)', '("kept_next", kept.astype("int32"))')
    (tmp_path / "other").mkdir()
    made = python_program(tmp_path / "other", broken, batching(state(), controls=CONTROLS), io)
    (answer,) = run(made, sent(0, 5, "s", 1))
    assert isinstance(answer, Failure)
    assert "state 'kept_next' must be FP32 [1, 1], got INT32 [1, 1]" in answer.message
    made.close()


def test_a_decoupled_model_may_answer_null_requests_too(tmp_path: Path) -> None:
    io = interface([spec("x", "FP32", 1)], [spec("y", "FP32", 1)], 4, decoupled=True)
    made = python_program(tmp_path, STREAMING_MODEL, batching(controls=CONTROLS), io)
    (told,) = run(made, sent(2, 5, "s"))

    assert not isinstance(told, Failure)
    made.close()


def test_nobody_hears_what_is_said_to_a_null_request() -> None:
    call = Call({}, Asked())
    call.is_null = True
    reply = Reply(call, None, -1, is_decoupled=True)
    reply.fail(RuntimeError("x"))
    reply.send(None, True)

    assert reply.is_cancelled() and not reply.is_final


def test_identity_answers_sequences_as_anything_else(tmp_path: Path) -> None:
    made = program(tmp_path, "identity", IO, settings=batching(state(), controls=CONTROLS))

    assert numbers(run(made, sent(2, 5, "s", 7), sent(3, 6, "", 8))) == [7, 8]
