"""How a server ends: not ready first, then nothing new, then what was admitted; at once when it is told twice."""

import contextlib
import json
import os
import re
import signal
import socket
import subprocess
from collections.abc import Iterator
from pathlib import Path

import grpc
import pytest

from shoal.frontend.grpc.kserve import PREFIX as KSERVE
from shoal.frontend.grpc.proto.grpc_service_pb2 import ServerReadyRequest, ServerReadyResponse
from tests.serving import MODELS, SHOAL, Served, eventually, is_alive, serving

TRICKS = str(MODELS / "tricks.py")


def send(server: Served, item: object) -> socket.socket:
    """Ask for something and leave the answer for later."""
    body = json.dumps(item).encode()
    client = socket.create_connection(("127.0.0.1", server.port), 60)
    head = (
        b"POST /predictions/tricks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\nContent-Length: %d\r\n\r\n"
    )
    client.sendall(head % len(body) + body)
    return client


def is_running(server: Served, batches: int = 1) -> bool:
    return server.metric("shoal_batches_running") == batches


def is_refused(port: int) -> bool:
    try:
        socket.create_connection(("127.0.0.1", port), 10).close()
    except ConnectionRefusedError:
        return True
    return False


def test_it_is_not_ready_first_then_takes_nothing_new_and_answers_what_it_has(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, config="shutdown_delay = 2\ngrpc_port = 0\n") as server:
        rpc = re.search(r"grpc inference\D*127\.0\.0\.1:(\d+)", server.log.read_text())
        assert rpc is not None
        channel = grpc.insecure_channel(f"127.0.0.1:{rpc[1]}")
        ready = channel.unary_unary(
            KSERVE + "ServerReady",
            request_serializer=ServerReadyRequest.SerializeToString,
            response_deserializer=ServerReadyResponse.FromString,
        )
        assert server.ask("/ping").status == server.ask("/v2/health/ready").status == 200
        assert ready(ServerReadyRequest()).ready
        client = send(server, {"do": "sleep", "seconds": 4})
        eventually(lambda: is_running(server), "the request runs")

        server.process.send_signal(signal.SIGTERM)

        eventually(lambda: server.ask("/ping").status == 500, "health says so")
        assert server.ask("/v2/health/ready").status == 400
        assert server.ask("/v2/health/live").status == 200
        assert not ready(ServerReadyRequest()).ready
        channel.close()
        eventually(lambda: is_refused(server.port), "nothing new is taken")
        assert server.process.poll() is None, "somebody is still waited for"
        assert client.recv(65536).startswith(b"HTTP/1.1 200")
        client.close()
        assert server.process.wait(20) == 0


def test_requests_are_answered_between_not_ready_and_the_end(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, config="shutdown_delay = 2\n") as server:
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.ask("/ping").status == 500, "health says so")

        assert server.ask("/predictions/tricks", "still here").body == b"still here"
        assert server.process.wait(20) == 0


def test_what_does_not_end_in_time_is_ended(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, config="drain_timeout = 0.5\n") as server:
        pids = server.worker_pids()
        client = send(server, {"do": "sleep", "seconds": 300})
        eventually(lambda: is_running(server), "the request runs")

        server.process.send_signal(signal.SIGTERM)

        assert server.process.wait(20) == 0
        assert client.recv(65536) == b"", "it is cut: there is no answer"
        client.close()
        assert not any(map(is_alive, pids))


@pytest.mark.parametrize("second", [signal.SIGTERM, signal.SIGINT])
def test_told_twice_it_ends_at_once(tmp_path: Path, second: signal.Signals) -> None:
    with serving(tmp_path, TRICKS, config="drain_timeout = 600\n") as server:
        pids = server.worker_pids()
        client = send(server, {"do": "sleep", "seconds": 300})
        eventually(lambda: is_running(server), "the request runs")
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: is_refused(server.port), "it drains")

        server.process.send_signal(second)

        assert server.process.wait(20) == 128 + second
        client.close()
        eventually(lambda: not any(map(is_alive, pids)), "its workers are gone")
        assert "told again to stop" in server.log.read_text()


def test_told_twice_while_it_waits_it_ends_at_once(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, config="shutdown_delay = 600\n") as server:
        server.process.send_signal(signal.SIGTERM)
        eventually(lambda: server.ask("/ping").status == 500, "it waits")

        server.process.send_signal(signal.SIGTERM)

        assert server.process.wait(20) == 128 + signal.SIGTERM


@contextlib.contextmanager
def other(tmp_path: Path, name: str, *arguments: str, line: str) -> Iterator[tuple["subprocess.Popen[bytes]", str]]:
    """Run another server's command in the foreground until it has said its line."""
    log = tmp_path / "log"
    (tmp_path / "tmp").mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TS_", "LOG_", "MMS_"))}
    environment |= {"TMPDIR": str(tmp_path / "tmp"), "CUDA_VISIBLE_DEVICES": "", "SHOAL_SHUTDOWN_DELAY": "3"}
    with open(log, "wb") as file:
        process = subprocess.Popen([*SHOAL, name, *arguments], cwd=tmp_path, env=environment, stdout=file, stderr=file)
    try:
        eventually(lambda: re.search(line, log.read_text()) is not None, "it started", within=60)
        yield process, log.read_text()
    finally:
        process.kill()
        process.wait()


@pytest.mark.parametrize(("name", "said"), [("torchserve", 500), ("multi-model-server", 200)])
def test_torchserve_and_mms_are_not_ready_before_they_stop(tmp_path: Path, name: str, said: int) -> None:
    (tmp_path / "store").mkdir()
    settings = "inference_address=http://127.0.0.1:0\nmanagement_address=http://127.0.0.1:0\nmodel_store=store\n"
    if name == "torchserve":
        settings += "metrics_address=http://127.0.0.1:0\ngrpc_inference_port=0\ngrpc_management_port=0\n"
    (tmp_path / "config.properties").write_text(settings)
    flags = ["--start", "--foreground", "--ts-config" if name == "torchserve" else "--mms-config", "config.properties"]
    flags += ["--ncs", "--dt"] if name == "torchserve" else []
    with other(tmp_path, name, *flags, line=r"Model server started\.") as (process, log):
        port = int(re.findall(r"Inference API bind to: http://127\.0\.0\.1:(\d+)", log)[-1])
        server = Served(process, tmp_path / "log", [port, port, port])  # type: ignore[arg-type]  # output in a file
        assert server.ask("/ping").json == {"status": "Healthy"}

        process.send_signal(signal.SIGTERM)

        eventually(lambda: server.ask("/ping").json == {"status": "Unhealthy"}, "health says so")
        assert server.ask("/ping").status == said
        assert process.wait(20) == 0


def test_triton_is_not_ready_before_it_stops(tmp_path: Path) -> None:
    (tmp_path / "repository").mkdir()
    flags = ("--model-repository=repository", "--http-port=0", "--grpc-port=0", "--metrics-port=0")
    with other(tmp_path, "tritonserver", *flags, line="Started Metrics Service") as (process, log):
        port = int(re.findall(r"Started HTTPService at 127\.0\.0\.1:(\d+)", log)[-1])
        server = Served(process, tmp_path / "log", [port, port, port])  # type: ignore[arg-type]  # output in a file
        assert server.ask("/v2/health/ready").status == 200

        process.send_signal(signal.SIGTERM)

        eventually(lambda: server.ask("/v2/health/ready").status == 400, "health says so")
        assert server.ask("/v2/health/live").status == 200
        assert process.wait(20) == 0
