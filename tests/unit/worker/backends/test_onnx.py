"""ONNX models, made here."""

from pathlib import Path
from typing import Any

import numpy as np
import onnxruntime as ort
import pytest

from shoal.config import devices
from shoal.errors import LoadFailed
from shoal.wire.messages import Failure
from shoal.worker.backends import onnx
from tests.process.tensor_front import Raw, interface, parameters, same, spec
from tests.unit.worker.backends.making import ask, config, node, one, onnx_file, program

X = np.arange(4, dtype=np.float32).reshape(2, 2)
IO = interface([spec("x", "FP32", 2)], [spec("y", "FP32", 2)], 8)


def negate(folder: Path, dims: Any = ("N", 2), datatype: str = "FP32") -> Path:
    return onnx_file(folder, [node("Neg", ["x"], ["y"])], [("x", datatype, dims)], [("y", datatype, dims)])


def test_a_batch_is_run_as_one_and_split(tmp_path: Path) -> None:
    made = program(negate(tmp_path), "onnxruntime", IO)
    assert made.wants_headers
    first, second = ask(made, {"x": X}, {"x": X[:1] + 1})
    assert isinstance(first, dict) and same(first["y"], -X)
    assert isinstance(second, dict) and same(second["y"], -(X[:1] + 1))


def test_a_model_without_a_batch_takes_tensors_as_they_are(tmp_path: Path) -> None:
    made = program(
        negate(tmp_path, [2, 2]), "onnxruntime", interface([spec("x", "FP32", 2, 2)], [spec("y", "FP32", 2, 2)])
    )
    assert same(one(made, {"x": X})["y"], -X)


def test_only_outputs_that_somebody_wants_are_taken(tmp_path: Path) -> None:
    version = onnx_file(
        tmp_path,
        [node("Add", ["a", "b"], ["s"]), node("Sub", ["a", "b"], ["d"])],
        [("a", "INT64", ["N", 1]), ("b", "INT64", ["N", 1])],
        [("s", "INT64", ["N", 1]), ("d", "INT64", ["N", 1])],
    )
    io = interface([spec("a", "INT64", 1), spec("b", "INT64", 1)], [spec("s", "INT64", 1), spec("d", "INT64", 1)], 8)
    made = program(version, "onnxruntime", io)
    values = {"a": np.array([[5]]), "b": np.array([[3]])}
    assert one(made, values) == {"s": np.array([[8]]), "d": np.array([[2]])}
    assert one(made, values, outputs=["d"]) == {"d": np.array([[2]])}


def test_what_onnxruntime_refuses_is_told(tmp_path: Path) -> None:
    io = interface([spec("x", "FP32", -1, 2), spec("shape", "INT64", 2)], [spec("y", "FP32", -1, -1)])
    version = onnx_file(
        tmp_path,
        [node("Reshape", ["x", "shape"], ["y"])],
        [("x", "FP32", ["N", "T"]), ("shape", "INT64", ["D"])],
        [("y", "FP32", ["N", "T"])],
    )
    failure = one(program(version, "onnxruntime", io), {"x": X, "shape": np.array([3, 7])})
    assert isinstance(failure, Failure) and failure.status == 500
    assert failure.message.startswith("onnx runtime error ") and "Reshape" in failure.message


def test_text_is_utf8_and_a_request_whose_is_not_fails_alone(tmp_path: Path) -> None:
    version = onnx_file(
        tmp_path, [node("Identity", ["x"], ["y"])], [("x", "BYTES", ["N", 1])], [("y", "BYTES", ["N", 1])]
    )
    made = program(version, "onnxruntime", interface([spec("x", "BYTES", 1)], [spec("y", "BYTES", 1)], 8))
    bad, good = ask(made, {"x": np.array([[b"\xff"]], object)}, {"x": np.array([["é".encode()]], object)})
    assert isinstance(bad, Failure) and bad.kind == "input" and "input 'x' must be UTF-8" in bad.message
    assert isinstance(good, dict) and good["y"].tolist() == [["é".encode()]]


def test_bfloat16_passes_as_bits_and_is_computed_with(tmp_path: Path) -> None:
    version = onnx_file(
        tmp_path,
        [node("Cast", ["x"], ["f"], to=1), node("Add", ["f", "f"], ["g"]), node("Cast", ["g"], ["y"], to=16)],
        [("x", "BF16", ["N"])],
        [("y", "BF16", ["N"])],
    )
    made = program(version, "onnxruntime", interface([spec("x", "BF16", -1)], [spec("y", "BF16", -1)]))
    one_and_half, three = 0x3FC0, 0x4040
    sent = Raw("BF16", [1], one_and_half.to_bytes(2, "little"))
    assert one(made, {"x": sent})["y"].tolist() == [three]


def test_reshaping_and_scalars_reach_the_model(tmp_path: Path) -> None:
    made = program(
        negate(tmp_path, ["N"]),
        "onnxruntime",
        interface([spec("x", "FP32", 1, reshape=[])], [spec("y", "FP32", 1, reshape=[])], 8),
    )
    assert same(one(made, {"x": X[:, :1]})["y"], -X[:, :1])


def test_a_ragged_batch_comes_with_its_counts(tmp_path: Path) -> None:
    version = onnx_file(
        tmp_path,
        [node("Constant", [], ["axis"], value_int=0), node("CumSum", ["x", "axis"], ["sums"]),
         node("Cast", ["n"], ["i"], to=7), node("Constant", [], ["one"], value_int=1),
         node("Sub", ["i", "one"], ["last"]), node("Gather", ["sums", "last"], ["g"]),
         node("Constant", [], ["ax"], value_ints=[1]), node("Unsqueeze", ["g", "ax"], ["y"])],
        [("x", "FP32", ["T"]), ("n", "INT32", ["N"])],
        [("y", "FP32", ["N", 1])],
    )  # fmt: skip
    entry = {"kind": "BATCH_ACCUMULATED_ELEMENT_COUNT", "target_name": ["n"], "data_type": "TYPE_INT32",
             "source_input": ["x"]}  # fmt: skip
    io = interface([spec("x", "FP32", -1, is_ragged=True)], [spec("y", "FP32", 1)], 8)
    made = program(version, "onnxruntime", io, settings={"batch_input": [entry]})
    first, second = ask(made, {"x": np.ones((1, 3), np.float32)}, {"x": np.ones((1, 2), np.float32)})
    assert isinstance(first, dict) and first["y"].tolist() == [[3]]
    assert isinstance(second, dict) and second["y"].tolist() == [[5]]


@pytest.mark.parametrize(
    ("io", "message"),
    [
        (interface([spec("z", "FP32", 2)], [spec("y", "FP32", 2)], 8),
         "unexpected inference input 'z' in the configuration of model 'm'; the model has x"),
        (interface([spec("x", "FP32", 2)], [spec("z", "FP32", 2)], 8), "unexpected inference output 'z'"),
        (interface([spec("x", "INT32", 2)], [spec("y", "FP32", 2)], 8),
         "configuration expects datatype INT32 for input 'x', model provides FP32"),
        (interface([spec("x", "FP32", 3)], [spec("y", "FP32", 2)], 8),
         r"tensor 'x': the model expects 2 dimensions (shape [-1, 2]) but the model configuration specifies 2 "
         r"dimensions (shape [-1, 3]), the batch among them"),
        (interface([spec("x", "FP32", 2)], [spec("y", "FP32", 2)]), "specifies 1 dimensions (shape [2])"),
        (interface([], [spec("y", "FP32", 2)], 8), "takes x too, and its configuration has no such input"),
    ],
)  # fmt: skip
def test_a_configuration_that_the_model_contradicts_is_refused(tmp_path: Path, io: Any, message: str) -> None:
    with pytest.raises(LoadFailed) as error:
        program(negate(tmp_path), "onnxruntime", io)
    assert message in str(error.value)


def test_a_file_that_is_no_model_is_refused(tmp_path: Path) -> None:
    (tmp_path / "model.onnx").write_bytes(b"no")
    with pytest.raises(LoadFailed, match=r"model.onnx of model 'm' cannot be loaded"):
        program(tmp_path, "onnxruntime", IO)
    with pytest.raises(LoadFailed, match=r"has no model.onnx"):
        program(tmp_path / "nowhere", "onnxruntime", IO)
    for name in ("../model.onnx", "/etc/passwd"):
        with pytest.raises(LoadFailed, match="must name a file inside the version folder"):
            program(tmp_path, "onnxruntime", IO, settings={"default_model_filename": name})


def test_a_model_may_have_another_name_or_lie_in_a_folder(tmp_path: Path) -> None:
    version = negate(tmp_path)
    (version / "model.onnx").rename(version / "bees.onnx")
    settings = {"default_model_filename": "bees.onnx"}
    assert same(one(program(version, "onnxruntime", IO, settings=settings), {"x": X})["y"], -X)
    (version / "model.onnx").mkdir()
    (version / "bees.onnx").rename(version / "model.onnx" / "model.onnx")
    assert same(one(program(version, "onnxruntime", IO), {"x": X})["y"], -X)


def test_session_options_follow_the_configuration() -> None:
    settings = parameters(
        intra_op_thread_count=3, inter_op_thread_count=2, execution_mode=1, enable_mem_arena="false",
        enable_mem_pattern=0,
    )  # fmt: skip
    settings["optimization"] = {"graph": {"level": -1}}
    options = onnx.session_options(config(Path("/m"), "onnxruntime", IO, settings=settings))
    assert (options.intra_op_num_threads, options.inter_op_num_threads) == (3, 2)
    assert options.execution_mode == ort.ExecutionMode.ORT_PARALLEL
    assert not options.enable_cpu_mem_arena and not options.enable_mem_pattern
    assert options.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_BASIC


def test_processes_share_the_cores_and_instances_share_a_session() -> None:
    cores = devices.count_cpus()
    alone = onnx.session_options(config(Path("/m"), "onnxruntime", IO, instances=2))
    assert alone.intra_op_num_threads == cores
    assert alone.graph_optimization_level == ort.GraphOptimizationLevel.ORT_ENABLE_ALL
    many = onnx.session_options(config(Path("/m"), "onnxruntime", IO, workers=2))
    assert many.intra_op_num_threads == max(1, cores // 2)
    assert many.get_session_config_entry("session.intra_op.allow_spinning") == "0"


@pytest.mark.parametrize(
    ("name", "value", "message"),
    [("intra_op_thread_count", "many", "whole number of 0 or more, got 'many'"),
     ("enable_mem_arena", "perhaps", "must be true or false, got 'perhaps'")],
)  # fmt: skip
def test_parameters_that_mean_nothing_are_refused(name: str, value: str, message: str) -> None:
    with pytest.raises(LoadFailed, match=message):
        onnx.session_options(config(Path("/m"), "onnxruntime", IO, settings=parameters(**{name: value})))


def test_a_device_or_accelerator_that_is_not_here_is_refused() -> None:
    if "CUDAExecutionProvider" not in ort.get_available_providers():
        with pytest.raises(LoadFailed, match="is to run on cuda:1 with CUDAExecutionProvider"):
            onnx.providers(config(Path("/m"), "onnxruntime", IO, device="cuda:1"))
    settings = {"optimization": {"execution_accelerators": {"cpu_execution_accelerator": [{"name": "bees"}]}}}
    with pytest.raises(LoadFailed, match="'bees' is not known; there are tensorrt, openvino"):
        onnx.providers(config(Path("/m"), "onnxruntime", IO, settings=settings))
    assert onnx.providers(config(Path("/m"), "onnxruntime", IO)) == ["CPUExecutionProvider"]


def test_memory_that_ran_out_is_said_so() -> None:
    error = RuntimeError("[ONNXRuntimeError] : 6 : RUNTIME_EXCEPTION : Failed to allocate memory for requested buffer")
    assert isinstance(onnx._failed(error), MemoryError)
    other = onnx._failed(RuntimeError("[ONNXRuntimeError] : 2 : INVALID_ARGUMENT : Got invalid dimensions\n"))
    assert str(other) == "onnx runtime error 2: Got invalid dimensions"
