"""triton_python_backend_utils, as far as it needs no worker."""

import json
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np
import pytest

from shoal.upstream import finder
from shoal.upstream import triton_python_backend_utils as pb_utils
from shoal.upstream.triton_python_backend_utils import metrics
from shoal.worker.backends.received import Received

TensorError = (pb_utils.TritonModelException, TypeError)


@pytest.fixture
def registry(monkeypatch: pytest.MonkeyPatch) -> Iterator[metrics.Registry]:
    made = metrics.Registry()
    monkeypatch.setattr(metrics, "registry", made)
    yield made


def received(datatype: str, array: Any) -> Any:
    data = memoryview(array.tobytes())
    return pb_utils.Tensor.of_request("x", Received(datatype, array.shape, data))


def test_it_is_importable_by_its_name_only_where_it_was_installed(monkeypatch: pytest.MonkeyPatch) -> None:
    name = "triton_python_backend_utils"
    monkeypatch.delitem(sys.modules, name, raising=False)  # a model of another test may have imported it
    finder.install(name)
    try:
        module = __import__(name)
        assert module is pb_utils
    finally:
        finder.uninstall()
    with pytest.raises(ImportError):
        __import__(name)


def test_everything_upstream_offers_is_there() -> None:
    assert set(pb_utils.__all__) >= {
        "InferenceRequest", "InferenceResponse", "Logger", "MetricFamily", "ModelConfig", "PreferredMemory",
        "TRITONSERVER_MEMORY_CPU", "TRITONSERVER_MEMORY_GPU", "TRITONSERVER_REQUEST_FLAG_SEQUENCE_END",
        "TRITONSERVER_REQUEST_FLAG_SEQUENCE_START", "TRITONSERVER_REQUEST_RELEASE_ALL",
        "TRITONSERVER_REQUEST_RELEASE_RESCHEDULE", "TRITONSERVER_RESPONSE_COMPLETE_FINAL", "TRITON_STRING_TO_NUMPY",
        "Tensor", "TritonError", "TritonModelException", "deserialize_bytes_tensor", "get_input_config_by_name",
        "get_input_tensor_by_name", "get_model_dir", "get_output_config_by_name", "get_output_tensor_by_name",
        "is_model_ready", "load_model", "numpy_to_triton_type", "serialize_byte_tensor", "triton_string_to_numpy",
        "triton_to_numpy_type", "unload_model", "using_decoupled_model_transaction_policy",
    }  # fmt: skip
    assert all(hasattr(pb_utils, name) for name in pb_utils.__all__)


def test_a_tensor_has_a_name_a_shape_and_a_type() -> None:
    tensor = pb_utils.Tensor("x", np.arange(6).reshape(2, 3).T)
    assert (tensor.name(), tensor.shape(), tensor.triton_dtype(), tensor.is_cpu()) == ("x", [3, 2], 9, True)
    assert tensor.as_numpy().flags.c_contiguous and tensor.as_numpy().tolist() == [[0, 3], [1, 4], [2, 5]]
    assert pb_utils.Tensor("x", np.array(3.0)).shape() == []
    assert pb_utils.Tensor("x", np.array([b"a"])).triton_dtype() == 13


@pytest.mark.parametrize("value", [[1, 2], np.array(["a"]), np.zeros(1, np.complex64), np.zeros(1, ">f4"), 3.0])
def test_what_is_no_tensor_is_refused(value: Any) -> None:
    with pytest.raises(TensorError):
        pb_utils.Tensor("x", value)


def test_an_input_is_the_models_own() -> None:
    data = bytearray(np.arange(2, dtype=np.float32).tobytes())
    tensor = pb_utils.Tensor.of_request("x", Received("FP32", (2,), memoryview(data)))
    array = tensor.as_numpy()
    assert tensor.as_numpy() is array
    data[:] = bytes(8)
    array[0] = 7
    assert array.tolist() == [7, 1]


def test_an_input_that_is_given_back_unread_is_not_copied() -> None:
    data = bytearray(8)
    tensor = pb_utils.Tensor.of_request("x", Received("FP32", (2,), memoryview(data)))
    _, _, view = tensor.bits()
    data[0] = 9
    assert bytes(view)[0] == 9


def test_bfloat16_has_no_numpy_form_but_a_dlpack_one() -> None:
    torch = pytest.importorskip("torch")
    tensor = received("BF16", np.array([0x3FC0], np.uint16))
    with pytest.raises(pb_utils.TritonModelException, match="tensor 'x' is BF16"):
        tensor.as_numpy()
    taken = torch.from_dlpack(tensor)
    assert taken.dtype == torch.bfloat16 and taken.tolist() == [1.5]
    again = pb_utils.Tensor.from_dlpack("y", taken)
    assert again.triton_dtype() == 14 and again.bits()[0] == "BF16" and bytes(again.bits()[2]) == b"\xc0\x3f"


def test_dlpack_brings_and_takes_numbers() -> None:
    torch = pytest.importorskip("torch")
    array = np.arange(3, dtype=np.float32)
    assert pb_utils.Tensor.from_dlpack("y", array).as_numpy().tolist() == [0, 1, 2]
    assert pb_utils.Tensor.from_dlpack("y", torch.arange(3)).as_numpy().tolist() == [0, 1, 2]
    capsule = torch.utils.dlpack.to_dlpack(torch.arange(3))
    assert pb_utils.Tensor.from_dlpack("y", capsule).as_numpy().tolist() == [0, 1, 2]
    tensor = pb_utils.Tensor("x", array)
    assert tensor.__dlpack_device__() == (1, 0)
    assert torch.utils.dlpack.from_dlpack(tensor.to_dlpack()).tolist() == [0, 1, 2]
    with pytest.raises(pb_utils.TritonModelException, match="DLPack does not have support for string tensors"):
        pb_utils.Tensor("x", np.array([b"a"], object)).to_dlpack()


def test_a_capsule_is_taken_without_torch(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delitem(sys.modules, "torch", raising=False)
    capsule = np.arange(3, dtype=np.float32).__dlpack__()
    assert pb_utils.Tensor.from_dlpack("y", capsule).as_numpy().tolist() == [0, 1, 2]


def test_errors_have_codes() -> None:
    error = pb_utils.TritonError("no")
    assert (error.message(), error.code()) == ("no", pb_utils.TritonError.INTERNAL)
    assert [int(getattr(pb_utils.TritonError, name)) for name in ("UNKNOWN", "NOT_FOUND", "CANCELLED")] == [0, 2, 7]
    with pytest.raises(TypeError, match="99"):
        pb_utils.TritonError("no", 99)


def test_a_response_is_tensors_or_an_error() -> None:
    tensor = pb_utils.Tensor("y", np.zeros(1))
    response = pb_utils.InferenceResponse([tensor], parameters={"a": 1})
    assert response.output_tensors() == [tensor] and not response.has_error() and response.error() is None
    assert response.parameters() == '{"a": 1}'
    assert pb_utils.get_output_tensor_by_name(response, "y") is tensor
    assert pb_utils.get_output_tensor_by_name(response, "z") is None
    assert pb_utils.InferenceResponse([], pb_utils.TritonError("x")).has_error()
    wrong: list[tuple[Any, ...]] = [(["x"],), ([], "x")]
    for arguments in wrong:
        with pytest.raises(TypeError):
            pb_utils.InferenceResponse(*arguments)
    with pytest.raises(pb_utils.TritonModelException, match="found type <class 'list'>"):
        pb_utils.InferenceResponse([], parameters={"a": []})


def test_a_request_of_a_models_own_says_what_it_was_made_of() -> None:
    tensor = pb_utils.Tensor("x", np.zeros(1))
    request = pb_utils.InferenceRequest(
        request_id="a", correlation_id="s", inputs=[tensor], requested_output_names=["y"], model_name="m",
        flags=1, timeout=5, parameters={"b": True},
    )  # fmt: skip
    assert (request.request_id(), request.correlation_id(), request.flags(), request.timeout()) == ("a", "s", 1, 5)
    assert request.requested_output_names() == {"y"} and request.parameters() == '{"b":true}'
    assert pb_utils.get_input_tensor_by_name(request, "x") is tensor
    assert pb_utils.get_input_tensor_by_name(request, "z") is None
    request.set_flags(2)
    assert request.flags() == 2 and not request.is_cancelled()
    with pytest.raises(pb_utils.TritonModelException, match="no response sender"):
        request.get_response_sender()


X = pb_utils.Tensor("x", np.array([1.0]))


@pytest.mark.parametrize(
    ("fields", "kind", "words"),
    [
        ({"model_name": "m", "inputs": [X]}, TypeError, "needs inputs, requested_output_names and model_name"),
        ({"requested_output_names": [], "inputs": [X]}, TypeError, "needs inputs"),
        ({"timeout": "soon"}, TypeError, "timeout of an InferenceRequest is of type int, got 'soon'"),
        ({"request_id": 5}, TypeError, "request_id of an InferenceRequest is of type str, got 5"),
        ({"flags": -1}, pb_utils.TritonModelException, "flags of an InferenceRequest cannot be negative"),
        ({"correlation_id": -1}, pb_utils.TritonModelException, "correlation_id .* cannot be negative"),
        ({"inputs": ["x"]}, TypeError, "are Tensor objects, got str"),
        ({"inputs": [None]}, pb_utils.TritonModelException, "id '' and model name 'm' should not be empty"),
        ({"requested_output_names": [5]}, TypeError, "are str, got int"),
        ({"requested_output_names": [""]}, pb_utils.TritonModelException, "Requested output name .* be empty"),
        ({"parameters": "x"}, pb_utils.TritonModelException, "to have type dict"),
    ],
)
def test_what_cannot_be_asked_of_a_model_is_said_at_once(fields: Any, kind: Any, words: str) -> None:
    is_short = "needs" in words
    whole = fields if is_short else {"model_name": "m", "inputs": [X], "requested_output_names": [], **fields}
    with pytest.raises(kind, match=words):
        pb_utils.InferenceRequest(**whole)


def test_a_tensor_has_a_name() -> None:
    with pytest.raises(pb_utils.TritonModelException, match="Tensor name cannot be an empty string"):
        pb_utils.Tensor("", np.array([1.0]))


def test_what_speaks_no_dlpack_is_refused() -> None:
    with pytest.raises(pb_utils.TritonModelException, match="Tensor must be a DLPack capsule or have"):
        pb_utils.Tensor.from_dlpack("x", 5)


@pytest.mark.parametrize("arguments", [(5,), ("m", 9)])
def test_the_log_takes_text_and_a_level(arguments: Any) -> None:
    with pytest.raises(TypeError, match="Logger takes a str and a level"):
        pb_utils.Logger.log(*arguments)


def test_types_go_both_ways() -> None:
    assert pb_utils.triton_string_to_numpy("TYPE_FP32") is np.float32
    assert pb_utils.triton_string_to_numpy("TYPE_STRING") is np.object_
    assert pb_utils.triton_string_to_numpy("TYPE_BOOL") is bool
    assert [pb_utils.triton_to_numpy_type(number) for number in (1, 2, 9, 10, 13)] == [
        bool, np.uint8, np.int64, np.float16, np.object_,
    ]  # fmt: skip
    assert [pb_utils.numpy_to_triton_type(kind) for kind in (bool, np.bool_, np.float64, np.object_, np.bytes_)] == [
        1, 1, 12, 13, 13,
    ]  # fmt: skip
    assert pb_utils.numpy_to_triton_type(np.complex64) is None


def test_strings_are_written_and_read() -> None:
    written = pb_utils.serialize_byte_tensor(np.array([["a", b"bc"]], object))
    assert written.item() == b"\x01\0\0\0a\x02\0\0\0bc"
    assert pb_utils.deserialize_bytes_tensor(written.item()).tolist() == [b"a", b"bc"]
    assert pb_utils.serialize_byte_tensor(np.array([], object)).size == 0
    assert pb_utils.serialize_byte_tensor(np.zeros(1)) is None


def test_configurations_are_looked_into() -> None:
    config = {"input": [{"name": "a"}], "output": [{"name": "b"}], "model_transaction_policy": {"decoupled": True}}
    assert pb_utils.get_input_config_by_name(config, "a") == {"name": "a"}
    assert pb_utils.get_input_config_by_name(config, "b") is None
    assert pb_utils.get_output_config_by_name(config, "b") == {"name": "b"}
    assert pb_utils.using_decoupled_model_transaction_policy(config)
    assert not pb_utils.using_decoupled_model_transaction_policy({})


def completing(**more: Any) -> Any:
    given = [{"name": "A", "data_type": "TYPE_FP32", "dims": [1]}]
    return pb_utils.ModelConfig(json.dumps({"name": "m", "max_batch_size": 4, "input": given, "output": [], **more}))


def test_a_configuration_is_added_to() -> None:
    config = completing()
    config.set_max_batch_size(8)
    config.set_dynamic_batching()
    config.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [1], "optional": True})
    config.add_input({"name": "B", "data_type": "TYPE_FP32", "dims": [1]})
    config.add_output({"name": "C", "data_type": "TYPE_INT8", "dims": [-1]})
    config.set_model_transaction_policy({"decoupled": True})
    config.set_model_transaction_policy({})
    assert config.as_dict() == {
        "name": "m",
        "max_batch_size": 8,
        "input": [
            {"name": "A", "data_type": "TYPE_FP32", "dims": [1], "optional": True},
            {"name": "B", "data_type": "TYPE_FP32", "dims": [1]},
        ],
        "output": [{"name": "C", "data_type": "TYPE_INT8", "dims": [-1]}],
        "dynamic_batching": {},
        "model_transaction_policy": {"decoupled": True},
    }
    empty = completing(input=[{"name": "A", "data_type": "TYPE_INVALID", "dims": []}])
    empty.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [1]})
    assert empty.as_dict()["input"] == [{"name": "A", "data_type": "TYPE_FP32", "dims": [1]}]


WHERE = "auto-complete-config function for model 'm'"


@pytest.mark.parametrize(
    ("change", "message"),
    [
        (lambda c: c.set_max_batch_size(2),
         f"configuration specified max_batch_size 4, but in {WHERE} specified max_batch_size 2"),
        (lambda c: c.add_input({}), f"input in {WHERE} is missing 'name' property."),
        (lambda c: c.add_output({"name": "B"}), f"output 'B' in {WHERE} is missing 'data_type' property."),
        (lambda c: c.add_input({"name": "B", "data_type": "T"}), f"input 'B' in {WHERE} is missing 'dims' property."),
        (lambda c: c.add_input({"name": "B", "data_type": "T", "dims": [1], "z": 1}),
         f"input 'B' in {WHERE} contains property other than 'name', 'data_type', 'dims' and 'optional'."),
        (lambda c: c.add_output({"name": "B", "data_type": "T", "dims": [1], "optional": True}),
         f"output 'B' in {WHERE} contains property other than 'name', 'data_type' and 'dims'."),
        (lambda c: c.add_input({"name": "A", "data_type": "TYPE_FP64", "dims": [1]}),
         "unable to load model 'm', configuration expects datatype TYPE_FP32 for input 'A', model provides TYPE_FP64"),
        (lambda c: c.add_input({"name": "A", "data_type": "TYPE_FP32", "dims": [2]}),
         "model 'm', tensor 'A': the model expects dims [2] but the model configuration specifies dims [1]"),
        (lambda c: c.set_model_transaction_policy({"x": 1}),
         f"model transaction property in {WHERE} contains property other than 'decoupled'."),
    ],
)  # fmt: skip
def test_contradictions_are_refused_in_upstreams_words(change: Any, message: str) -> None:
    with pytest.raises(ValueError) as error:
        change(completing())
    assert str(error.value) == message


def test_schedulers_and_policies_are_not_changed() -> None:
    with pytest.raises(ValueError, match="scheduling_choice as 'sequence_batching', but"):
        completing(sequence_batching={}).set_dynamic_batching()
    with pytest.raises(ValueError, match="which is already set to 'False'"):
        completing(model_transaction_policy={"decoupled": False}).set_model_transaction_policy({"decoupled": True})


def test_metrics_are_taken_once(registry: metrics.Registry) -> None:
    counter = pb_utils.MetricFamily("c", "d", pb_utils.MetricFamily.COUNTER)
    gauge = pb_utils.MetricFamily("g", "d", pb_utils.MetricFamily.GAUGE).Metric()
    counter.Metric({"b": "2", "a": "1"}).increment(1)
    counter.Metric({"a": "1", "b": "2"}).increment(2)
    gauge.set(5)
    assert counter.Metric({"a": "1", "b": "2"}).value() == 3 and gauge.value() == 5
    assert registry.take() == [("c", "COUNTER", 3.0, (("a", "1"), ("b", "2"))), ("g", "GAUGE", 5.0, ())]
    assert registry.take() == []


@pytest.mark.parametrize(
    ("kind", "call", "message"),
    [
        ("COUNTER", lambda family: family.Metric().increment(-1), "can only be incremented monotonically"),
        ("COUNTER", lambda family: family.Metric().set(1), "Failed to set metric value: 'f' is a TRITONSERVER_METRIC"),
        ("GAUGE", lambda family: family.Metric().observe(1), "does not support it"),
        ("HISTOGRAM", lambda family: family.Metric({}, [1.0]).value(), "does not support it"),
        ("HISTOGRAM", lambda family: family.Metric(), "Missing required buckets"),
        ("HISTOGRAM", lambda family: family.Metric({}, [2.0, 1.0]), "buckets must ascend"),
        ("GAUGE", lambda family: family.Metric({}, [1.0]), "Unexpected buckets found"),
        ("GAUGE", lambda family: family.Metric({"a": 1}), "label 'a' must be a str, got 1"),
        ("GAUGE", lambda family: pb_utils.MetricFamily("bad name", "d", family.kind), "Invalid metric name"),
        ("GAUGE", lambda family: pb_utils.MetricFamily("f", "d", pb_utils.MetricFamily.COUNTER), "is a GAUGE already"),
    ],
)  # fmt: skip
def test_a_metric_is_used_as_its_kind_allows(registry: Any, kind: str, call: Any, message: str) -> None:
    family = pb_utils.MetricFamily("f", "d", getattr(pb_utils.MetricFamily, kind))
    with pytest.raises(pb_utils.TritonModelException, match=message):
        call(family)
