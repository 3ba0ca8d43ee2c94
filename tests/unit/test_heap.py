"""The C library's settings: a process that frees large buffers keeps their pages for the next."""

import subprocess
import sys

import pytest

from shoal import heap

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


@pytest.mark.parametrize(
    ("said", "asked"),
    [
        ("", "glibc.malloc.hugetlb=1"),
        ("glibc.malloc.check=1", "glibc.malloc.check=1:glibc.malloc.hugetlb=1"),
        ("glibc.malloc.hugetlb=0", "glibc.malloc.hugetlb=0"),
    ],
)
def test_huge_pages_are_asked_for_where_nothing_is_said_of_them(said: str, asked: str) -> None:
    assert heap.with_huge_pages(said) == asked


@pytest.mark.skipif(sys.platform != "linux", reason="the settings are glibc's")
@pytest.mark.parametrize(
    ("environment", "shares"),
    [
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1"}, True),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}, False),
        ({}, False),
        ({"GLIBC_TUNABLES": "glibc.malloc.arena_max=4:glibc.malloc.hugetlb=1"}, False),
        ({"GLIBC_TUNABLES": "glibc.malloc.hugetlb=1", "MALLOC_ARENA_MAX": "4"}, False),
    ],
)
def test_threads_share_a_heap_for_its_huge_pages_unless_somebody_chose_how_many(
    environment: dict[str, str], shares: bool
) -> None:
    code = "from shoal import heap; print(heap.share())"
    done = subprocess.run([sys.executable, "-c", code], env=environment, check=True, capture_output=True, text=True)

    assert done.stdout == f"{shares}\n"
