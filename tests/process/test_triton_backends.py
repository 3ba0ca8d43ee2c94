"""Models of a Triton repository in real workers: what they are given, what they answer, and how they fail."""

import json
from collections.abc import Iterable, Iterator
from pathlib import Path
from typing import Any

import msgspec
import numpy as np
import pytest

from shoal import tensor
from shoal.answer import Answer, Head
from shoal.wire.memory import Arena
from shoal.wire.messages import (
    Ask,
    CallOff,
    Cancel,
    Ended,
    Failure,
    Item,
    Loaded,
    PartHead,
    Pieces,
    Run,
    Told,
    Unloadable,
)
from shoal.worker.backends.tensors import DTYPES
from tests.process.tensor_front import (
    Raw,
    TensorFront,
    Values,
    interface,
    load,
    parameters,
    python_model,
    raw,
    same,
    serving,
    spec,
    values,
)
from tests.process.worker_front import cut, worker
from tests.unit.worker.backends.making import node, onnx_file

FAILED = "Failed to process the request(s) for model"
IN = np.array([[1, 2]], np.float32)


def sample(datatype: str, rows: int) -> Any:
    """Some values of each kind, edges among them, two to a row."""
    dtype = DTYPES[datatype]
    if datatype == "BYTES":
        array = np.empty((rows, 2), object)
        array[:] = [[b"", "é".encode()]]
        return array
    if datatype == "BOOL":
        return np.array([[True, False]] * rows)
    if datatype == "BF16":
        return Raw("BF16", (rows, 2), bytes(np.array([[0x3F80, 0xC000]] * rows, np.uint16)))
    edges = [np.inf, -0.5] if dtype.kind == "f" else [np.iinfo(dtype).min, np.iinfo(dtype).max]
    return np.array([edges] * rows, dtype)


def types_interface(*datatypes: str) -> dict[str, Any]:
    return interface(
        [spec(f"x_{name}", name, 2) for name in datatypes], [spec(f"y_{name}", name, 2) for name in datatypes], 8
    )


def check_types(front: TensorFront, *datatypes: str) -> None:
    """Two requests of different sizes in one batch, each given back as it was."""
    requests = [{f"x_{name}": sample(name, rows) for name in datatypes} for rows in (1, 3)]
    for answer, request in zip(front.ask(*requests), requests, strict=True):
        assert isinstance(answer, dict), answer
        assert {name: raw(request[name.replace("y_", "x_")]).data for name in answer} == {
            name: raw(value).data for name, value in answer.items()
        }
        assert len(answer) == len(datatypes)


def test_every_datatype_passes_the_identity_backend(tmp_path: Path) -> None:
    with serving(tmp_path, "identity", types_interface(*DTYPES)) as front:
        check_types(front, *DTYPES)
        assert front.front.stop() == 0


@pytest.mark.parametrize("left_out", ["BF16", "BYTES"])  # which cannot be in one model
def test_every_datatype_passes_an_onnx_model(tmp_path: Path, left_out: str) -> None:
    names = [name for name in DTYPES if name != left_out]
    version = onnx_file(
        tmp_path,
        [node("Identity", [f"x_{name}"], [f"y_{name}"]) for name in names],
        [(f"x_{name}", name, ["N", 2]) for name in names],
        [(f"y_{name}", name, ["N", 2]) for name in names],
    )
    with serving(version, "onnxruntime", types_interface(*names), instances=2) as front:
        check_types(front, *names)
        assert front.front.stop() == 0


def test_every_datatype_passes_a_python_model(tmp_path: Path) -> None:
    with serving(python_model(tmp_path, "types_again"), "python", types_interface(*DTYPES)) as front:
        check_types(front, *DTYPES)
        assert front.front.stop() == 0


def test_a_tensor_in_shared_memory_is_read_where_it_lies(tmp_path: Path) -> None:
    arena = Arena(2**20)
    block = arena.lend(40_001)
    assert block is not None
    sent = np.arange(10_000, dtype=np.float32)
    block.view[1:] = sent.tobytes()  # not where floats may lie: the model must not notice
    version = onnx_file(tmp_path, [node("Neg", ["x"], ["y"])], [("x", "FP32", [10_000])], [("y", "FP32", [10_000])])
    io = interface([spec("x", "FP32", 10_000)], [spec("y", "FP32", 10_000)])
    with serving(version, "onnxruntime", io, arena.fd) as front:
        head = PartHead("x", tensor.part_type("FP32", [10_000]), 40_000, block.offset + 1)
        front.front.send(Run(1, 0, [Item([head])]))
        ((answer,),) = front.hear(1, 1)
        assert isinstance(answer, dict) and same(answer["y"], -sent)
    arena.close()


def test_instances_of_one_process_run_side_by_side_and_may_be_told_to_be_slower(tmp_path: Path) -> None:
    io = interface([spec("x", "FP32", 2)], [spec("y", "FP32", 2)], 8)
    settings = parameters(execute_delay_ms=100, instance_wise_delay_multiplier=1)
    with serving(tmp_path, "identity", io, instances=5, settings=settings) as front:
        slow, fast = front.send({"x": IN}, instance=4), front.send({"x": 2 * IN})
        reports = [front.front.receive() for _ in range(2)]
        assert [report.batch for report, _ in reports] == [fast, slow]
        assert [values(data)["y"].tolist() for _, data in reports] == [[[2, 4]], [[1, 2]]]
        assert front.front.stop() == 0


# -- Python models ---------------------------------------------------------------------------------------------------

TRICKS = interface([spec("IN", "FP32", 2)], [spec("OUT", "FP32", 2), spec("TOLD", "BYTES", 1)], 8)
SETTINGS = {"name": "m", "instance_group": [{"name": "m_0", "kind": "KIND_CPU", "count": 2, "gpus": []}]}


@pytest.fixture(scope="module")
def folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The folder of a model that does what it is told."""
    made = tmp_path_factory.mktemp("tricks")
    python_model(made, "tricks")
    return made


@pytest.fixture(scope="module")
def tricks(folder: Path) -> Iterator[TensorFront]:
    with serving(folder / "1", "python", TRICKS, settings=SETTINGS, environment={"BEE": "buzz"}) as front:
        yield front


def do(front: TensorFront, word: str, request: Values | None = None, **more: Any) -> Any:
    return front.one({"IN": IN} if request is None else request, parameters={"do": word, **more})


def test_requests_of_a_batch_reach_the_model_one_by_one(tricks: TensorFront) -> None:
    first, second = tricks.ask({"IN": IN}, {"IN": np.ones((3, 2), np.float32)})
    assert isinstance(first, dict) and same(first["OUT"], 2 * IN)
    assert isinstance(second, dict) and same(second["OUT"], np.full((3, 2), 2, np.float32))


def test_the_model_is_told_what_upstream_tells_it(tricks: TensorFront, folder: Path) -> None:
    answer = tricks.one(
        {"IN": IN},
        id="bee-1",
        parameters={"do": "tell", "x": 1.5, "on": True, "timeout": 3, "sequence_id": 9},
        outputs=["TOLD"],
        sequence={"id": "s", "start": True, "end": True},
        timeout=77,
    )
    told = json.loads(answer["TOLD"][0])
    assert told["args"] == {
        "model_config": json.dumps(SETTINGS, separators=(",", ":")),
        "model_instance_kind": "CPU",
        "model_instance_name": "m_0_1",
        "model_instance_device_id": "0",
        "model_repository": str(folder),
        "model_version": "1",
        "model_name": "m",
    }
    assert told["id"] == "bee-1" and told["sequence"] == "s" and told["flags"] == 3 and told["timeout"] == 77
    assert told["parameters"] == '{"do":"tell","x":1.5,"on":true}'
    assert told["outputs"] == ["TOLD"]
    assert told["folder"] == str(folder / "1") and told["module"] == "1.model"
    assert told["shape"] == [1, 2] and told["type"] == 11
    assert told["path"][-2:] == [str(folder / "1"), str(folder)]


def test_a_request_that_says_little_is_told_so(tricks: TensorFront) -> None:
    told = json.loads(do(tricks, "tell")["TOLD"][0])
    assert told["id"] == "" and told["sequence"] == 0 and told["flags"] == 0 and told["timeout"] == 0
    assert told["outputs"] == ["OUT", "TOLD"]


def test_the_environment_of_a_model_is_set(tricks: TensorFront) -> None:
    assert do(tricks, "environment")["TOLD"].tolist() == [b"buzz"]


def test_an_exception_fails_every_request_of_the_batch_with_upstreams_words(tricks: TensorFront, folder: Path) -> None:
    told = tricks.ask({"IN": IN}, {"IN": IN}, parameters={"do": "raise"})
    line = next(
        number
        for number, text in enumerate((folder / "1" / "model.py").read_text().splitlines(), 1)
        if "no such bee" in text
    )
    for failure in told:
        assert isinstance(failure, Failure)
        assert failure.message == (
            f"{FAILED} 'm_0_1', message: ValueError: no such bee\n\nAt:\n"
            f"  {folder / '1' / 'model.py'}({line}): execute\n"
        )
        assert failure.status == 500 and failure.kind == "handler" and "ValueError" in failure.traceback
    assert tricks.ended[-1].failure == told[0]


@pytest.mark.parametrize(
    ("word", "message"),
    [
        ("few", "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
                "InferenceRequest(s) size is:1, and InferenceResponse(s) size is:0\n"),
        ("tuple", "Expected a list in the execute return, found type '<class 'tuple'>'."),
        ("text", "Expected an 'InferenceResponse' object in the execute function return list, found type "
                 "'<class 'str'>'."),
    ],
)  # fmt: skip
def test_what_execute_must_not_return_is_said(tricks: TensorFront, word: str, message: str) -> None:
    failure = do(tricks, word)
    assert failure.message == f"{FAILED} 'm_0_1', message: {message}" and failure.status == 500


@pytest.mark.parametrize("word", ["none", "nothing"])
def test_a_request_that_nobody_will_answer_is_not_left_waiting(tricks: TensorFront, word: str) -> None:
    failure = do(tricks, word)
    assert failure.message == "the model let go of this request without a final response" and failure.status == 500


def test_a_model_that_exits_or_runs_out_of_memory_goes_on(tricks: TensorFront) -> None:
    assert "SystemExit: 3" in do(tricks, "exit").message
    assert do(tricks, "memory").status == 507
    assert same(do(tricks, "double")["OUT"], 2 * IN)


@pytest.mark.parametrize(
    ("code", "status"),
    [("UNKNOWN", 460), ("INTERNAL", 500), ("NOT_FOUND", 404), ("INVALID_ARG", 400), ("UNAVAILABLE", 503),
     ("UNSUPPORTED", 501), ("ALREADY_EXISTS", 409), ("CANCELLED", 499)],
)  # fmt: skip
def test_an_error_response_has_the_status_of_its_code(tricks: TensorFront, code: str, status: int) -> None:
    failure = do(tricks, "refuse", code=code)
    assert (failure.message, failure.status) == ("refused", status)
    assert tricks.ended[-1].failure is None  # it is this request's alone


def test_outputs_nobody_asked_for_are_dropped_and_parameters_travel(tricks: TensorFront) -> None:
    answer = tricks.one({"IN": IN}, parameters={"do": "extra"}, outputs=["OUT"])
    assert list(answer) == ["OUT", "parameters"] and answer["parameters"] == {"a": 1, "b": "x"}
    everything = do(tricks, "extra")
    assert list(everything) == ["UNASKED", "OUT", "parameters"]


def test_an_array_that_the_model_uses_again_is_answered_as_it_was(tricks: TensorFront) -> None:
    numbers = [
        tricks.send({"IN": np.full((1, 2), value, np.float32)}, parameters={"do": "reuse"}) for value in range(20)
    ]
    for value, number in enumerate(numbers):
        ((answer,),) = tricks.hear(number, 1)
        assert isinstance(answer, dict) and same(answer["OUT"], np.full((1, 2), value, np.float32))


def test_a_sender_that_was_kept_answers_later(tricks: TensorFront) -> None:
    assert same(do(tricks, "later")["OUT"], 3 * IN)


def test_a_sender_answers_once(tricks: TensorFront) -> None:
    assert same(do(tricks, "twice")["OUT"], IN)
    assert json.loads(do(tricks, "told_twice")["TOLD"][0]) == [
        "Unable to send response. Non-decoupled model cannot send more than one response.",
        "Inference Response object must be provided when the response flags is set to zero.",
        "sent",
        "Unable to send response. Response sender has been closed.",
    ]


def test_metrics_are_reported(tricks: TensorFront) -> None:
    tricks.measures.clear()
    assert do(tricks, "measure")["OUT"].tolist() == [[3, 3]]
    do(tricks, "double")
    told = {(each.name, each.kind): (each.value, each.dimensions) for each in tricks.measures}
    assert told == {
        ("tricks_total", "COUNTER"): (3.0, [("by", "me")]),
        ("tricks_level", "GAUGE"): (3.0, []),
        ("tricks_size", "HISTOGRAM"): (1.5, []),
    }
    assert do(tricks, "measure")["OUT"].tolist() == [[6, 3]]
    do(tricks, "double")
    assert tricks.measures[3].value == 3.0, "a counter reports what it has grown by"


def test_a_call_of_another_model_goes_out_and_its_answer_comes_back(tricks: TensorFront) -> None:
    number = tricks.send({"IN": IN}, parameters={"do": "call"})
    ask, data = tricks.front.receive()
    assert isinstance(ask, Ask) and (ask.model, ask.outputs, ask.id, ask.holds) == ("other", ["OUT"], "id", True)
    assert ask.inputs == [PartHead("IN", "tensor/FP32;1,2", 8)] and data == IN.tobytes()

    body = tensor.join(Answer([Head("OUT", "FP32", [1, 2], 8)]), [(3 * IN).tobytes()])
    tricks.front.send(Told(ask.errand, True), [body])
    ((answer,),) = tricks.hear(number, 1)
    assert isinstance(answer, dict) and same(answer["OUT"], 3 * IN)


def test_a_call_whose_client_leaves_is_called_off(tricks: TensorFront) -> None:
    number = tricks.send({"IN": IN}, parameters={"do": "call"})
    ask, _ = tricks.front.receive()
    assert isinstance(ask, Ask)
    tricks.front.send(Cancel(number, 0))
    assert tricks.front.receive()[0] == CallOff(ask.errand)
    ((answer,),) = tricks.hear(number, 1)
    assert isinstance(answer, Failure) and answer.message == "the request was cancelled"


def test_tensors_that_the_model_keeps_outlive_the_memory_of_their_request(folder: Path) -> None:
    arena = Arena(2**20)
    with serving(folder / "1", "python", TRICKS, arena.fd) as front:
        for number, word in enumerate(("keep", "keep_array", "keep_unread"), 1):
            block = arena.lend(8)
            assert block is not None
            block.view[:] = (number * IN).tobytes()
            head = PartHead("IN", tensor.part_type("FP32", [1, 2]), 8, block.offset)
            header = msgspec.msgpack.encode({"parameters": {"do": word}})
            front.front.send(Run(number, 0, [Item([head], b"", [(b"v2", header)])]))
            front.hear(number, 1)
            block.view[:] = b"\xff" * 8
            block.release()
        front.number = 3
        assert same(do(front, "recall")["OUT"], np.concatenate([IN, 2 * IN, 3 * IN]))
    arena.close()


def test_a_model_sees_that_a_client_has_left_while_it_runs(folder: Path) -> None:
    with serving(folder / "1", "python", TRICKS) as front:
        number = front.send({"IN": IN}, parameters={"do": "wait"})
        front.front.send(Cancel(number, 0))
        front.hear(number, 1)
        assert front.front.stop() == 0
        assert front.front.process.stdout is not None
        printed = front.front.process.stdout.read()
        assert "cancelled" in printed


def test_what_a_model_logs_is_seen_and_it_is_told_of_its_end(folder: Path) -> None:
    with serving(folder / "1", "python", TRICKS) as front:
        assert front.front.stop() == 0
        process = front.front.process
        assert process.stdout is not None and process.stderr is not None
        assert process.stdout.read().split() == ["initialised", "finalised"]
        assert process.stderr.read().split() == ["be", "warned"]


@pytest.mark.parametrize(
    ("source", "message"),
    [
        ("class TritonPythonModel:\n    def initialize(self, args):\n        raise RuntimeError('no')\n",
         "RuntimeError: no\n\nAt:\n  {file}(3): initialize\n"),
        ("x = 1\n", "AttributeError: module '1.model' has no attribute 'TritonPythonModel'"),
        ("def x(:\n", "SyntaxError: invalid syntax (model.py, line 1)"),
        ("import triton_python_backend_utils.nothing\n", "ModuleNotFoundError: no module"),
    ],
)  # fmt: skip
def test_a_python_model_that_cannot_be_loaded_says_why(tmp_path: Path, source: str, message: str) -> None:
    file = tmp_path / "1" / "model.py"
    file.parent.mkdir()
    file.write_text(source)
    with worker() as front:
        word = load(front, file.parent, "python", TRICKS)
        assert isinstance(word, Unloadable)
        assert word.message.startswith(message.format(file=file))
        assert front.exit_code() == 1


def test_a_model_without_execute_is_loaded_and_fails_requests(tmp_path: Path) -> None:
    file = tmp_path / "1" / "model.py"
    file.parent.mkdir()
    file.write_text("class TritonPythonModel:\n    pass\n")
    with serving(file.parent, "python", TRICKS) as front:
        failure = front.one({"IN": IN})
        assert failure.message == (f"{FAILED} 'm_1', message: Python model {file} does not implement `execute` method.")


def test_a_coroutine_execute_is_awaited(tmp_path: Path) -> None:
    (tmp_path / "1").mkdir()
    (tmp_path / "model.py").write_text(
        "import asyncio, triton_python_backend_utils as pb\n"
        "class TritonPythonModel:\n"
        "    async def execute(self, requests):\n"
        "        await asyncio.sleep(0)\n"
        "        self.loop = getattr(self, 'loop', None) or asyncio.get_running_loop()\n"
        "        assert self.loop is asyncio.get_running_loop()\n"
        "        return [pb.InferenceResponse([pb.Tensor('OUT', 2 * r.inputs()[0].as_numpy())]) for r in requests]\n"
    )  # beside the versions, which share it
    with serving(tmp_path / "1", "python", TRICKS) as front:
        for _ in range(2):
            assert same(front.one({"IN": IN})["OUT"], 2 * IN)


# -- decoupled -------------------------------------------------------------------------------------------------------

REPEAT = interface([spec("IN", "INT32", 1)], [spec("OUT", "INT32", 1)], 0, decoupled=True)


@pytest.fixture(scope="module")
def repeater(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """The version folder of a model that answers often."""
    return python_model(tmp_path_factory.mktemp("repeat"), "repeat")


@pytest.fixture(scope="module")
def repeat(repeater: Path) -> Iterator[TensorFront]:
    with serving(repeater, "python", REPEAT) as front:
        yield front


def count(number: int) -> Values:
    return {"IN": np.array([number], np.int32)}


def numbers(answers: list[Any]) -> list[int]:
    return [int(answer["OUT"][0]) for answer in answers]


def test_a_decoupled_model_answers_as_often_as_it_likes(repeat: TensorFront) -> None:
    told = repeat.hear(repeat.send(count(3), count(0), count(1)), 3)
    assert [numbers(answers) for answers in told] == [[0, 1, 2], [], [0]]


def test_a_decoupled_worker_holds_more_than_one_batch(repeater: Path) -> None:
    with worker() as front:
        assert load(front, repeater, "python", REPEAT) == Loaded("TritonPythonModel", 2, True)


def test_answers_leave_while_execute_still_runs(repeater: Path) -> None:
    with serving(repeater, "python", REPEAT) as front:
        front.send(count(1), parameters={"do": "wait_here"})
        report, data = front.front.receive()
        assert values(data)["OUT"].tolist() == [0] and not report.pieces[0].is_last


def test_other_threads_answer_after_execute_has_returned_and_later_batches_run_meanwhile(repeater: Path) -> None:
    with serving(repeater, "python", REPEAT) as front:
        first = front.send(count(3), parameters={"do": "thread"})
        second = front.send(count(0), parameters={"do": "open"})
        assert _hear_all(front, [first, second]) == {first: [0, 1, 2], second: []}


def test_a_stream_does_not_wait_for_another_of_its_batch(repeater: Path) -> None:
    with serving(repeater, "python", REPEAT) as front:
        first = front.send(count(2), count(1), parameters={"do": "some_wait"})
        report, data = front.front.receive()
        assert report.batch == first and [piece.index for piece in report.pieces] == [1]
        assert values(data)["OUT"].tolist() == [0]


def test_an_error_inside_a_stream_does_not_end_it(repeat: TensorFront) -> None:
    ((first, second, third),) = repeat.hear(repeat.send(count(1), parameters={"do": "mixed"}), 1)
    assert numbers([first, third]) == [0, 0]
    assert second == {"error": "half", "code": "UNAVAILABLE"}


def test_an_exception_ends_the_streams_that_are_open(repeat: TensorFront) -> None:
    ((failure,), (other,)) = repeat.hear(repeat.send(count(1), count(1), parameters={"do": "raise"}), 2)
    assert isinstance(failure, Failure) and isinstance(other, Failure)
    assert failure.message.startswith(f"{FAILED} 'm_1', message: ValueError: no such bee\n\nAt:\n")
    assert failure.status == 500


def test_a_decoupled_execute_returns_nothing(repeat: TensorFront) -> None:
    ((failure,),) = repeat.hear(repeat.send(count(1), parameters={"do": "return"}), 1)
    assert isinstance(failure, Failure)
    assert failure.message == (
        f"{FAILED} 'm_1', message: Python model 'm_1' is using the decoupled mode and the execute function must "
        "return None."
    )


def test_a_stream_whose_sender_was_forgotten_ends(repeat: TensorFront) -> None:
    ((answer, failure),) = repeat.hear(repeat.send(count(1), parameters={"do": "drop"}), 1)
    assert isinstance(failure, Failure) and "let go of this request" in failure.message
    assert numbers([answer]) == [0]


def test_a_response_is_written_when_it_is_sent(repeat: TensorFront) -> None:
    (answers,) = repeat.hear(repeat.send(count(1), parameters={"do": "reuse"}), 1)
    assert numbers(answers) == [0, 1, 2]


def test_a_cancelled_stream_tells_its_sender(repeater: Path) -> None:
    with serving(repeater, "python", REPEAT) as front:
        number = front.send(count(1), parameters={"do": "until_cancelled"})
        front.front.receive()
        front.front.send(Cancel(number, 0))
        front.hear(number, 1)
        process = front.front.process
        assert process.stdout is not None and process.stdout.readline() == "cancelled\n"


def test_a_decoupled_coroutine_is_not_awaited_before_the_next_batch(repeater: Path) -> None:
    settings = parameters(is_async="yes")
    with serving(repeater, "python", REPEAT, settings=settings) as front:
        assert numbers(front.hear(front.send(count(3)), 1)[0]) == [0, 1, 2]
        ((failure,),) = front.hear(front.send(count(1), parameters={"do": "raise"}), 1)
        assert isinstance(failure, Failure) and "ValueError: no such bee" in failure.message


def test_many_streams_at_once_are_not_mixed_up(repeater: Path) -> None:
    with serving(repeater, "python", REPEAT) as front:
        sent = {front.send(count(number % 7)): number % 7 for number in range(40)}
        heard = _hear_all(front, sent)
        assert heard == {number: list(range(amount)) for number, amount in sent.items()}


def _hear_all(front: TensorFront, sent: Iterable[int]) -> dict[int, list[int]]:
    heard: dict[int, list[int]] = {number: [] for number in sent}
    left = set(sent)
    while left:
        report, data = front.front.receive()
        if isinstance(report, Pieces):
            for piece, body in zip(report.pieces, cut(data, [each.size for each in report.pieces]), strict=True):
                if piece.size:
                    heard[report.batch].append(int(values(body)["OUT"][0]))
        elif isinstance(report, Ended):
            left.discard(report.batch)
    return heard
