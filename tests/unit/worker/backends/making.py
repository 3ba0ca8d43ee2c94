"""Programs of models that take tensors, run on the spot, and the small ONNX models they are made of."""

from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec
from onnx import TensorProto, helper

from shoal.config.model import ModelConfig
from shoal.wire.messages import Failure, Run
from shoal.worker.backends import triton
from shoal.worker.batch import Batch
from shoal.worker.pipeline import run_stages
from shoal.worker.program import Program
from tests.process.tensor_front import Told, Values, items, values
from tests.unit.worker.making import Listener

ONNX_TYPES = {
    "BOOL": TensorProto.BOOL,
    "UINT8": TensorProto.UINT8,
    "UINT16": TensorProto.UINT16,
    "UINT32": TensorProto.UINT32,
    "UINT64": TensorProto.UINT64,
    "INT8": TensorProto.INT8,
    "INT16": TensorProto.INT16,
    "INT32": TensorProto.INT32,
    "INT64": TensorProto.INT64,
    "FP16": TensorProto.FLOAT16,
    "BF16": TensorProto.BFLOAT16,
    "FP32": TensorProto.FLOAT,
    "FP64": TensorProto.DOUBLE,
    "BYTES": TensorProto.STRING,
}


def config(path: Path, backend: str, io: dict[str, Any], **more: Any) -> ModelConfig:
    fields = {"name": "m", "path": str(path), "flavour": "triton", "backend": backend, "interface": io, "version": "1"}
    return msgspec.convert({**fields, **more}, ModelConfig)


def program(path: Path, backend: str, io: dict[str, Any], **more: Any) -> Program:
    return triton.load(config(path, backend, io, **more), "m-1-0")


def ask(made: Program, *requests: Values, **asked: Any) -> list[Told]:
    """What each request of one batch is told."""
    heads, bodies = items(requests, **asked)
    listener = Listener()
    batch = Batch(Run(1, 0, heads), memoryview(b"".join(bodies)), listener)
    (cut,) = batch.slices(0)
    run_stages(cut, made.stages, made, None)
    batch.close(cut)
    batch.finish()
    return [told if isinstance(told, Failure) else values(told) for told in listener.results(1, len(requests))]


def one(made: Program, request: Values, **asked: Any) -> Any:
    return ask(made, request, **asked)[0]


def onnx_file(folder: Path, nodes: Sequence[Any], inputs: Sequence[Any], outputs: Sequence[Any]) -> Path:
    """A version folder with a model of these nodes; its tensors are (name, datatype, dims)."""
    graph = helper.make_graph(
        list(nodes),
        "g",
        [helper.make_tensor_value_info(name, ONNX_TYPES[datatype], dims) for name, datatype, dims in inputs],
        [helper.make_tensor_value_info(name, ONNX_TYPES[datatype], dims) for name, datatype, dims in outputs],
    )
    made = helper.make_model(graph, opset_imports=[helper.make_opsetid("", 18)], ir_version=9)
    version = folder / "1"
    version.mkdir(parents=True, exist_ok=True)
    (version / "model.onnx").write_bytes(made.SerializeToString())
    return version


def node(kind: str, inputs: Sequence[str], outputs: Sequence[str], **attributes: Any) -> Any:
    return helper.make_node(kind, inputs, outputs, **attributes)
