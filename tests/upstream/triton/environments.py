"""The environments of the clients: one for each release, made once and kept in the user's cache."""

import functools
import json
import subprocess
import sys
from pathlib import Path
from typing import Any

from tests.upstream import build
from tests.upstream.triton.servers import ROOT, Server
from tests.upstream.triton.words import Run

# each with what it was released for, where later versions no longer go with it
PACKAGES: dict[str, tuple[str, ...]] = {
    "2.73.0": ("tritonclient[http,grpc]==2.73.0", "setuptools<81"),
    "2.51.0": ("tritonclient[http,grpc]==2.51.0", "setuptools<81"),
}
PATIENCE = 400.0  # seconds for a whole run


@functools.cache
def environment(release: str) -> Path:
    """The folder of a release's environment."""
    folder = build.cache() / f"tritonclient-{release}"

    def make(target: Path) -> None:
        subprocess.run([sys.executable, "-m", "venv", str(target)], check=True)
        pip = [str(target / "bin/python"), "-m", "pip", "--quiet", "--disable-pip-version-check", "install"]
        subprocess.run([*pip, *PACKAGES[release]], check=True)

    build.once(folder, make)
    return folder


def ask_all(run: Run, release: str, server: Server) -> dict[str, Any]:
    """Do every case of a run with the clients of a release."""
    python = environment(release) / "bin/python"
    addresses = ["--http", f"127.0.0.1:{server.http}", "--grpc", f"127.0.0.1:{server.grpc}"]
    done = subprocess.run(
        [str(python), "-m", "tests.upstream.triton.asking", "--run", run.name, *addresses],
        cwd=ROOT,
        capture_output=True,
        text=True,
        timeout=PATIENCE,
        check=False,
    )
    if done.returncode:
        raise RuntimeError(f"the clients of {release} gave up:\n{done.stderr[-4000:]}")
    sys.stderr.write(done.stderr[-4000:])
    answers: dict[str, Any] = json.loads(done.stdout)
    return answers
