"""Workers of another user and with limits: what a handler finds that it may do."""

import os
import shutil
import tempfile
import zipfile
from collections.abc import Iterator
from pathlib import Path

import pytest

from tests.serving import eventually, is_alive, kill, serving

HANDLER = """
import os, resource, sys


def handle(data, context):
    if not data:
        return None
    act = data[0].get("body", b"") if isinstance(data[0], dict) else data[0]
    act = bytes(act).decode() if not isinstance(act, str) else act
    if act == "hoard":
        held = bytearray(600_000_000)
        return [str(len(held))] * len(data)
    if act == "open":
        held = [open("/dev/null") for _ in range(200)]
        return ["opened"] * len(data)
    try:
        open(act or "/nothing").close()
        read = "read"
    except OSError as error:
        read = type(error).__name__
    with open("/proc/self/status") as file:
        status = [line.split()[1] for line in file if line.startswith("NoNewPrivs")]
    facts = {
        "uid": os.getuid(), "euid": os.geteuid(), "gid": os.getgid(), "groups": os.getgroups(),
        "home": os.environ["HOME"], "no_new_privileges": status[0], "read": read,
        "memory": resource.getrlimit(resource.RLIMIT_DATA)[0],
    }
    return [facts] * len(data)
"""
needs_root = pytest.mark.skipif(os.geteuid() != 0, reason="only root can hand workers to another user")


@pytest.fixture
def place() -> Iterator[Path]:
    """A folder that other users can look into."""
    folder = Path(tempfile.mkdtemp(prefix="shoal-test-"))
    folder.chmod(0o755)
    (folder / "facts.py").write_text(HANDLER)
    (folder / "secret").write_text("for the server alone")
    (folder / "secret").chmod(0o600)
    yield folder
    shutil.rmtree(folder)


@needs_root
def test_a_worker_is_another_users_and_reads_nothing_of_the_servers(place: Path) -> None:
    config = f'[models.facts]\npath = "{place}/facts.py"\nuser = "nobody"\n'
    with serving(place, config=config) as server:
        facts = server.ask("/predictions/facts", str(place / "secret")).json
        assert facts["uid"] == facts["euid"] != 0
        assert facts["gid"] != 0
        assert 0 not in facts["groups"]
        assert facts["read"] == "PermissionError"
        assert facts["no_new_privileges"] == "1"
        assert facts["home"] != os.environ.get("HOME")

        worker = server.worker_pids("facts")[0]
        template = int(Path(f"/proc/{worker}/stat").read_text().rsplit(")", 1)[1].split()[1])
        kill(template)  # workers die with it, whoever they belong to
        eventually(lambda: not is_alive(worker), "the worker is gone")
        eventually(lambda: server.ask("/predictions/facts", "").status == 200, "another answers")


@needs_root
def test_the_server_may_say_it_for_all_and_archives_stay_readable(place: Path) -> None:
    with zipfile.ZipFile(place / "facts.mar", "w") as archive:
        archive.writestr("facts.py", HANDLER)
        manifest = '{"model": {"modelName": "facts", "modelVersion": "1.0", "handler": "facts.py:handle"}}'
        archive.writestr("MAR-INF/MANIFEST.json", manifest)
    with serving(place, str(place / "facts.mar"), environment={"SHOAL_WORKER_USER": "65534"}) as server:
        facts = server.ask("/predictions/facts", str(place / "secret")).json
    assert facts["uid"] == 65534
    assert facts["read"] == "PermissionError"


def test_a_user_that_is_none_is_not_served_as_another(place: Path) -> None:
    config = f'[models.facts]\npath = "{place}/facts.py"\nuser = "nobody-of-this-name"\n'
    with pytest.raises(AssertionError, match="no such user"), serving(place, config=config):
        pass


def test_limits_hold_and_only_the_greedy_request_fails(place: Path) -> None:
    limits = "[models.facts.limits]\nmemory = 500_000_000\nfiles = 100\n"
    with serving(place, config=f'[models.facts]\npath = "{place}/facts.py"\n{limits}') as server:
        assert server.ask("/predictions/facts", "").json["memory"] == 500_000_000
        for act in ("hoard", "open"):
            assert server.ask("/predictions/facts", act).status >= 500
        assert server.ask("/predictions/facts", "").status == 200


def test_a_limit_above_the_servers_own_is_said(place: Path) -> None:
    config = f'[models.facts]\npath = "{place}/facts.py"\nlimits = {{files = 1_000_000_000}}\n'
    with pytest.raises(AssertionError, match="the server itself has only"), serving(place, config=config):
        pass
