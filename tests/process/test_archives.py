"""Archives through a real server: registered, served, refused, removed; and nothing is left when it is gone."""

import json
import shutil
import subprocess
import sys
import threading
import urllib.parse
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.serving import SHOAL, Served, eventually, kill, serving
from tests.unit.archive.archives import DATA, make_mar, make_zip

ECHO = b"def handle(data, context):\n    return [b'from the archive' for _ in data] if data is not None else None\n"


@pytest.fixture
def places(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "store").mkdir()
    (tmp_path / "temporary").mkdir()
    return {"TMPDIR": str(tmp_path / "temporary")}


def unpacked(tmp_path: Path) -> list[Path]:
    return list((tmp_path / "temporary").glob("shoal-models-*/models/*"))


def register(server: Served, **parameters: str) -> tuple[int, str]:
    reply = server.manage("/models?" + urllib.parse.urlencode(parameters), "POST")
    return reply.status, reply.json.get("message") or reply.json["status"]


def test_an_archive_is_registered_answers_and_goes(tmp_path: Path, places: dict[str, str]) -> None:
    store = tmp_path / "store"
    make_mar(store / "m.mar", {"h.py": ECHO})
    shutil.copy(DATA / "ts_echo.mar", store)
    with serving(tmp_path, "--model-store", str(store), environment=places) as server:
        status, words = register(server, url="m.mar", initial_workers="1")
        assert (status, "registered" in words) == (200, True)
        assert server.ask("/predictions/m", "x").body == b"from the archive"
        assert len(unpacked(tmp_path)) == 1

        assert register(server, url="ts_echo.mar")[0] == 200
        (described,) = server.manage("/models/ts_echo").json
        assert (described["modelVersion"], described["minWorkers"], described["maxWorkers"]) == ("2.1", 1, 2)
        assert (described["batchSize"], described["maxBatchDelay"]) == (4, 50)
        assert server.ask("/predictions/ts_echo", "hello").body == b"hello"

        assert register(server, url="m.mar")[0] == 409
        assert len(unpacked(tmp_path)) == 2, "what was unpacked for a model that is there already is gone"
        assert server.manage("/models/m", "DELETE").status == 200
        assert len(unpacked(tmp_path)) == 1
        assert sorted(path.name for path in store.iterdir()) == ["m.mar", "ts_echo.mar"]
    assert list((tmp_path / "temporary").glob("shoal-models-*")) == []


def test_what_is_broken_is_refused_whole(tmp_path: Path, places: dict[str, str]) -> None:
    store = tmp_path / "store"
    make_zip(store / "evil.mar", {"h.py": ECHO, "../../evil.py": b""})
    make_mar(store / "raises.mar", {"h.py": b"def handle(data, context):\n    raise ValueError('no weights')\n"})
    make_mar(store / "yaml.mar", {"c.yaml": b"a: [\n"}, configFile="c.yaml")
    with serving(tmp_path, "--model-store", str(store), environment=places) as server:
        for url, code, words in (
            ("evil.mar", 400, "leads out of the archive"),
            ("yaml.mar", 400, "c.yaml line"),
            ("raises.mar", 500, "no weights"),
            ("http://127.0.0.1:1/a.mar", 404, "does not match any allowed URL(s)"),
            ("gone.mar", 404, "Model not found at: gone.mar"),
        ):
            status, message = register(server, url=url, initial_workers="1")
            assert (status, words in message) == (code, True), message
            assert unpacked(tmp_path) == []
        assert server.manage("/models").json["models"] == []


def test_an_archive_is_fetched_and_goes_with_its_model(tmp_path: Path, places: dict[str, str]) -> None:
    (tmp_path / "site").mkdir()
    make_mar(tmp_path / "site" / "m.mar", {"h.py": ECHO})

    class Quiet(SimpleHTTPRequestHandler):
        def __init__(self, *arguments: object) -> None:
            super().__init__(*arguments, directory=str(tmp_path / "site"))  # type: ignore[arg-type]

        def log_message(self, *_: object) -> None:
            pass

    with ThreadingHTTPServer(("127.0.0.1", 0), Quiet) as site:
        thread = threading.Thread(target=site.serve_forever, kwargs={"poll_interval": 0.01})
        thread.start()
        address = f"http://127.0.0.1:{site.server_port}"
        config = f"model_store = {json.dumps(str(tmp_path / 'store'))}\nallowed_urls = ['{address}/.*']\n"
        try:
            with serving(tmp_path, config=config, environment=places) as server:
                assert register(server, url=f"{address}/m.mar", initial_workers="1")[0] == 200
                assert server.ask("/predictions/m", "x").body == b"from the archive"
                assert (tmp_path / "store" / "m.mar").exists()
                assert register(server, url=f"{address}/m.mar") == (500, "Model file already exists m.mar")
                assert register(server, url=f"{address}/gone.mar")[0] == 400
                assert server.manage("/models/m", "DELETE").status == 200
                assert list((tmp_path / "store").iterdir()) == []
        finally:
            site.shutdown()
            thread.join()


def test_an_operator_serves_an_archive_by_its_path(tmp_path: Path, places: dict[str, str]) -> None:
    with serving(tmp_path, str(DATA / "ts_echo.mar"), "--workers", "1", environment=places) as server:
        assert server.ask("/predictions/ts_echo", "hello").body == b"hello"
        assert len(server.worker_pids("ts_echo")) == 1


def test_what_a_killed_server_left_is_removed_by_the_next(tmp_path: Path, places: dict[str, str]) -> None:
    make_mar(tmp_path / "m.mar", {"h.py": ECHO})
    with serving(tmp_path, str(tmp_path / "m.mar"), environment=places) as server:
        workers = server.worker_pids("m")
        kill(server.process.pid)
        server.process.wait(10)
    eventually(lambda: not any(Path(f"/proc/{pid}/cwd").exists() for pid in workers), "its workers are gone")
    (left,) = (tmp_path / "temporary").glob("shoal-models-*")

    with serving(tmp_path, str(tmp_path / "m.mar"), environment=places) as server:
        assert server.ask("/predictions/m", "x").body == b"from the archive"
        assert not left.exists()


def test_what_shoal_archive_writes_shoal_serves(tmp_path: Path, places: dict[str, str]) -> None:
    (tmp_path / "h.py").write_bytes(ECHO)
    command = [*SHOAL, "archive", "--model-name", "mine", "-v", "3.0", "--handler", str(tmp_path / "h.py")]
    written = subprocess.run(
        [*command, "--export-path", str(tmp_path / "store")], capture_output=True, text=True, timeout=60, check=True
    )
    assert "mine.mar" in written.stdout

    with serving(tmp_path, "--model-store", str(tmp_path / "store"), environment=places) as server:
        assert register(server, url="mine", initial_workers="1")[0] == 200
        assert server.ask("/predictions/mine/3.0", "x").body == b"from the archive"


@pytest.mark.parametrize("form", ["default", "tgz"])
def test_what_torch_model_archiver_writes_shoal_serves(tmp_path: Path, places: dict[str, str], form: str) -> None:
    archiver = Path(sys.executable).parent / "torch-model-archiver"
    if not archiver.exists():
        pytest.skip("torch-model-archiver is not installed")
    (tmp_path / "h.py").write_bytes(ECHO)
    command = [str(archiver), "--model-name", "theirs", "-v", "1.0", "--handler", str(tmp_path / "h.py")]
    subprocess.run([*command, "--archive-format", form, "--export-path", tmp_path / "store"], timeout=60, check=True)

    with serving(tmp_path, "--model-store", str(tmp_path / "store"), environment=places) as server:
        assert register(server, url="theirs", initial_workers="1")[0] == 200
        assert server.ask("/predictions/theirs", "x").body == b"from the archive"
