"""Memory of a process: what is freed stays with it, a model's lies in huge pages, and garbage is looked for seldom.

Left alone, the C library gives large buffers back to the system as soon as they are free, and every page of the next
one is faulted in again: for bodies of some hundred kilobytes that costs more than copying them. A model's weights and
all that is computed with them lie scattered in pages of 4 KB; in huge ones the same network is faster. And Python looks
for cycles among the new objects whenever there are 700 more of them, which a few dozen requests on their way are
already.
"""

import contextlib
import ctypes
import gc
import os
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD, ARENA_MAX = -1, -3, -8  # the library's numbers for its settings
TUNABLES = "GLIBC_TUNABLES"  # the variable with those that are read as a program starts
HUGE_PAGES = "glibc.malloc.hugetlb"
HEAPS = "MALLOC_ARENA_MAX", "glibc.malloc.arena_max"  # the words for how many heaps a program has
LARGEST_KEPT = 32 * 2**20  # bytes of one buffer; the library allows no more
FRONT = 32 * 2**20
WORKER = 64 * 2**20
NEW_OBJECTS = 10_000  # a thousand requests on their way


def keep(size: int) -> bool:
    """Keep so many free bytes; says whether this system can."""
    return _set(MMAP_THRESHOLD, min(size, LARGEST_KEPT)) and _set(TRIM_THRESHOLD, size)


def share() -> bool:
    """Let all threads take memory from one heap, since it alone gets huge pages; says whether they do.

    Not where no such pages are asked for, nor where the number of heaps is somebody's choice.
    """
    variable, tunable = HEAPS
    said = os.environ.get(TUNABLES, "")
    if f"{HUGE_PAGES}=1" not in said or tunable in said or variable in os.environ:
        return False
    return _set(ARENA_MAX, 1)


def with_huge_pages(tunables: str) -> str:
    """Add to a program's tunables that it asks for huge pages, unless they say something of that."""
    if HUGE_PAGES in tunables:
        return tunables
    return f"{tunables}:{HUGE_PAGES}=1" if tunables else f"{HUGE_PAGES}=1"


def collect_seldom() -> None:
    """Look for cycles when there are so many new objects; for a process in which a request leaves none."""
    gc.set_threshold(NEW_OBJECTS)


def _set(setting: int, value: int) -> bool:
    if sys.platform == "linux":
        with contextlib.suppress(AttributeError, OSError):  # another library than glibc
            return bool(ctypes.CDLL(None).mallopt(setting, value))
    return False
