"""Builds EfficientNet-Lite0 as an ONNX file from its torch weights: `python -m shoal.demo.efficientnet SRC DST`.

Owns the shape of the network (Tan and Le, 2019; the "lite" edition has neither squeeze-and-excite nor swish). Batch
norms are folded into the convolutions before them, so the file is convolutions, clips and additions and nothing else.
It runs as its own process: `onnx` and some 100 MB of arrays stay out of the one that serves.
"""

import sys
from collections.abc import Mapping
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import onnx
from onnx import TensorProto, helper, numpy_helper

from shoal.demo.checkpoint import Array, read_checkpoint

IMAGE_SIZE = 224
CLASSES = 1000
BATCH_NORM_EPSILON = 1e-3
OPSET = 17


@dataclass(frozen=True)
class Stage:
    """A row of inverted-residual blocks; only the first of them strides and changes the channels."""

    blocks: int
    kernel: int
    stride: int
    channels: int


STAGES = (
    Stage(blocks=1, kernel=3, stride=1, channels=16),
    Stage(blocks=2, kernel=3, stride=2, channels=24),
    Stage(blocks=2, kernel=5, stride=2, channels=40),
    Stage(blocks=3, kernel=3, stride=2, channels=80),
    Stage(blocks=3, kernel=5, stride=1, channels=112),
    Stage(blocks=4, kernel=5, stride=2, channels=192),
    Stage(blocks=1, kernel=3, stride=1, channels=320),
)


def build(weights: Mapping[str, Array]) -> Any:
    """The network as an ONNX model: `image` float32 [N,3,224,224], scaled (x - 127) / 128, to `logits` [N,1000]."""
    graph = _Graph(weights)
    value = graph.convolve("image", "_conv_stem", "_bn0", stride=2)
    index = 0
    for stage in STAGES:
        for position in range(stage.blocks):
            value = graph.block(value, f"_blocks.{index}", stage, is_first=position == 0)
            index += 1
    value = graph.convolve(value, "_conv_head", "_bn1")
    value = graph.add("GlobalAveragePool", [value], "pooled")
    value = graph.add("Flatten", [value], "features")
    fc = [graph.constant("fc.weight", weights["_fc.weight"]), graph.constant("fc.bias", weights["_fc.bias"])]
    graph.add("Gemm", [value, *fc], "logits", transB=1)
    return graph.model()


@dataclass
class _Graph:
    """The graph as it grows; `size` is the side of the current feature map."""

    weights: Mapping[str, Array]
    size: int = IMAGE_SIZE
    nodes: list[Any] = field(default_factory=list)
    constants: dict[str, Any] = field(default_factory=dict)

    def block(self, value: str, name: str, stage: Stage, *, is_first: bool) -> str:
        """Widen, filter each channel on its own, narrow; add the input back where the shape allows it."""
        entry = value
        stride = stage.stride if is_first else 1
        if f"{name}._expand_conv.weight" in self.weights:
            value = self.convolve(value, f"{name}._expand_conv", f"{name}._bn0")
        value = self.convolve(value, f"{name}._depthwise_conv", f"{name}._bn1", stride=stride)
        value = self.convolve(value, f"{name}._project_conv", f"{name}._bn2", is_clipped=False)
        return value if is_first else self.add("Add", [value, entry], f"{name}.sum")

    def convolve(self, value: str, name: str, norm: str, *, stride: int = 1, is_clipped: bool = True) -> str:
        """A convolution with its batch norm folded in, padded as TensorFlow's SAME does, then clipped to 0..6."""
        kernel, bias = fold(self.weights, name, norm)
        side = kernel.shape[-1]
        output = -(-self.size // stride)
        padding = max((output - 1) * stride + side - self.size, 0)
        before, after = padding // 2, padding - padding // 2
        value = self.add(
            "Conv",
            [value, self.constant(f"{name}.weight", kernel), self.constant(f"{name}.bias", bias)],
            f"{name}.out",
            kernel_shape=[side, side],
            strides=[stride, stride],
            pads=[before, before, after, after],
            group=kernel.shape[0] if "_depthwise_" in name else 1,
        )
        self.size = output
        if not is_clipped:
            return value
        bounds = [self.constant("zero", np.float32(0)), self.constant("six", np.float32(6))]
        return self.add("Clip", [value, *bounds], f"{name}.clipped")

    def constant(self, name: str, value: Any) -> str:
        self.constants.setdefault(name, numpy_helper.from_array(np.asarray(value, np.float32), name))
        return name

    def add(self, operator: str, inputs: list[str], output: str, **attributes: Any) -> str:
        self.nodes.append(helper.make_node(operator, inputs, [output], output, **attributes))
        return output

    def model(self) -> Any:
        image = helper.make_tensor_value_info("image", TensorProto.FLOAT, ["batch", 3, IMAGE_SIZE, IMAGE_SIZE])
        logits = helper.make_tensor_value_info("logits", TensorProto.FLOAT, ["batch", CLASSES])
        graph = helper.make_graph(self.nodes, "efficientnet-lite0", [image], [logits], list(self.constants.values()))
        opsets = [helper.make_opsetid("", OPSET)]
        return helper.make_model(graph, opset_imports=opsets, ir_version=8, producer_name="shoal")


def fold(weights: Mapping[str, Array], name: str, norm: str) -> tuple[Array, Array]:
    """The kernel and bias of the one convolution that does what `name` followed by batch norm `norm` does."""
    deviation = np.sqrt(weights[f"{norm}.running_var"].astype(np.float64) + BATCH_NORM_EPSILON)
    scale = weights[f"{norm}.weight"] / deviation
    kernel = weights[f"{name}.weight"] * scale[:, None, None, None]
    bias = weights[f"{norm}.bias"] - weights[f"{norm}.running_mean"] * scale
    return kernel.astype(np.float32), bias.astype(np.float32)


def main(source: str, target: str) -> None:
    """Read the checkpoint, write the checked model."""
    model = build(read_checkpoint(Path(source)))
    onnx.checker.check_model(model)
    onnx.save(model, target)


if __name__ == "__main__":
    main(*sys.argv[1:])
