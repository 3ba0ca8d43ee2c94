from typing import Any

import pytest

from shoal.config import pbtxt
from shoal.errors import ConfigError
from shoal.triton.normalise import deduce_backend, fill_in, resolve_instances


def deduced(text: str, *contents: str, name: str = "m") -> tuple[str, str, str]:
    message = pbtxt.parse(text, "config")
    message.name = name
    deduce_backend(message, contents)
    return message.platform, message.backend, message.default_model_filename


@pytest.mark.parametrize(
    ("text", "contents", "expected"),
    [
        ("", ["model.onnx"], ("onnxruntime_onnx", "onnxruntime", "model.onnx")),
        ("", ["model.pt"], ("pytorch_libtorch", "pytorch", "model.pt")),
        ("", ["model.pt2"], ("torch_aoti", "pytorch", "model.pt2")),
        ("", ["model.py"], ("", "python", "model.py")),
        ("", ["model.py", "model.onnx"], ("onnxruntime_onnx", "onnxruntime", "model.onnx")),
        ("", ["model.plan"], ("tensorrt_plan", "tensorrt", "model.plan")),
        ("", ["model.savedmodel"], ("tensorflow_savedmodel", "tensorflow", "model.savedmodel")),
        ('platform: "onnxruntime_onnx"', [], ("onnxruntime_onnx", "onnxruntime", "model.onnx")),
        ('platform: "libtorch"', [], ("pytorch_libtorch", "pytorch", "model.pt")),
        ('platform: "torch_aoti"', [], ("torch_aoti", "pytorch", "model.pt2")),
        ('backend: "onnxruntime"', [], ("onnxruntime_onnx", "onnxruntime", "model.onnx")),
        ('backend: "pytorch"', [], ("pytorch_libtorch", "pytorch", "model.pt")),
        ('backend: "pytorch"', ["model.pt2"], ("torch_aoti", "pytorch", "model.pt2")),
        ('backend: "pytorch" default_model_filename: "model.pt2"', [], ("torch_aoti", "pytorch", "model.pt2")),
        ('backend: "python"', ["model.onnx"], ("", "python", "model.py")),
        ('backend: "identity"', [], ("", "identity", "")),
        ('default_model_filename: "model.onnx"', [], ("onnxruntime_onnx", "onnxruntime", "model.onnx")),
        ('backend: "onnxruntime" default_model_filename: "x.onnx"', [], ("onnxruntime_onnx", "onnxruntime", "x.onnx")),
        ('platform: "ensemble"', ["model.py"], ("ensemble", "", "")),
    ],
)
def test_what_is_left_out_is_deduced(text: str, contents: list[str], expected: tuple[str, str, str]) -> None:
    assert deduced(text, *contents) == expected


def test_the_name_of_a_folder_may_end_in_its_backend() -> None:
    assert deduced("", name="m.identity") == ("", "identity", "")
    with pytest.raises(ConfigError, match="m names neither backend nor platform, and its first version holds none of"):
        deduced("", "weights.bin")


def test_an_unknown_platform_is_refused() -> None:
    with pytest.raises(ConfigError, match=r"unexpected platform type 'caffe2' for m; known are: .*onnxruntime_onnx"):
        deduced('platform: "caffe2"')


def groups(text: str, gpus: int, backend: str = "python") -> list[tuple[str, str, int, list[int]]]:
    message: Any = pbtxt.parse(f'backend: "{backend}" {text}', "config")
    message.name = "m"
    resolve_instances(message, range(gpus))
    kinds = {0: "AUTO", 1: "GPU", 2: "CPU", 3: "MODEL"}
    return [(group.name, kinds[group.kind], group.count, list(group.gpus)) for group in message.instance_group]


@pytest.mark.parametrize(
    ("text", "gpus", "backend", "expected"),
    [
        ("", 0, "python", [("m", "CPU", 1, [])]),
        ("", 2, "python", [("m", "GPU", 1, [0, 1])]),
        ("", 0, "onnxruntime", [("m", "CPU", 2, [])]),
        ("", 1, "onnxruntime", [("m", "GPU", 1, [0])]),
        ("instance_group { kind: KIND_CPU }", 1, "onnxruntime", [("m_0", "CPU", 2, [])]),
        ("instance_group { kind: KIND_CPU count: 1 }", 1, "onnxruntime", [("m_0", "CPU", 1, [])]),
        ("instance_group { count: 3 }", 2, "python", [("m_0", "GPU", 3, [0, 1])]),
        ("instance_group { gpus: [ 1 ] }", 2, "python", [("m_0", "GPU", 1, [1])]),
        ("instance_group { gpus: [ 5 ] }", 2, "python", [("m_0", "CPU", 1, [5])]),
        ("instance_group { kind: KIND_GPU gpus: [ 0 ] }", 2, "python", [("m_0", "GPU", 1, [0])]),
        ("instance_group { kind: KIND_MODEL }", 2, "pytorch", [("m_0", "MODEL", 1, [])]),
        (
            'instance_group [ { name: "x" kind: KIND_CPU }, { kind: KIND_GPU } ]',
            1,
            "python",
            [("x", "CPU", 1, []), ("m_1", "GPU", 1, [0])],
        ),
    ],
)
def test_instance_groups_are_resolved(text: str, gpus: int, backend: str, expected: list[object]) -> None:
    assert groups(text, gpus, backend) == expected


def test_filling_in_twice_changes_nothing_more() -> None:
    message = pbtxt.parse("max_batch_size: 4 sequence_batching { oldest { } }", "config")
    fill_in(message)
    once = str(message)
    fill_in(message)

    assert str(message) == once
    assert list(message.sequence_batching.oldest.preferred_batch_size) == [4]
