"""A real server as a process of its own, and a small client: what process and end-to-end tests talk to."""

import asyncio
import contextlib
import http.client
import json
import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import Any

MODELS = Path(__file__).parent / "models"
SHOAL = [sys.executable, "-P", "-m", "shoal"]


@dataclass
class Reply:
    status: int
    headers: dict[str, str]
    body: bytes

    @property
    def json(self) -> Any:
        return json.loads(self.body)


class Served:
    """A running `shoal serve`."""

    def __init__(self, process: subprocess.Popen[str], log: Path, ports: list[int]) -> None:
        self.process = process
        self.log = log
        self.port, self.management_port, self.metrics_port = ports

    def ask(
        self,
        path: str,
        body: bytes | str | dict[str, Any] | None = None,
        *,
        method: str = "",
        headers: dict[str, str] | None = None,
        port: int = 0,
        timeout: float = 30,
    ) -> Reply:
        headers = dict(headers or {})
        if isinstance(body, dict):
            body = json.dumps(body)
            headers.setdefault("Content-Type", "application/json")
        link = http.client.HTTPConnection("127.0.0.1", port or self.port, timeout=timeout)
        try:
            link.request(method or ("GET" if body is None else "POST"), path, body, headers)
            answer = link.getresponse()
            return Reply(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            link.close()

    def act(self, model: str = "tricks", **item: Any) -> Reply:
        return self.ask(f"/predictions/{model}", item)

    def manage(self, path: str, method: str = "GET") -> Reply:
        return self.ask(path, method=method, port=self.management_port)

    def worker_pids(self, model: str = "tricks") -> list[int]:
        return [worker["pid"] for worker in self.manage(f"/models/{model}").json[0]["workers"]]

    def front_pids(self) -> list[int]:
        """The processes that accept for it, where it has such."""
        children = Path(f"/proc/{self.process.pid}/task/{self.process.pid}/children").read_text().split()
        return [int(pid) for pid in children if b"shoal.fronts.main" in Path(f"/proc/{pid}/cmdline").read_bytes()]

    def metric(self, name: str) -> float:
        page = self.ask("/metrics", port=self.metrics_port).body.decode()
        return sum(float(line.rsplit(" ", 1)[1]) for line in page.splitlines() if line.startswith(name))


@contextlib.contextmanager
def serving(
    tmp_path: Path,
    *arguments: str,
    config: str = "",
    environment: dict[str, str] | None = None,
    cwd: Path | None = None,
    ports: tuple[int, int, int] = (0, 0, 0),
) -> Iterator[Served]:
    """Start the command, wait for its line, and see to it that nothing of it is left."""
    log = tmp_path / "server.log"
    if config:
        (tmp_path / "shoal.toml").write_text(config)
        arguments = (*arguments, "--config", str(tmp_path / "shoal.toml"))
    flags = ("--port", "--management-port", "--metrics-port")
    listen = [text for flag, port in zip(flags, ports, strict=True) for text in (flag, str(port))]
    with open(log, "w") as file:
        process = subprocess.Popen(
            [*SHOAL, "serve", *listen, *arguments],
            stdout=subprocess.PIPE,
            stderr=file,
            text=True,
            env={**os.environ, **(environment or {})},
            cwd=cwd,
        )
    assert process.stdout is not None
    try:
        line = process.stdout.readline()
        assert line == "Model server started.\n", f"{line!r}\n{log.read_text()}"
        found = re.findall(
            r"^(?:inference|management|metrics) +https?://127\.0\.0\.1:(\d+)", log.read_text(), re.MULTILINE
        )
        yield Served(process, log, [int(port) for port in found])
    finally:
        process.terminate()
        try:
            process.wait(20)
        finally:
            process.kill()
            process.stdout.close()


def eventually(check: Callable[[], bool], what: str, within: float = 60) -> None:
    """Wait for something that will happen, however slow the machine."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        with contextlib.suppress(OSError):
            if check():
                return
        time.sleep(0.02)
    raise AssertionError(f"did not happen in {within} s: {what}")


def is_alive(pid: int) -> bool:
    """Whether the process exists and is no zombie."""
    try:
        return Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()[0] != "Z"
    except OSError:
        return False


def kill(pid: int) -> None:
    os.kill(pid, signal.SIGKILL)


async def load(
    port: int, path: str, bodies: list[bytes], connections: int, on_answer: Callable[[int], None] | None = None
) -> list[tuple[int, bytes]]:
    """Send every body once over keep-alive connections; (status, body) of each answer, in the order of the bodies."""
    answers: list[tuple[int, bytes]] = [(0, b"")] * len(bodies)
    todo = iter(range(len(bodies)))
    done = 0

    async def client() -> None:
        nonlocal done
        reader, writer = await asyncio.open_connection("127.0.0.1", port)
        for number in todo:
            body = bodies[number]
            writer.write(
                b"POST %b HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (path.encode(), len(body), body)
            )
            head = await reader.readuntil(b"\r\n\r\n")
            length = int(re.search(rb"(?i)content-length: (\d+)", head)[1])  # type: ignore[index]  # always there
            assert answers[number] == (0, b""), "answered twice"
            answers[number] = (int(head.split()[1]), await reader.readexactly(length))
            done += 1
            if on_answer is not None:
                on_answer(done)
        writer.close()
        await writer.wait_closed()

    await asyncio.gather(*(client() for _ in range(connections)))
    return answers
