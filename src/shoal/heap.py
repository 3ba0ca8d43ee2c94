"""Memory from the C library: what a process frees stays with it for the next request, up to a limit.

Left alone, the library gives large buffers back to the system as soon as they are free, and every page of the next one
is faulted in again: for bodies of some hundred kilobytes that costs more than copying them.
"""

import contextlib
import ctypes
import sys

TRIM_THRESHOLD, MMAP_THRESHOLD = -1, -3  # the library's numbers for the two settings
LARGEST_KEPT = 32 * 2**20  # bytes of one buffer; the library allows no more
FRONT = 32 * 2**20
WORKER = 64 * 2**20


def keep(size: int) -> bool:
    """Keep so many free bytes; says whether this system can."""
    if sys.platform != "linux":
        return False
    with contextlib.suppress(AttributeError, OSError):  # another library than glibc
        mallopt = ctypes.CDLL(None).mallopt
        return bool(mallopt(MMAP_THRESHOLD, min(size, LARGEST_KEPT)) and mallopt(TRIM_THRESHOLD, size))
    return False
