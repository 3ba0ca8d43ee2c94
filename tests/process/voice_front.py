"""A real model with a state: silero-vad, which says whether somebody speaks, 512 samples of sound at a time."""

import importlib.util
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np
import onnx
import onnxruntime as ort
from onnx import TensorProto, helper

FRAME, BEFORE, RATE = 512, 64, 16_000  # samples of a frame, of the one before that come first, and in a second
CONFIGURATION = """
backend: "onnxruntime"
max_batch_size: 16
input [ { name: "input" data_type: TYPE_FP32 dims: [ 576 ] } ]
output [
  { name: "output" data_type: TYPE_FP32 dims: [ 1 ] },
  { name: "state_next" data_type: TYPE_FP32 dims: [ 2, 128 ] }
]
sequence_batching {
  max_sequence_idle_microseconds: 60000000
  %s
  state [ { input_name: "state_rows" output_name: "state_next" data_type: TYPE_FP32 dims: [ 2, 128 ] } ]
}
instance_group [ { count: 1 kind: KIND_CPU } ]
"""


def find_voice() -> Path | None:
    """The model's file, where its package is installed."""
    found = importlib.util.find_spec("silero_vad")
    if found is None or found.origin is None:
        return None
    return Path(found.origin).parent / "data" / "silero_vad_half.onnx"


def put_voice(root: Path, name: str, strategy: str) -> None:
    """The model with the sequences first among the dimensions of its state, as a batch needs it."""
    file = find_voice()
    assert file is not None
    found = onnx.load(str(file))
    graph = found.graph
    turned = [
        helper.make_node("Transpose", ["state_rows"], ["state"], perm=[1, 0, 2]),
        *graph.node,
        helper.make_node("Transpose", ["stateN"], ["state_next"], perm=[1, 0, 2]),
    ]
    state: list[str | int | None] = ["batch", 2, 128]
    made = helper.make_graph(
        turned,
        "voice",
        [graph.input[0], helper.make_tensor_value_info("state_rows", TensorProto.FLOAT, state)],
        [graph.output[0], helper.make_tensor_value_info("state_next", TensorProto.FLOAT, state)],
        list(graph.initializer),
    )
    (root / name / "1").mkdir(parents=True)
    model = helper.make_model(made, opset_imports=found.opset_import, ir_version=found.ir_version)
    (root / name / "1" / "model.onnx").write_bytes(model.SerializeToString())
    (root / name / "config.pbtxt").write_text(CONFIGURATION % strategy)


class Voice:
    """A sequence of sound that is like nobody else's, and what the model itself makes of it."""

    def __init__(self, number: int, length: int) -> None:
        self.id = number + 1
        draw = np.random.default_rng(number)
        time = np.arange(BEFORE + FRAME * length) / RATE
        pitch, loud = draw.uniform(90, 260), draw.uniform(0.05, 0.4)
        hum = sum(np.sin(2 * np.pi * pitch * tone * time + draw.uniform(0, 6)) / tone for tone in range(1, 12))
        sound = loud * hum * (1 + np.sin(2 * np.pi * draw.uniform(2, 6) * time)) + draw.normal(0, 0.01, time.size)
        self._sound = sound.astype(np.float32)
        self._sound[:BEFORE] = 0
        state = np.zeros((2, 1, 128), np.float32)
        self._expected = []
        for step in range(length):
            probability, state = _session().run(["output", "stateN"], {"input": self._frame(step), "state": state})
            self._expected.append((probability, state))

    def _frame(self, step: int) -> Any:
        return self._sound[FRAME * step : FRAME * (step + 1) + BEFORE].reshape(1, -1)

    def inputs(self, step: int) -> dict[str, Any]:
        """One frame."""
        return {"input": self._frame(step)}

    def check(self, step: int, answer: dict[str, Any]) -> None:
        """What the model alone said, and the whole of its state."""
        probability, state = self._expected[step]
        assert np.allclose(answer["output"], probability, atol=1e-4), (self.id, step)
        assert np.allclose(answer["state_next"][0], state[:, 0], atol=1e-3), (self.id, step)


@cache
def _session() -> Any:
    options = ort.SessionOptions()
    options.intra_op_num_threads = 1
    options.log_severity_level = 3
    return ort.InferenceSession(str(find_voice()), options)
