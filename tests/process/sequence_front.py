"""Repositories of stateful models, a `shoal tritonserver` in front of them, and clients that check every answer."""

import contextlib
import http.client
import json
import os
import random
import re
import signal
import subprocess
import threading
import warnings
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple, Protocol

import grpc
import numpy as np
import torch

from shoal.frontend.grpc.proto.grpc_service_pb2 import ModelInferRequest, ModelInferResponse
from tests.serving import SHOAL
from tests.unit.worker.backends.making import node, onnx_file

Tensors = dict[str, Any]  # arrays by name
PATIENCE = 120.0  # s for one answer, however busy the machine is
CONTROLS = """
  control_input [
    { name: "START" control [ { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } ] },
    { name: "END" control [ { kind: CONTROL_SEQUENCE_END bool_false_true: [ false, true ] } ] },
    { name: "READY" control [ { kind: CONTROL_SEQUENCE_READY fp32_false_true: [ 0, 1 ] } ] },
    { name: "CORRID" control [ { kind: CONTROL_SEQUENCE_CORRID data_type: TYPE_INT64 } ] }
  ]"""
STATE = """
  state [ {
    input_name: "kept" output_name: "kept_next" data_type: TYPE_INT64 dims: [ 1 ]
    initial_state { name: "seven" data_type: TYPE_INT64 dims: [ 1 ] data_file: "seven" }
  } ]"""
TENSORS = """
input [ { name: "x" data_type: TYPE_INT64 dims: [ 1 ] } ]
output [ { name: "y" data_type: TYPE_INT64 dims: [ 1 ] }, { name: "told" data_type: TYPE_INT64 dims: [ 4 ] } ]
"""
BEGINNING = 7
PYTHON_MODEL = """
import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.kept = {}

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        value = {tensor.name(): tensor.as_numpy() for tensor in request.inputs()}
        told = np.array([[value[name][0, 0] for name in ("START", "END", "READY", "CORRID")]], "int64")
        y = np.zeros((1, 1), "int64")
        if value["READY"][0, 0]:
            id = request.correlation_id()
            assert told[0].tolist() == [request.flags() & 1, request.flags() >> 1, 1, id]
            before = 7 if request.flags() & 1 else self.kept[id]
            y = self.kept[id] = before * 31 + value["x"] + id
        return pb_utils.InferenceResponse([pb_utils.Tensor("y", y), pb_utils.Tensor("told", told)])
"""


class Adding(torch.nn.Module):
    """The same in torch."""

    def forward(self, x, START, END, READY, CORRID, kept):  # type: ignore[no-untyped-def]
        """Add up."""
        y = kept * 31 + x + CORRID
        told = torch.cat([START.to(torch.int64), END.to(torch.int64), READY.to(torch.int64), CORRID], 1)
        return y, told, y


def following(state: int, x: int, id: int) -> int:
    """What every one of these models answers, and keeps: it depends on all that came before, and on whose it was."""
    return (state * 31 + x + id + 2**63) % 2**64 - 2**63


class Script(Protocol):
    """What one sequence sends, and what it must be answered."""

    id: int

    def inputs(self, step: int) -> Tensors:
        """What its request number `step` brings."""
        ...

    def check(self, step: int, answer: Tensors) -> None:
        """Fail unless this is the answer to that request, after those before it."""
        ...


class Sums:
    """A sequence for the models below."""

    def __init__(self, number: int, length: int, shape: tuple[int, ...] = (1, 1)) -> None:
        self.id = 2**40 + number
        self._shape = shape
        self._length = length
        draw = random.Random(number)
        self._values = [draw.randrange(-(2**31), 2**31) for _ in range(length)]
        self._states = [BEGINNING]
        for value in self._values:
            self._states.append(following(self._states[-1], value, self.id))

    def inputs(self, step: int) -> Tensors:
        """One number."""
        return {"x": np.full(self._shape, self._values[step], np.int64)}

    def check(self, step: int, answer: Tensors) -> None:
        """The number that all of them make, and what the controls were."""
        assert answer["y"].ravel().tolist() == [self._states[step + 1]], (self.id, step)
        assert answer["told"].ravel().tolist() == [step == 0, step == self._length - 1, 1, self.id]


def put_onnx(root: Path, name: str, strategy: str, count: int = 1, size: int = 8, idle: float = 60) -> None:
    """A model of ONNX nodes that keeps its state with the server; a size of 0: without a batch dimension."""
    rows = ["N"] if size else []
    nodes = [
        node("Constant", [], ["by"], value_int=31),
        node("Mul", ["kept", "by"], ["more"]),
        node("Add", ["more", "x"], ["with_x"]),
        node("Add", ["with_x", "CORRID"], ["y"]),
        node("Identity", ["y"], ["kept_next"]),
        *(node("Cast", [name], [f"as_{name}"], to=7) for name in ("START", "END", "READY")),
        node("Concat", ["as_START", "as_END", "as_READY", "CORRID"], ["told"], axis=len(rows)),
    ]
    types = {"x": "INT64", "kept": "INT64", "START": "INT32", "END": "BOOL", "READY": "FP32", "CORRID": "INT64"}
    onnx_file(
        root / name,
        nodes,
        [(tensor, datatype, [*rows, 1]) for tensor, datatype in types.items()],
        [("y", "INT64", [*rows, 1]), ("kept_next", "INT64", [*rows, 1]), ("told", "INT64", [*rows, 4])],
    )
    _configure(root / name, "onnxruntime", strategy + CONTROLS + STATE, count, size, idle)


def put_torch(root: Path, name: str, strategy: str, count: int = 1) -> None:
    """The same in TorchScript."""
    (root / name / "1").mkdir(parents=True)
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", DeprecationWarning)
        torch.jit.save(torch.jit.script(Adding()), str(root / name / "1" / "model.pt"))
    _configure(root / name, "pytorch", strategy + CONTROLS + STATE, count)


def put_python(root: Path, name: str, strategy: str, count: int = 1) -> None:
    """A Python model that keeps the state of its sequences by itself."""
    (root / name / "1").mkdir(parents=True)
    (root / name / "1" / "model.py").write_text(PYTHON_MODEL)
    _configure(root / name, "python", strategy + CONTROLS, count)


def _configure(folder: Path, backend: str, sequences: str, count: int, size: int = 8, idle: float = 60) -> None:
    (folder / "initial_state").mkdir()
    (folder / "initial_state" / "seven").write_bytes(np.array([BEGINNING], np.int64).tobytes())
    batching = f"sequence_batching {{ max_sequence_idle_microseconds: {round(1e6 * idle)} {sequences} }}"
    instances = f"instance_group [ {{ count: {count} kind: KIND_CPU }} ]"
    (folder / "config.pbtxt").write_text(
        f'backend: "{backend}" max_batch_size: {size} {TENSORS} {batching} {instances}'
    )


def children(pid: int) -> list[int]:
    """The processes that one has started."""
    return [
        int(found) for task in Path(f"/proc/{pid}/task").iterdir() for found in (task / "children").read_text().split()
    ]


class Ports(NamedTuple):
    """Where a server listens."""

    process: "subprocess.Popen[str]"
    http: int
    grpc: int

    def workers(self) -> list[int]:
        """The processes that run models: the children of the one that they are forked from."""
        return [pid for child in children(self.process.pid) for pid in children(child)]

    def get(self, path: str) -> Any:
        """Ask for something that is JSON."""
        link = http.client.HTTPConnection("127.0.0.1", self.http, timeout=PATIENCE)
        try:
            link.request("GET", path)
            return json.loads(link.getresponse().read())
        finally:
            link.close()


@contextlib.contextmanager
def tritonserver(repository: Path, log: Path) -> Iterator[Ports]:
    """Start the command, wait until it listens, and see to it that nothing of it is left."""
    flags = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
    with log.open("w") as file:
        process = subprocess.Popen(
            [*SHOAL, "tritonserver", f"--model-repository={repository}", *flags],
            stderr=file,
            text=True,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )
    try:
        text = ""
        while "Started Metrics Service at" not in (text := log.read_text()):
            assert process.poll() is None, f"it ended with {process.returncode}\n{text}"
            with contextlib.suppress(subprocess.TimeoutExpired):
                process.wait(0.05)
        found = {
            name: int(re.search(rf"Started {name} at 127\.0\.0\.1:(\d+)", text)[1])  # type: ignore[index]
            for name in ("HTTPService", "GRPCInferenceService")
        }
        yield Ports(process, found["HTTPService"], found["GRPCInferenceService"])
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()


class Refused(Exception):
    """An answer that is an error: its status, in HTTP's numbers, and its words."""

    def __init__(self, status: int, words: str) -> None:
        super().__init__(f"{status}: {words}")
        self.status = status
        self.words = words


Ask = Callable[[Tensors, dict[str, Any]], Tensors]  # inputs and parameters to outputs
STATUSES = {grpc.StatusCode.INVALID_ARGUMENT: 400, grpc.StatusCode.UNAVAILABLE: 503, grpc.StatusCode.INTERNAL: 500}
KINDS: dict[type, str] = {bool: "bool_param", int: "int64_param", str: "string_param"}
DATATYPES = {"int64": "INT64", "float32": "FP32"}


@contextlib.contextmanager
def asking(server: Ports, model: str, over: str) -> Iterator[Ask]:
    """A client of a model, over http or grpc."""
    with over_http(server.http, model) if over == "http" else over_grpc(server.grpc, model) as ask:
        yield ask


@contextlib.contextmanager
def over_http(port: int, model: str) -> Iterator[Ask]:
    """A client with one connection, speaking JSON."""
    link = http.client.HTTPConnection("127.0.0.1", port, timeout=PATIENCE)

    def ask(inputs: Tensors, parameters: dict[str, Any]) -> Tensors:
        tensors = [
            {
                "name": name,
                "datatype": DATATYPES[str(array.dtype)],
                "shape": array.shape,
                "data": array.ravel().tolist(),
            }
            for name, array in inputs.items()
        ]
        link.request("POST", f"/v2/models/{model}/infer", json.dumps({"inputs": tensors, "parameters": parameters}))
        answer = link.getresponse()
        body = json.loads(answer.read())
        if answer.status != 200:
            raise Refused(answer.status, body["error"])
        return {
            tensor["name"]: np.array(tensor["data"], np.int64 if tensor["datatype"] == "INT64" else np.float32).reshape(
                tensor["shape"]
            )
            for tensor in body["outputs"]
        }

    try:
        yield ask
    finally:
        link.close()


@contextlib.contextmanager
def over_grpc(port: int, model: str) -> Iterator[Ask]:
    """A client with one channel, sending bytes."""
    with grpc.insecure_channel(f"127.0.0.1:{port}", options=[("grpc.use_local_subchannel_pool", 1)]) as channel:
        call = channel.unary_unary(
            "/inference.GRPCInferenceService/ModelInfer",
            request_serializer=ModelInferRequest.SerializeToString,
            response_deserializer=ModelInferResponse.FromString,
        )

        def ask(inputs: Tensors, parameters: dict[str, Any]) -> Tensors:
            request = ModelInferRequest(model_name=model)
            for name, array in inputs.items():
                request.inputs.add(name=name, datatype=DATATYPES[str(array.dtype)], shape=array.shape)
                request.raw_input_contents.append(array.tobytes())
            for name, value in parameters.items():
                setattr(request.parameters[name], KINDS[type(value)], value)
            try:
                answer = call(request, timeout=PATIENCE)
            except grpc.RpcError as error:
                raise Refused(STATUSES.get(error.code(), 599), error.details()) from None
            return {
                tensor.name: np.frombuffer(data, np.int64 if tensor.datatype == "INT64" else np.float32).reshape(
                    tensor.shape
                )
                for tensor, data in zip(answer.outputs, answer.raw_output_contents, strict=True)
            }

        yield ask


def in_sequence(id: int, step: int, length: int) -> dict[str, Any]:
    """What a request says of its sequence."""
    return {"sequence_id": id, "sequence_start": step == 0, "sequence_end": step == length - 1}


class Progress:
    """Counts answers; whoever brings it to one of the marks does what is to be done there."""

    def __init__(self, marks: list[int], act: Callable[[], None]) -> None:
        self.answers = 0
        self.refusals: list[str] = []
        self._marks = marks
        self._act = act
        self._lock = threading.Lock()

    def answered(self) -> None:
        """Count one."""
        with self._lock:
            self.answers += 1
            if self._marks and self.answers >= self._marks[0]:
                self._marks.pop(0)
                self._act()

    def refused(self, error: Refused) -> None:
        """Remember what was said."""
        with self._lock:
            self.refusals.append(str(error))
