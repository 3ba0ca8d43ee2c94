"""A repository of models that are parts of ensembles, and a `shoal tritonserver` in front of it."""

import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any, NamedTuple

from tests.serving import SHOAL
from tests.unit.worker.backends.making import node, onnx_file

PATIENCE = 120.0  # s for one answer, however busy the machine is
FOUR = "dims: [ 4 ]"
HEAD = "import os, time\nimport numpy as np\nimport triton_python_backend_utils as pb_utils\n"
POST = """

class TritonPythonModel:
    def initialize(self, args):
        self.folder = os.path.dirname(args["model_repository"])

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        values = pb_utils.get_input_tensor_by_name(request, "SCORES").as_numpy()
        if values[0, 0] < 0:
            error = pb_utils.TritonError("below zero", pb_utils.TritonError.INVALID_ARG)
            return pb_utils.InferenceResponse(error=error)
        mark = os.path.join(self.folder, "died")
        if values[0, 0] == 2001 and not os.path.exists(mark):  # once
            open(mark, "w").close()
            os._exit(1)
        text = [[f"{row.argmax()}:{row.max():g}"] for row in values]
        return pb_utils.InferenceResponse([pb_utils.Tensor("TEXT", np.array(text, dtype=object))])
"""
MEETS = """

class TritonPythonModel:
    def initialize(self, args):
        self.folder, self.name = os.path.dirname(args["model_repository"]), args["model_name"]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        id = request.request_id()
        open(os.path.join(self.folder, f"{id}.{self.name}"), "w").close()
        other = os.path.join(self.folder, f"{id}.{'right' if self.name == 'left' else 'left'}")
        while not os.path.exists(other):  # it answers only while the other one runs as well
            time.sleep(0.005)
        values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)])
"""
COUNTS = """

class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
            sender = request.get_response_sender()
            for number in range(int(values[0, 0])):
                sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.full((1, 4), number, "float32"))]))
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
"""
ALONE = """

class TritonPythonModel:
    def initialize(self, args):
        self.path = os.path.join(os.path.dirname(args["model_repository"]), "running")

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def answer(self, request):
        file = os.open(self.path, os.O_CREAT | os.O_EXCL)  # fails while another one is at it
        time.sleep(0.01)
        os.close(file)
        os.unlink(self.path)
        values = pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", values)])
"""


def tensor(name: str, kind: str = "TYPE_FP32", dims: str = FOUR) -> str:
    """A tensor in a configuration."""
    return f'{{ name: "{name}" data_type: {kind} {dims} }}'


def put_onnx(root: Path, name: str, operator: str, by: float, more: str = "") -> None:
    """A model of one operator with a constant."""
    nodes = [node("Constant", [], ["by"], value_float=by), node(operator, ["IN", "by"], ["OUT"])]
    onnx_file(root / name, nodes, [("IN", "FP32", ["N", 4])], [("OUT", "FP32", ["N", 4])])
    (root / name / "config.pbtxt").write_text(f"max_batch_size: 8\ndynamic_batching {{ }}\n{more}")


def put_python(root: Path, name: str, code: str, more: str = "", *, reads: str = "IN", writes: str = "") -> None:
    """A Python model."""
    (root / name / "1").mkdir(parents=True)
    (root / name / "1" / "model.py").write_text(HEAD + code)
    tensors = f"input [ {tensor(reads)} ]\noutput [ {writes or tensor('OUT')} ]\n"
    (root / name / "config.pbtxt").write_text(f'backend: "python"\nmax_batch_size: 8\n{tensors}{more}')


def step(model: str, reads: Mapping[str, str], writes: Mapping[str, str]) -> str:
    """A step of an ensemble."""
    maps = [f'input_map {{ key: "{own}" value: "{name}" }}' for own, name in reads.items()]
    maps += [f'output_map {{ key: "{own}" value: "{name}" }}' for own, name in writes.items()]
    return f'{{ model_name: "{model}" model_version: -1 {" ".join(maps)} }}'


def put_ensemble(root: Path, name: str, outputs: list[str], *steps: str, more: str = "") -> None:
    """An ensemble that reads X."""
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(
        f'platform: "ensemble"\nmax_batch_size: 8\ninput [ {tensor("X")} ]\noutput [ {", ".join(outputs)} ]\n'
        f"ensemble_scheduling {{ step [ {', '.join(steps)} ] }}\n{more}"
    )


def put_all(root: Path) -> None:
    """Everything that the tests ask."""
    text = tensor("TEXT", "TYPE_STRING", "dims: [ 1 ]")
    put_onnx(root, "scale", "Mul", 2.0)
    put_onnx(root, "net", "Add", 1.0)
    for name in ("kept", "renewed"):
        put_onnx(root, name, "Add", 5.0, "response_cache { enable: true }")
    put_python(root, "post", POST, reads="SCORES", writes=text)
    put_python(root, "left", MEETS)
    put_python(root, "right", MEETS)
    put_python(root, "counts", COUNTS, "model_transaction_policy { decoupled: true }")
    for name, priority in (("first", 1), ("second", 2)):
        limiter = f'rate_limiter {{ resources [ {{ name: "desk" count: 1 }} ] priority: {priority} }}'
        put_python(root, name, ALONE, f"instance_group [ {{ count: 2 kind: KIND_CPU {limiter} }} ]")
    chain = [
        step("post", {"SCORES": "scores"}, {"TEXT": "TEXT"}),
        step("net", {"IN": "scaled"}, {"OUT": "scores"}),
        step("scale", {"IN": "X"}, {"OUT": "scaled"}),
    ]
    put_ensemble(root, "whole", [text, tensor("scores")], *chain)
    both = [step("left", {"IN": "X"}, {"OUT": "L"}), step("right", {"IN": "X"}, {"OUT": "R"})]
    put_ensemble(root, "pair", [tensor("L"), tensor("R")], *both)
    held = [step("left", {"IN": "X"}, {"OUT": "L"}), step("post", {"SCORES": "L"}, {"TEXT": "TEXT"})]
    put_ensemble(root, "held", [text], *held)
    counted = [step("counts", {"IN": "X"}, {"OUT": "number"}), step("net", {"IN": "number"}, {"OUT": "Y"})]
    put_ensemble(root, "counted", [tensor("Y")], *counted)


class Front(NamedTuple):
    """A server that runs."""

    process: "subprocess.Popen[str]"
    root: Path
    http: int
    grpc: int
    metrics: int

    def ask(self, path: str, body: Any = None, port: int = 0) -> tuple[int, Any]:
        """Ask over HTTP; the status, and what was answered."""
        link = http.client.HTTPConnection("127.0.0.1", port or self.http, timeout=PATIENCE)
        try:
            link.request("GET" if body is None else "POST", path, None if body is None else json.dumps(body))
            answer = link.getresponse()
            data = answer.read()
            is_json = (answer.getheader("Content-Type") or "").startswith("application/json")
            return answer.status, json.loads(data) if is_json and data else data.decode()
        finally:
            link.close()

    def infer(self, model: str, *rows: list[float], name: str = "X", **more: Any) -> tuple[int, Any]:
        """Ask a model of one input."""
        values = [value for row in rows for value in row]
        given = {"name": name, "datatype": "FP32", "shape": [len(rows), 4], "data": values}
        return self.ask(f"/v2/models/{model}/infer", {"inputs": [given], **more})

    def statistics(self, model: str) -> dict[str, Any]:
        """What a model has counted."""
        found: dict[str, Any] = self.ask(f"/v2/models/{model}/stats")[1]["model_stats"][0]
        return found

    def metric(self, name: str) -> float:
        """One line of the metrics."""
        text = self.ask("/metrics", port=self.metrics)[1]
        line = next(line for line in text.splitlines() if line.startswith(name))
        return float(line.rpartition(" ")[2])


@contextlib.contextmanager
def fronting(root: Path, log: Path, *flags: str) -> Iterator[Front]:
    """Start the command over a folder, wait until it listens, and see to it that nothing of it is left."""
    ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
    with log.open("w") as file:
        process = subprocess.Popen(
            [*SHOAL, "tritonserver", f"--model-repository={root}", *ports, *flags],
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
        names = ("HTTPService", "GRPCInferenceService", "Metrics Service")
        found = [re.search(rf"Started {name} at 127\.0\.0\.1:(\d+)", text) for name in names]
        yield Front(process, root, *(int(port[1]) for port in found if port))
    finally:
        process.send_signal(signal.SIGTERM)
        try:
            process.wait(30)
        finally:
            process.kill()
