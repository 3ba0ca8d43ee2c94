"""Rolling updates under load, in each mode and over both protocols: whoever asks is answered, by the old or the new."""

import asyncio
import contextlib
import json
import os
import re
import subprocess
import time
import zipfile
from collections import Counter
from collections.abc import Awaitable, Callable, Iterator
from functools import partial
from pathlib import Path
from typing import Any

import grpc
import pytest

from shoal.frontend.grpc.kserve import PREFIX as KSERVE
from shoal.frontend.grpc.proto.grpc_service_pb2 import ModelInferRequest, ModelInferResponse
from shoal.frontend.grpc.proto.inference_pb2 import PredictionResponse, PredictionsRequest
from shoal.frontend.grpc.torchserve_inference import PREFIX as TORCHSERVE
from tests.serving import SHOAL, Served, eventually, is_alive, serving

CONCURRENCY = 64
PLAIN = "import time\n\ndef predict(items):\n    time.sleep(0.02)\n    return [b'{word}' for item in items]\n"
FAILING = "def predict(items):\n    raise RuntimeError('not today')\n"
Change = Callable[["Load"], Awaitable[None]]


class Load:
    """Clients of both protocols, as many as told on each, who ask again as soon as they are answered."""

    def __init__(self) -> None:
        self.heard: tuple[Counter[bytes], Counter[bytes]] = (Counter(), Counter())
        self.errors: list[str] = []
        self.is_over = False

    async def ask_http(self, port: int, path: str, body: bytes = b"x") -> None:
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        head = f"POST {path} HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n".encode()
        while not self.is_over:
            heard, _ = self.heard
            writer.write(head + body)
            answer = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"(?i)content-length: (\d+)", answer)[1])  # type: ignore[index]  # always there
            said = await reader.readexactly(length)
            if answer.split()[1] == b"200":
                heard[_word(said)] += 1
            else:
                self.errors.append(f"HTTP {answer.split()[1].decode()}: {said[:200]!r}")
        writer.close()
        await writer.wait_closed()

    async def ask_grpc(self, call: Callable[[], Awaitable[bytes]]) -> None:
        while not self.is_over:
            _, heard = self.heard
            try:
                heard[_word(await call())] += 1
            except grpc.aio.AioRpcError as error:
                self.errors.append(f"gRPC {error.code().name}: {error.details()}")

    async def more(self, count: int = 300) -> tuple[Counter[bytes], Counter[bytes]]:
        """Wait until so many requests of each protocol that were sent from now on were answered; what they heard."""
        heard = self.heard = (Counter(), Counter())
        async with asyncio.timeout(60):
            while min(words.total() for words in heard) < count:
                await asyncio.sleep(0.01)
                assert not self.errors, self.errors[:5]
        return heard

    async def only(self, word: bytes) -> None:
        """See that everybody who asks from now on hears this word alone."""
        http, rpc = await self.more(2 * CONCURRENCY)
        assert http.keys() == rpc.keys() == {word}


def _word(said: bytes) -> bytes:
    found = re.search(rb"one|two|three|six", said)
    return found[0] if found else said


async def under_load(port: int, path: str, body: bytes, call: Callable[[Any], Any], rpc: int, change: Change) -> Load:
    """Let `change` happen while 64 HTTP connections and 64 gRPC calls at a time ask."""
    load = Load()
    async with grpc.aio.insecure_channel(f"127.0.0.1:{rpc}") as channel:
        asking = call(channel)
        clients = [asyncio.create_task(load.ask_http(port, path, body)) for _ in range(CONCURRENCY)]
        clients += [asyncio.create_task(load.ask_grpc(asking)) for _ in range(CONCURRENCY)]
        try:
            await load.more()
            await change(load)
        finally:
            load.is_over = True
            await asyncio.gather(*clients)
    assert not load.errors, f"{len(load.errors)} errors: {load.errors[:5]}"
    return load


def predictions(channel: Any, model: str = "m") -> Callable[[], Awaitable[bytes]]:
    call = channel.unary_unary(
        TORCHSERVE + "Predictions",
        request_serializer=PredictionsRequest.SerializeToString,
        response_deserializer=PredictionResponse.FromString,
    )

    async def ask() -> bytes:
        answer = await call(PredictionsRequest(model_name=model, input={"data": b"x"}), timeout=60)
        return bytes(answer.prediction)

    return ask


def rpc_port(log: str) -> int:
    found = re.search(r"grpc[ _]inference\D*127\.0\.0\.1:(\d+)", log, re.IGNORECASE)
    assert found, log
    return int(found[1])


@pytest.fixture
def store(tmp_path: Path) -> Path:
    folder = tmp_path / "store"
    folder.mkdir()
    for word in ("one", "two", "three"):
        (folder / f"{word}.py").write_text(PLAIN.format(word=word))
    (folder / "broken.py").write_text("raise RuntimeError('no weights here')\n")
    (folder / "failing.py").write_text(FAILING)
    return folder


@contextlib.contextmanager
def native(tmp_path: Path, store: Path) -> Iterator[Served]:
    config = f'grpc_port = 0\nmodel_store = "{store}"\n[models.m]\npath = "{store}/one.py"\n'
    with serving(tmp_path, config=config) as server:
        yield server


async def until(check: Callable[[], bool]) -> None:
    """Wait for something that will happen, however slow the machine."""
    await asyncio.to_thread(eventually, check, "the change is seen", 60)


def answers(server: Served, word: bytes) -> bool:
    return server.ask("/predictions/m", b"x").body == word


async def manage(server: Served, path: str, method: str) -> dict[str, Any]:
    reply = await asyncio.to_thread(server.manage, path, method)
    assert reply.status == 200, reply.body
    answer: dict[str, Any] = reply.json
    return answer


def test_versions_replace_each_other_under_load_and_nobody_gets_an_error(tmp_path: Path, store: Path) -> None:
    with native(tmp_path, store) as server:
        (first,) = server.worker_pids("m")

        async def change(load: Load) -> None:
            said = await manage(server, "/models?url=two.py&model_name=m&replace=true", "POST")
            assert said["status"] == 'Model "m" Version: 1.0 took the place of 1.0 with 1 workers'
            await load.only(b"two")
            broken = await asyncio.to_thread(
                server.manage, "/models?url=broken.py&model_name=m&model_version=9&replace=true", "POST"
            )
            assert broken.status == 500
            assert "no weights here" in broken.json["message"]
            await load.only(b"two")
            await manage(server, "/models?url=three.py&model_name=m&model_version=2.0&replace=true", "POST")
            await load.only(b"three")

        asyncio.run(
            under_load(
                *(server.port, "/predictions/m", b"x", predictions, rpc_port(server.log.read_text())), change=change
            )
        )
        eventually(lambda: not is_alive(first), "the first version's worker is gone")
        (facts,) = server.manage("/models/m/all").json
        assert (facts["modelVersion"], facts["rollout"]["state"]) == ("2.0", "serving")
        assert server.metric("shoal_requests_total") == server.metric(
            'shoal_requests_total{model_name="m",model_version="2.0",outcome="answered"}'
        )


def test_a_failed_rollout_is_told_of_and_the_old_version_serves(tmp_path: Path, store: Path) -> None:
    with native(tmp_path, store) as server:
        server.manage("/models?url=broken.py&model_name=m&model_version=2.0&replace=true", "POST")

        assert server.ask("/predictions/m", b"x").body == b"one"
        (facts,) = server.manage("/models/m/all").json
        assert facts["state"] == "ready"
        assert facts["rollout"]["state"] == "failed"
        assert "no weights here" in facts["rollout"]["error"]
        assert "RuntimeError" in facts["rollout"]["traceback"]
        assert "not rolled out, what served goes on serving" in server.log.read_text()


def archive(path: Path, word: str, version: str) -> None:
    manifest = {"modelName": "m", "handler": "handler.py", "modelVersion": version, "serializedFile": ""}
    with zipfile.ZipFile(path, "w") as made:
        made.writestr("handler.py", f"def handle(data, context):\n    return ['{word}' for row in data or []]\n")
        about = {"createdOn": "01/01/2026 00:00:00", "runtime": "python", "model": manifest}
        made.writestr("MAR-INF/MANIFEST.json", json.dumps({**about, "archiverVersion": "0.12.0"}))


@contextlib.contextmanager
def command(tmp_path: Path, name: str, *arguments: str) -> Iterator[tuple["subprocess.Popen[bytes]", Path]]:
    """Run another server's command in the foreground, its output in a file."""
    log = tmp_path / "log"
    (tmp_path / "tmp").mkdir()
    environment = {key: value for key, value in os.environ.items() if not key.startswith(("TS_", "LOG_"))}
    environment |= {"TMPDIR": str(tmp_path / "tmp"), "CUDA_VISIBLE_DEVICES": ""}
    with open(log, "wb") as file:
        process = subprocess.Popen([*SHOAL, name, *arguments], cwd=tmp_path, env=environment, stdout=file, stderr=file)
    try:
        yield process, log
    finally:
        process.terminate()
        try:
            process.wait(30)
        finally:
            process.kill()


def test_torchserves_own_way_to_another_version_under_load(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    archive(tmp_path / "store" / "one.mar", "one", "1.0")
    archive(tmp_path / "store" / "two.mar", "two", "2.0")
    addresses = "".join(f"{api}_address=http://127.0.0.1:0\n" for api in ("inference", "management", "metrics"))
    rpc = "grpc_inference_port=0\ngrpc_management_port=0\ndefault_workers_per_model=1\njob_queue_size=1000\n"
    (tmp_path / "config.properties").write_text(f"{addresses}{rpc}model_store=store\n")
    flags = ("--start", "--ncs", "--foreground", "--dt", "--enable-model-api", "--models", "m=one.mar")
    with command(tmp_path, "torchserve", *flags) as (process, log):
        eventually(lambda: "Model server started." in log.read_text(), "it started", within=60)
        ports = [
            int(re.findall(rf"{api} API bind to: http://127\.0\.0\.1:(\d+)", log.read_text())[-1])
            for api in ("Inference", "Management", "Metrics")
        ]
        server = Served(process, log, ports)  # type: ignore[arg-type]  # its output is a file
        eventually(lambda: server.ask("/predictions/m", b"x").status == 200, "its worker is up", within=60)

        async def change(load: Load) -> None:
            await manage(server, "/models?url=two.mar&initial_workers=1&synchronous=true", "POST")
            await load.only(b"one")
            await manage(server, "/models/m/2.0/set-default", "PUT")
            await manage(server, "/models/m/1.0", "DELETE")
            await load.only(b"two")

        found = re.findall(r"Grpc inference API bind to: \S*127\.0\.0\.1:(\d+)", log.read_text(), re.IGNORECASE)
        asyncio.run(under_load(*(ports[0], "/predictions/m", b"x", predictions, int(found[-1])), change=change))


TENSOR = {"name": "IN", "datatype": "FP32", "shape": [1, 1], "data": [0]}
TRITON = """
import numpy as np
import triton_python_backend_utils as pb_utils

class TritonPythonModel:
    def execute(self, requests):
        answer = np.array([["{word}"]], dtype=object)
        return [pb_utils.InferenceResponse([pb_utils.Tensor("OUT", answer)]) for _ in requests]
"""
PBTXT = """backend: "python"
max_batch_size: 8
input [ { name: "IN" data_type: TYPE_FP32 dims: [ 1 ] } ]
output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]
"""


def inferences(channel: Any) -> Callable[[], Awaitable[bytes]]:
    call = channel.unary_unary(
        KSERVE + "ModelInfer",
        request_serializer=ModelInferRequest.SerializeToString,
        response_deserializer=ModelInferResponse.FromString,
    )
    tensor = ModelInferRequest.InferInputTensor(name="IN", datatype="FP32", shape=[1, 1])
    request = ModelInferRequest(model_name="m", inputs=[tensor], raw_input_contents=[bytes(4)])

    async def ask() -> bytes:
        answer = await call(request, timeout=60)
        return bytes(answer.raw_output_contents[0])

    return ask


@pytest.mark.parametrize("mode", ["explicit", "poll"])
def test_a_triton_repository_changes_under_load(tmp_path: Path, mode: str) -> None:
    def write(word: str, version: str) -> None:
        folder = tmp_path / "repository" / "m" / version
        folder.mkdir(parents=True, exist_ok=True)
        (folder / "new").write_text(TRITON.format(word=word))
        (folder / "new").rename(folder / "model.py")

    write("one", "1")
    (tmp_path / "repository" / "m" / "config.pbtxt").write_text(PBTXT)
    ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0")
    mode_flags = {"explicit": ["--load-model=m"], "poll": ["--repository-poll-secs=1"]}[mode]
    flags = ("--model-repository=repository", f"--model-control-mode={mode}", *ports, *mode_flags)
    with command(tmp_path, "tritonserver", *flags) as (process, log):
        eventually(lambda: "Started Metrics Service" in log.read_text(), "it started", within=60)
        port = int(re.findall(r"Started HTTPService at 127\.0\.0\.1:(\d+)", log.read_text())[-1])
        rpc = int(re.findall(r"Started GRPCInferenceService at 127\.0\.0\.1:(\d+)", log.read_text())[-1])
        server = Served(process, log, [port, port, port])  # type: ignore[arg-type]  # its output is a file

        async def changed(load: Load, word: bytes) -> None:
            if mode == "explicit":
                loading = await asyncio.to_thread(server.ask, "/v2/repository/models/m/load", {})
                assert loading.status == 200, loading.body
            await until(lambda: load.heard[0][word] > 0)
            await load.only(word)

        async def change(load: Load) -> None:
            write("two", "1")  # the same version, other code
            await changed(load, b"two")
            write("three", "2")  # a newer version beside it
            await changed(load, b"three")

        body = json.dumps({"inputs": [TENSOR]}).encode()
        asyncio.run(under_load(*(port, "/v2/models/m/infer", body, inferences, rpc), change=change))
        assert server.ask("/v2/health/ready").status == 200


def test_saving_a_watched_file_replaces_the_code_and_a_mistake_does_not(tmp_path: Path) -> None:
    model = tmp_path / "m.py"
    moment = 10**9 * int(time.time())

    def save(code: str, number: int) -> None:
        """Save at the same second as before: what Python compiled cannot be told from this by its date."""
        (tmp_path / "new").write_text(code)
        os.utime(tmp_path / "new", ns=(moment, moment + number))
        (tmp_path / "new").rename(model)

    save(PLAIN.format(word="one"), 0)
    compiling = {"PYTHONDONTWRITEBYTECODE": ""}
    with serving(tmp_path, str(model), "--watch", config="grpc_port = 0\n", environment=compiling) as server:

        async def change(load: Load) -> None:
            for number, word in enumerate(("two", "six", "one"), 1):
                save(PLAIN.format(word=word), number)
                await until(partial(answers, server, word.encode()))
                await load.only(word.encode())
            save("def predict(items:\n", 9)
            await until(lambda: "was never closed" in server.log.read_text())
            await load.only(b"one")

        rpc = rpc_port(server.log.read_text())
        asyncio.run(under_load(*(server.port, "/predictions/m", b"x", predictions, rpc), change=change))
        told = [line for line in server.log.read_text().splitlines() if "was never closed" in line]
        assert len(told) == 1
        assert "not rolled out, what served goes on serving: m.py line 1: '(' was never closed" in told[0]
        assert server.manage("/models/m").json[0]["rollout"]["state"] == "failed"


def test_a_watched_archive_is_unpacked_anew_when_it_is_saved(tmp_path: Path) -> None:
    archive(tmp_path / "m.mar", "one", "1.0")
    with serving(tmp_path, str(tmp_path / "m.mar"), "--watch") as server:
        assert server.ask("/predictions/m", b"x").body == b"one"
        archive(tmp_path / "new", "two", "2.0")
        (tmp_path / "new").rename(tmp_path / "m.mar")

        eventually(lambda: server.ask("/predictions/m", b"x").body == b"two", "the new archive serves", within=60)
        assert [facts["modelVersion"] for facts in server.manage("/models/m/all").json] == ["2.0"]


def test_a_canary_gets_its_share_over_both_protocols_and_a_bad_one_is_taken_back(tmp_path: Path, store: Path) -> None:
    with native(tmp_path, store) as server:

        async def change(load: Load) -> None:
            path = "/models?url=two.py&model_name=m&model_version=2.0&canary=25&canary_max_slowdown=0"
            await manage(server, path, "POST")
            for heard in await load.more(400):
                assert 0.15 < heard[b"two"] / heard.total() < 0.35
            page = await asyncio.to_thread(server.ask, "/metrics", None, port=server.metrics_port)
            assert b'shoal_canary_weight_percent{model_name="m",model_version="2.0"} 25.0' in page.body
            await manage(server, "/models/m/2.0/canary?weight=100&max_slowdown=0", "PUT")
            await load.only(b"two")
            await manage(server, "/models/m/2.0/set-default", "PUT")
            await manage(server, "/models/m/1.0", "DELETE")
            await load.only(b"two")

        rpc = rpc_port(server.log.read_text())
        asyncio.run(under_load(*(server.port, "/predictions/m", b"x", predictions, rpc), change=change))

        server.manage("/models?url=failing.py&model_name=m&model_version=3.0&canary=50&canary_min_requests=5", "POST")

        def is_back() -> bool:
            server.ask("/predictions/m", b"x")
            return bool(server.manage("/models/m").json[0]["rollout"]["state"] == "returned")

        eventually(is_back, "the failing version is taken back", within=60)
        assert all(server.ask("/predictions/m", b"x").body == b"two" for _ in range(20))
        facts = server.manage("/models/m").json[0]
        assert re.search(r"\d+ of its \d+ requests failed", facts["rollout"]["error"])
        assert "canary" not in facts
        assert server.metric('shoal_canary_returns_total{model_name="m"}') == 1
        assert server.manage("/models/m/3.0").status == 200


def test_a_canary_may_stand_in_the_settings_file(tmp_path: Path, store: Path) -> None:
    config = (
        f'[models.next]\nname = "m"\nversion = "2.0"\npath = "{store}/two.py"\ncanary = {{weight = 50}}\n'
        f'[models.m]\npath = "{store}/one.py"\n'
    )
    with serving(tmp_path, config=config) as server:
        bodies = [server.ask("/predictions/m", b"x").body for _ in range(6)]

        assert bodies == [b"one", b"two"] * 3
        assert server.manage("/models/m").json[0]["canary"]["weight"] == 50
