"""The tensor handler, the micro-batching handler of the example, and the handlers that are not provided."""

import importlib
import io
from pathlib import Path
from typing import Any

import pytest
import torch

from shoal.upstream.ts.handler_utils.micro_batching import MicroBatching
from shoal.upstream.ts.torch_handler.densenet_handler import DenseNetHandler
from shoal.upstream.ts.torch_handler.image_classifier import ImageClassifier
from shoal.upstream.ts.utils.util import PredictionException, list_classes_from_module
from tests.unit.upstream.torch_handler.cases import encoded, write_model
from tests.unit.upstream.torch_handler.serving import context, default_handler


def stored(value: Any) -> bytes:
    file = io.BytesIO()
    torch.save(value, file)
    return file.getvalue()


class Double(torch.nn.Module):
    def forward(self, x: torch.Tensor) -> torch.Tensor:
        return x * 2


@pytest.fixture
def tensors() -> DenseNetHandler:
    handler = DenseNetHandler()
    handler.model = Double()
    handler.device = torch.device("cpu")
    return handler


def test_tensors_are_answered_with_tensors_each_with_its_own(tensors: DenseNetHandler) -> None:
    rows = [{"data": stored(torch.ones(2))}, {"body": bytearray(stored(torch.arange(2.0)))}]

    answers = tensors.handle(rows, context(".", rows=2))

    assert [answer.tolist() for answer in answers] == [[[2.0, 2.0]], [[0.0, 2.0]]]


@pytest.mark.parametrize("value", [b"hello", b"", None, [1.0], stored(Double())])
def test_what_is_no_tensor_is_refused(tensors: DenseNetHandler, value: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("SHOAL_ALLOW_PICKLE", "1")  # which is about the operator's files, not the client's

    with pytest.raises(PredictionException, match="row 0 of the batch is no tensor"):
        tensors.handle([{"data": value}], context("."))


def test_a_list_of_tensors_is_refused(tensors: DenseNetHandler) -> None:
    with pytest.raises(PredictionException, match="row 0 of the batch is a list, not a tensor"):
        tensors.handle([{"data": stored([torch.ones(1)])}], context("."))


class MicroBatchingHandler(ImageClassifier):
    """As the micro-batching example has it: no call to the constructor above."""

    def __init__(self) -> None:
        self.handle = MicroBatching(self, 2, {"preprocess": 2})  # type: ignore[method-assign]


def test_the_micro_batching_handler_answers_as_the_plain_one(tmp_path: Path) -> None:
    described = write_model(tmp_path, "classifier")
    rows = [{"data": encoded("RGB", 20 + 9 * number, 30)} for number in range(5)]
    plain, micro = ImageClassifier(), MicroBatchingHandler()
    for handler in (plain, micro):
        handler.initialize(context(tmp_path, described))

    try:
        answers = micro.handle(rows, context(tmp_path, rows=5))
        expected = plain.handle(rows, context(tmp_path, rows=5))
    finally:
        micro.handle.shutdown()  # type: ignore[attr-defined]

    assert [list(answer) for answer in answers] == [list(answer) for answer in expected]
    for made, wanted in zip(answers, expected, strict=True):
        assert list(made.values()) == pytest.approx(list(wanted.values()), abs=1e-6)


@pytest.mark.parametrize(
    ("module", "reason"),
    [
        ("dali_handler", "DALIHandler is not provided: it needs NVIDIA DALI"),
        ("dali_image_classifier", "DALIImageClassifier is not provided: .*use image_classifier"),
        ("vllm_handler", "VLLMHandler is not provided: .*vllm"),
        ("trt_llm_handler", "TRTLLMHandler is not provided: .*tensorrt_llm"),
        ("distributed.base_pippy_handler", "BasePippyHandler is not provided: .*several processes"),
        ("distributed.base_deepspeed_handler", "BaseDeepSpeedHandler is not provided: .*several processes"),
    ],
)
def test_a_handler_that_is_not_provided_fails_at_load_and_says_why(module: str, reason: str) -> None:
    handler = default_handler(module)
    derived = type("Mine", (type(handler),), {})()

    for each in (handler, derived):
        with pytest.raises(ImportError, match=reason):
            each.initialize(context("."))


@pytest.mark.parametrize(
    ("module", "name", "arguments"),
    [
        ("pt_pippy", "get_pipeline_driver", 3),
        ("pt_pippy", "initialize_rpc_workers", 3),
        ("deepspeed", "get_ds_engine", 2),
    ],
)
def test_the_tools_of_such_handlers_say_so_too(module: str, name: str, arguments: int) -> None:
    tool = getattr(importlib.import_module(f"shoal.upstream.ts.handler_utils.distributed.{module}"), name)

    with pytest.raises(ImportError, match=f"{name} is not provided: .*several processes"):
        tool(*[None] * arguments)


@pytest.mark.parametrize(
    "name",
    [
        "base_handler",
        "vision_handler",
        "image_classifier",
        "image_segmenter",
        "object_detector",
        "text_handler",
        "text_classifier",
        "densenet_handler",
    ],
)
def test_a_module_of_a_handler_defines_one_class(name: str) -> None:
    """Which is how an archive that names it finds its entry point."""
    module = importlib.import_module(f"shoal.upstream.ts.torch_handler.{name}")

    assert len(list_classes_from_module(module)) == 1
