"""`shoal bench grpc://...`: calls of TorchServe's and KServe's services, against our servers and against grpcio's."""

import json
import re
import subprocess
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest

from tests.process.sequence_front import tritonserver
from tests.serving import MODELS, SHOAL, Served, serving

QUICK = ("-c", "1,4", "--window", "300ms", "--warmup", "100ms", "--max-windows", "3", "--processes", "1")
CONFIG = (
    'backend: "identity"\ninput [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
    'output [ { name: "x" data_type: TYPE_FP32 dims: [ 4 ] } ]\n'
)


def run(folder: Path, *arguments: str) -> "subprocess.CompletedProcess[str]":
    words = [*SHOAL, "bench", *arguments]
    return subprocess.run(words, capture_output=True, text=True, timeout=60, cwd=folder, check=False)


def levels(folder: Path) -> Any:
    return json.loads((folder / "r.json").read_bytes())["levels"]


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    with serving(tmp_path_factory.mktemp("server"), str(MODELS / "echo.py"), config="grpc_port = 0\n") as served:
        yield served


def address(server: Served) -> str:
    found = re.search(r"(grpc://127\.0\.0\.1:\d+)", server.log.read_text())
    assert found is not None
    return found[1]


def test_predictions_are_called_in_a_closed_loop(server: Served, tmp_path: Path) -> None:
    done = run(tmp_path, address(server), "-m", "echo", "-i", '{"a": 1}', *QUICK, "-o", "r")

    assert done.returncode == 0, done.stderr
    assert [(level["answered"] > 0, level["errors"]) for level in levels(tmp_path)] == [(True, {}), (True, {})]
    assert "InferenceAPIsService/Predictions" in (tmp_path / "r.md").read_text()


def test_bodies_larger_than_any_window_are_sent_whole(server: Served, tmp_path: Path) -> None:
    (tmp_path / "big.bin").write_bytes(bytes(1_000_000))

    done = run(tmp_path, address(server), "-m", "echo", "-i", "big.bin", *QUICK, "-o", "r")

    assert done.returncode == 0, done.stderr
    assert all(level["answered"] and not level["errors"] for level in levels(tmp_path))


def test_a_rate_is_kept(server: Served, tmp_path: Path) -> None:
    done = run(tmp_path, address(server), "-m", "echo", "-i", "1", "--rate", "50", *QUICK[2:], "-o", "r")

    assert done.returncode == 0, done.stderr
    assert levels(tmp_path)[0]["answered"] > 0


@pytest.mark.parametrize(
    ("words", "problem"),
    [
        (("{grpc}", "-m", "nope", "-i", "1"), "to the first request"),
        (("{grpc}", "-i", "1"), "names no model; add --model NAME"),
        (("{grpc}/predictions/echo", "-m", "echo", "-i", "1"), "a gRPC address has no path"),
        (("{http}", "-m", "echo", "-i", "1"), "does not speak gRPC"),
        (("grpc://127.0.0.1:1", "-m", "echo", "-i", "1"), "no server answers at 127.0.0.1:1: connection refused"),
    ],
)
def test_what_cannot_be_called_is_said_in_one_line(
    server: Served, tmp_path: Path, words: tuple[str, ...], problem: str
) -> None:
    names = {"grpc": address(server), "http": f"grpc://127.0.0.1:{server.port}"}
    done = run(tmp_path, *(word.format(**names) for word in words))

    assert done.returncode == 2
    assert problem in done.stderr
    assert len(done.stderr.splitlines()) == 1


def test_model_infer_is_called_with_tensors_made_up(tmp_path: Path) -> None:
    (tmp_path / "r" / "one" / "1").mkdir(parents=True)
    (tmp_path / "r" / "one" / "config.pbtxt").write_text(CONFIG)
    with tritonserver(tmp_path / "r", tmp_path / "log") as ports:
        where = f"grpc://127.0.0.1:{ports.grpc}"
        done = run(tmp_path, where, "-m", "one", "--tensors", "binary", *QUICK, "-o", "r.json")

    assert done.returncode == 0, done.stderr
    assert all(level["answered"] and not level["errors"] for level in levels(tmp_path))
    assert "GRPCInferenceService/ModelInfer" in done.stdout or "4 connections" in done.stdout


class Elsewhere(grpc.GenericRpcHandler):  # type: ignore[misc]  # grpcio has no types
    """A service of grpcio's own server: every tenth call after the first fails."""

    def __init__(self) -> None:
        self.calls = 0

    def service(self, handler_call_details: Any) -> Any:
        return grpc.unary_unary_rpc_method_handler(self._answer)

    def _answer(self, request: bytes, context: Any) -> bytes:
        self.calls += 1
        context.set_trailing_metadata((("a-name", "a value of some length"), ("another", "b" * 200)))
        if self.calls % 10 == 0:
            context.abort(grpc.StatusCode.RESOURCE_EXHAUSTED, "ten")
        return request


def test_a_server_of_another_make_is_understood(tmp_path: Path) -> None:
    there = grpc.server(ThreadPoolExecutor(4), handlers=[Elsewhere()])
    port = there.add_insecure_port("127.0.0.1:0")
    there.start()
    try:
        (tmp_path / "big.bin").write_bytes(bytes(300_000))
        done = run(tmp_path, f"grpc://127.0.0.1:{port}", "-m", "m", "-i", "big.bin", *QUICK, "-o", "r")
    finally:
        there.stop(0).wait(10)

    assert done.returncode == 0, done.stderr
    for level in levels(tmp_path):
        assert level["answered"] > 0
        assert set(level["errors"]) <= {"RESOURCE_EXHAUSTED"}
