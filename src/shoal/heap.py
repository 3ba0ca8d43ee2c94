"""Memory of a process: what it frees stays with it for the next request, and garbage is looked for seldom.

Left alone, the C library gives large buffers back to the system as soon as they are free, and every page of the next
one is faulted in again: for bodies of some hundred kilobytes that costs more than copying them. And Python looks for
cycles among the new objects whenever there are 700 more of them, which a few dozen requests on their way are already.
"""

import contextlib
import ctypes
import gc
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # the library's numbers for the two settings
LARGEST_KEPT = 32 * 2**20  # bytes of one buffer; the library allows no more
FRONT = 32 * 2**20
WORKER = 64 * 2**20
NEW_OBJECTS = 10_000  # a thousand requests on their way


def keep(size: int) -> bool:
    """Keep so many free bytes; says whether this system can."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(AttributeError, OSError):  # another library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(MMAP_THRESHOLD, min(size, LARGEST_KEPT)) and mallopt(TRIM_THRESHOLD, size))
    return False


def collect_seldom() -> None:
    """Look for cycles when there are so many new objects; for a process in which a request leaves none."""
    gc.set_threshold(NEW_OBJECTS)
