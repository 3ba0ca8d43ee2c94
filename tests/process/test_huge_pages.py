"""What a model computes with lies in huge pages, on whatever thread it does; who wants that otherwise says so."""

import platform
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import Served, serving

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


@pytest.fixture
def model(tmp_path: Path) -> Iterator[Path]:
    file = tmp_path / "holder.py"
    file.write_text(MODEL.format(held=HELD))
    yield file


def held_by(server: Served) -> dict[str, Any]:
    found: dict[str, Any] = server.ask("/predictions/holder", b"x").json
    return found


def test_what_a_stage_computes_with_lies_in_huge_pages(tmp_path: Path, model: Path) -> None:
    with serving(tmp_path, str(model), environment={"GLIBC_TUNABLES": ""}) as server:
        found = held_by(server)

    assert found["said"] == "glibc.malloc.hugetlb=1"
    assert found["huge"] > HELD / 2


def test_a_model_may_ask_for_small_ones(tmp_path: Path, model: Path) -> None:
    own = f'path = "{model}"\nenvironment = {{GLIBC_TUNABLES = "glibc.malloc.hugetlb=0"}}'
    with serving(tmp_path, config=f"[models.holder]\n{own}\n") as server:
        found = held_by(server)

    assert found == {"huge": 0, "said": "glibc.malloc.hugetlb=0"}
