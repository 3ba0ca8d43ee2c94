"""Keys that are given to a tool are sent to the server and told to nobody else."""

import json
import subprocess
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from shoal.errors import InvalidInput
from shoal.tools.calls import site_of
from tests.serving import SHOAL

KEY = "wJalrXUtnFEMI7bPxR"


class Page(BaseHTTPRequestHandler):
    """Takes the key, and repeats what it can of a request in its error."""

    protocol_version = "HTTP/1.1"
    seen: list[str] = []  # noqa: RUF012

    def do_GET(self) -> None:
        self.answer()

    def do_POST(self) -> None:
        self.rfile.read(int(self.headers.get("Content-Length", 0)))
        self.answer()

    def answer(self) -> None:
        self.seen.append(self.headers.get("Authorization", ""))
        status = 401 if "models" in self.path else 200
        body = json.dumps({"code": status, "type": "InvalidKeyException", "message": "no such key"}).encode()
        self.send_response(status)
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *_: object) -> None:
        """Say nothing."""


@pytest.fixture
def server() -> Iterator[str]:
    Page.seen.clear()
    with ThreadingHTTPServer(("127.0.0.1", 0), Page) as found:
        found.daemon_threads = True
        threading.Thread(target=found.serve_forever, daemon=True).start()
        yield f"http://127.0.0.1:{found.server_port}"
        found.shutdown()


@pytest.mark.parametrize(
    ("arguments", "is_refused"),
    [
        (["models", "--token", KEY, "--url", "URL", "list"], True),
        (["models", "--token", KEY, "--url", "URL", "register", "https://host/a.mar?sig=x"], True),
        (["bench", "URL/models/m", "--token", KEY, "-i", "1"], True),
        (["bench", "URL/predictions/m", "--token", KEY, "-H", f"X-Api-Key: {KEY}", "-i", "1", "-o", "r"], False),
    ],
    ids=["list", "register", "bench refused", "bench"],
)
def test_no_tool_tells_its_key(server: str, tmp_path: Path, arguments: list[str], is_refused: bool) -> None:
    quick = ["--window", "100ms", "--warmup", "50ms", "--max-windows", "2"] if arguments[0] == "bench" else []
    told = [word.replace("URL", server) for word in arguments]
    done = subprocess.run([*SHOAL, *told, *quick], capture_output=True, text=True, timeout=90, cwd=tmp_path)
    assert bool(done.returncode) is is_refused, done.stdout + done.stderr
    assert f"Bearer {KEY}" in Page.seen
    written = [path.read_bytes() for path in tmp_path.rglob("*") if path.is_file()]
    assert bool(written) is not is_refused
    assert KEY not in done.stdout + done.stderr
    assert not any(KEY.encode() in content for content in written)


@pytest.mark.parametrize("url", [f"ftp://user:{KEY}@host/x", f"http://user:{KEY}@host:99999/x"])
def test_an_address_that_is_none_is_not_repeated_with_its_password(url: str) -> None:
    with pytest.raises(InvalidInput, match="is no address") as refused:
        site_of(url)
    assert KEY not in str(refused.value)
