"""Model repositories with real workers: live reloads under load, models that fail, and the command itself."""

import asyncio
import os
import re
import signal
import subprocess
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any
from urllib.parse import urlsplit

import msgspec
import pytest

from shoal.app import App
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.errors import InvalidInput
from shoal.triton.control import Control
from shoal.triton.repository import Folders, Found
from shoal.triton.source import Source
from tests.serving import SHOAL, is_alive, load
from tests.unit.triton.repositories import BATCHED, TENSORS, put

HANDLER = """
class Model:
    def inference(self, data):
        return [{build!r} for _ in data]
"""
IDENTITY = f'backend: "identity"\n{TENSORS}'


class OwnHandlers(Source):
    """The repositories, served by handlers of our own kind: what is tested is the loading, not a backend."""

    async def config(self, found: Found, version: int, parts: Sequence[ModelConfig]) -> ModelConfig:
        made = await super().config(found, version, parts)
        return msgspec.structs.replace(made, flavour="shoal", backend="", settings={}, interface=None)


class Server:
    """An app with a control over a folder, on this event loop."""

    def __init__(self, root: Path, **settings: Any) -> None:
        self.app = App(ServerConfig(drain_timeout=5.0, port=0, management_port=0, metrics_port=0))
        source = OwnHandlers(Folders([root]), completes=False)
        self.control = Control(self.app.repository, source, poll_every=0.05, **settings)

    async def __aenter__(self) -> "Server":
        await self.app.start()
        try:
            await self.control.start()
        except BaseException:
            await self.__aexit__()
            raise
        return self

    async def __aexit__(self, *_: object) -> None:
        await self.control.close()
        await self.app.drain()

    @property
    def port(self) -> int:
        port = urlsplit(self.app.addresses["inference"]).port
        assert port
        return port

    async def answers(self, name: str, count: int = 1) -> list[tuple[int, bytes]]:
        return await load(self.port, f"/predictions/{name}", [b"x"] * count, min(count, 8))

    def pids(self) -> list[int]:
        return [worker.pid for model in self.app.repository for worker in model.pool.describe()]


def write(root: Path, name: str, build: str, version: str = "1", settings: str = BATCHED) -> None:
    put(root, name, settings, version, file="")
    (root / name / version / "model.py").write_text(HANDLER.format(build=build))


async def until(check: Callable[[], Coroutine[Any, Any, bool]]) -> None:
    """Wait for something that will happen, however slow the machine: the whole test has its time limit."""
    while not await check():  # noqa: ASYNC110
        await asyncio.sleep(0.02)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(asyncio.wait_for(work, 60))


def test_a_model_is_loaded_anew_under_load_and_no_request_is_lost(tmp_path: Path) -> None:
    async def work() -> None:
        write(tmp_path, "m", "old")
        async with Server(tmp_path, mode="explicit", at_start=["m"]) as server:
            before = server.pids()
            asking = asyncio.ensure_future(server.answers("m", 3000))
            await asyncio.sleep(0.05)
            write(tmp_path, "m", "new")
            await server.control.load("m")
            assert await server.answers("m") == [(200, b"new")]
            answers = await asking

            assert {status for status, _ in answers} == {200}
            assert {body for _, body in answers} <= {b"old", b"new"}

            async def has_ended() -> bool:
                return not any(map(is_alive, before))

            await until(has_ended)

    run(work())


def test_a_model_of_the_same_size_and_date_is_loaded_anew(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PYTHONDONTWRITEBYTECODE", "")  # Python may keep what it compiles, as it does for most

    def save(word: str) -> None:
        write(tmp_path, "m", word)
        os.utime(tmp_path / "m" / "1" / "model.py", (1e9, 1e9))

    async def work() -> None:
        save("old")
        async with Server(tmp_path, mode="explicit", at_start=["m"]) as server:
            assert await server.answers("m") == [(200, b"old")]
            save("new")
            await server.control.load("m")
            assert await server.answers("m") == [(200, b"new")]

    run(work())


def test_a_change_on_disk_is_served_and_a_bad_one_is_not(tmp_path: Path) -> None:
    async def work() -> None:
        write(tmp_path, "m", "first")
        async with Server(tmp_path, mode="poll") as server:
            assert await server.answers("m") == [(200, b"first")]

            write(tmp_path, "m", "second", "2")

            async def is_new() -> bool:
                return await server.answers("m") == [(200, b"second")]

            await until(is_new)

            (tmp_path / "m" / "2" / "model.py").write_text("raise RuntimeError('no way')")
            await server.control.poll_once()
            assert await server.answers("m") == [(200, b"second")]

            write(tmp_path, "late", "late")

            async def is_there() -> bool:
                return await server.answers("late") == [(200, b"late")]

            await until(is_there)

    run(work())


def test_a_model_that_cannot_be_loaded_leaves_no_process_and_says_why(tmp_path: Path) -> None:
    async def work() -> None:
        write(tmp_path, "m", "good", "1", BATCHED + "version_policy { all { } }")
        put(tmp_path, "m", None, "2", file="")
        (tmp_path / "m" / "2" / "model.py").write_text("raise RuntimeError('no way')")
        async with Server(tmp_path, mode="explicit") as server:
            with pytest.raises(InvalidInput, match=r"version 2 is at UNAVAILABLE state: Internal: .*no way"):
                await server.control.load("m")

            async def has_ended() -> bool:
                return {line.state for line in await server.control.index()} == {"UNAVAILABLE"}

            await until(has_ended)
            assert server.pids() == []
            assert not server.control.is_ready()

    run(work())


def test_an_unloaded_model_answers_what_it_had_and_its_process_ends(tmp_path: Path) -> None:
    async def work() -> None:
        write(tmp_path, "m", "x")
        async with Server(tmp_path, mode="explicit", at_start=["*"]) as server:
            pids = server.pids()
            asking = asyncio.ensure_future(server.answers("m", 500))
            await asyncio.sleep(0.02)
            server.control.unload("m")
            answers = await asking
            statuses = [status for status, _ in answers]
            assert set(statuses) <= {200, 404}
            assert statuses[-1] == 404

            async def has_ended() -> bool:
                return server.control.is_ready()

            await until(has_ended)
            assert not any(map(is_alive, pids))

    run(work())


def test_what_a_model_tells_of_itself_completes_its_configuration(tmp_path: Path) -> None:
    async def work() -> None:
        put(tmp_path, "m", None, file="")
        (tmp_path / "m" / "1" / "model.py").write_text(
            "class TritonPythonModel:\n"
            "    @staticmethod\n"
            "    def auto_complete_config(config):\n"
            "        config.add_input({'name': 'IN', 'data_type': 'TYPE_STRING', 'dims': [-1]})\n"
            "        config.add_output({'name': 'OUT', 'data_type': 'TYPE_INT64', 'dims': [1]})\n"
            "        config.set_max_batch_size(4)\n"
            "        config.set_dynamic_batching()\n"
            "        return config\n"
        )
        folders = Folders([tmp_path])
        config = await Source(folders).config(folders.find("m"), 1, ())

        assert config.interface is not None
        assert [tensor.datatype for tensor in config.interface.inputs] == ["BYTES"]
        assert config.interface.max_batch_size == 4
        assert config.settings["dynamic_batching"]["preferred_batch_size"] == [4]
        assert config.settings["instance_group"][0]["name"] == "m"

        plain = await Source(folders, completes=False).config(folders.find("m"), 1, ())
        assert plain.settings["max_batch_size"] == 0

    run(work())


# -- the command -----------------------------------------------------------------------------------------------------


def started(repository: Path, *flags: str) -> "subprocess.Popen[str]":
    ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0", "--allow-grpc=false")
    command = [*SHOAL, "tritonserver", f"--model-repository={repository}", *ports, *flags]
    environment = {**os.environ, "CUDA_VISIBLE_DEVICES": ""}
    return subprocess.Popen(command, stderr=subprocess.PIPE, text=True, env=environment)


def test_the_command_serves_until_it_is_told_to_stop(tmp_path: Path) -> None:
    put(tmp_path, "same", IDENTITY, file="")
    process = started(tmp_path, "--http-thread-count=4")
    assert process.stderr is not None
    try:
        lines: list[str] = []
        for line in process.stderr:
            lines.append(line)
            if "Started Metrics Service at 127.0.0.1:" in line:
                break
        log = "".join(lines)
        assert re.search(r"Started HTTPService at 127\.0\.0\.1:\d+", log), log
        assert "--http-thread-count has no effect" in log
        assert "loopback only" in log
        assert log.index("successfully loaded 'same'") < log.index("Started HTTPService")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.stderr.close()
        process.wait()


def test_a_model_that_fails_at_the_start_ends_the_command(tmp_path: Path) -> None:
    put(tmp_path, "bad", "max_batchsize: 1", file="")
    process = started(tmp_path)
    _, log = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "failed to load all models" in log.splitlines()[-1]
    assert "did you mean 'max_batch_size'?" in log


def test_a_repository_that_is_not_there_ends_the_command(tmp_path: Path) -> None:
    process = started(tmp_path / "nowhere")
    _, log = process.communicate(timeout=30)

    assert process.returncode == 1
    assert "model repository not found" in log
