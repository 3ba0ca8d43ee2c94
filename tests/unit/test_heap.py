"""The C library's settings: a process that frees large buffers keeps their pages for the next."""

import subprocess
import sys

import pytest

FAULTS = """
import resource, sys
from shoal import heap
if sys.argv[1] == "keep":
    assert heap.keep(heap.WORKER)
def use():
    buffers = [bytearray(600_000) for _ in range(8)]
    for buffer in buffers:
        buffer[::4096] = bytes(len(range(0, len(buffer), 4096)))
use()
before = resource.getrusage(resource.RUSAGE_SELF).ru_minflt
for _ in range(20):
    use()
print(resource.getrusage(resource.RUSAGE_SELF).ru_minflt - before)
"""


def faults(how: str) -> int:
    return int(subprocess.run([sys.executable, "-c", FAULTS, how], check=True, capture_output=True, text=True).stdout)


@pytest.mark.skipif(sys.platform != "linux", reason="the settings are glibc's")
def test_pages_that_were_freed_are_not_faulted_in_again() -> None:
    assert faults("keep") * 10 < faults("leave")
