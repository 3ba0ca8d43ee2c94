"""Every block of Python in docs/python-api.md, each run as a program of its own."""

import re
import signal
import subprocess
import sys
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
BLOCKS = re.findall(r"^```python\n(.*?)^```$", (ROOT / "docs" / "python-api.md").read_text(), re.MULTILINE | re.DOTALL)
SERVES = [block for block in BLOCKS if "shoal.serve(" in block]
ENDS = [block for block in BLOCKS if block not in SERVES]


def command(tmp_path: Path, block: str) -> list[str]:
    program = tmp_path / "snippet.py"
    program.write_text(block)
    return [sys.executable, "-W", "error", str(program)]


@pytest.mark.parametrize("block", ENDS, ids=[f"block-{BLOCKS.index(block)}" for block in ENDS])
def test_a_block_of_the_guide_does_what_it_says(block: str, tmp_path: Path) -> None:
    done = subprocess.run(command(tmp_path, block), cwd=ROOT, capture_output=True, text=True, timeout=60)
    assert done.returncode == 0, done.stderr


def test_the_guide_serves_and_stops_when_told(tmp_path: Path) -> None:
    (block,) = SERVES
    block = block.replace("port=8080", "port=0, management_port=0, metrics_port=0")
    with subprocess.Popen(command(tmp_path, block), cwd=ROOT, stdout=subprocess.PIPE, text=True) as server:
        assert server.stdout is not None
        assert server.stdout.readline() == "Model server started.\n"
        server.send_signal(signal.SIGTERM)
        assert server.wait(20) == 0


def test_the_guide_has_a_block_for_each_of_its_parts() -> None:
    assert len(BLOCKS) >= 8
    for name in ("@shoal.batched", ".aio(", "shoal.serve(", "run_handler(", "serving(", "FakeClock("):
        assert any(name in block for block in BLOCKS), name
