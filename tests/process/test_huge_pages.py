"""What a model computes with lies in huge pages, on whatever thread it does; who wants that otherwise says so.

So it does where a model is measured or checked without a server.
"""

import json
import mmap
import platform
import re
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import SHOAL, Served, serving

SWITCH = Path("/sys/kernel/mm/transparent_hugepage/enabled")
HELD = 24 * 2**20
MODEL = """
import os, re, shoal

class Holder(shoal.Handler):
    def decode(self, item):
        return bytearray(b"x" * {held})

    def inference(self, batch):
        held = [bytearray(each) for each in batch]
        with open("/proc/self/smaps_rollup") as file:
            found = re.search(r"AnonHugePages: +([0-9]+) kB", file.read())
        return [{{"huge": 1024 * int(found[1]), "said": os.environ["GLIBC_TUNABLES"]}} for _ in held]
"""


def glibc() -> tuple[int, ...]:
    """Its version; nothing where it is another library."""
    name, version = platform.libc_ver()
    return tuple(map(int, version.split("."))) if name == "glibc" else ()


pytestmark = pytest.mark.skipif(
    not SWITCH.exists() or "[madvise]" not in SWITCH.read_text() or glibc() < (2, 35),
    reason="this system gives huge pages to everybody or nobody, or its library does not ask",
)


def huge() -> int:
    """How many bytes of this process lie in huge pages."""
    found = re.search(r"AnonHugePages: +([0-9]+) kB", Path("/proc/self/smaps_rollup").read_text())
    assert found
    return 1024 * int(found[1])


def given(size: int) -> int:
    """How many bytes of a mapping the system puts into huge pages now: where memory is in pieces, not all."""
    before = huge()
    with mmap.mmap(-1, size, mmap.MAP_PRIVATE | mmap.MAP_ANONYMOUS) as there:
        there.madvise(mmap.MADV_HUGEPAGE)
        for page in range(0, size, mmap.PAGESIZE):
            there[page] = 1
        return huge() - before


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "holder.py"
    file.write_text(MODEL.format(held=HELD))
    yield file


def held_by(server: Served) -> dict[str, Any]:
    found: dict[str, Any] = server.ask("/predictions/holder", b"x").json
    return found


def test_what_a_stage_computes_with_lies_in_huge_pages(tmp_path: Path, model: Path) -> None:
    if given(3 * HELD) < 2 * HELD:  # of what a worker and its request take
        pytest.skip("the system has few huge pages free now")
    with serving(tmp_path, str(model), environment={"GLIBC_TUNABLES": ""}) as server:
        found = held_by(server)

    assert found["said"] == "glibc.malloc.hugetlb=1"
    assert found["huge"] > HELD / 2


def test_a_model_may_ask_for_small_ones(tmp_path: Path, model: Path) -> None:
    own = f'path = "{model}"\nenvironment = {{GLIBC_TUNABLES = "glibc.malloc.hugetlb=0"}}'
    with serving(tmp_path, config=f"[models.holder]\n{own}\n") as server:
        found = held_by(server)

    assert found == {"huge": 0, "said": "glibc.malloc.hugetlb=0"}


NOTED = """
import json, os, re, resource
from pathlib import Path

held = bytearray({held})  # never freed: what is freed once teaches the library what to keep
for place in range(0, {held}, 4096):
    held[place] = 1

def use():
    buffers = [bytearray(b"x" * 600_000) for _ in range(8)]

seen = []

def predict(items):
    use()
    before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
    use()
    seen.append(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
    huge = int(re.search(r"AnonHugePages: +([0-9]+) kB", Path("/proc/self/smaps_rollup").read_text())[1])
    noted = {{"huge": 1024 * huge, "said": os.environ["GLIBC_TUNABLES"], "faults": min(seen)}}
    Path("{noted}").write_text(json.dumps(noted))
    return [item["value"] for item in items]
"""


@pytest.mark.parametrize(
    "tool", [["profile", "--batch-sizes", "1", "--time-limit", "2s"], ["check"]], ids=lambda t: t[0]
)
def test_so_it_does_without_a_server(tmp_path: Path, tool: list[str]) -> None:
    if given(3 * HELD) < 2 * HELD:
        pytest.skip("the system has few huge pages free now")
    file, noted = tmp_path / "noting.py", tmp_path / "noted.json"
    file.write_text(NOTED.format(held=HELD, noted=noted))
    inputs = [word for value in (1, 2, 3) for word in ("-i", json.dumps({"value": value}))]

    command = [*SHOAL, tool[0], str(file), *tool[1:], *inputs]
    done = subprocess.run(command, cwd=tmp_path, capture_output=True, text=True, timeout=60, check=False)

    assert done.returncode == 0, done.stdout + done.stderr
    found = json.loads(noted.read_text())
    assert found["said"] == "glibc.malloc.hugetlb=1"
    assert found["huge"] > HELD / 2
    assert found["faults"] == 0  # what was freed has stayed
