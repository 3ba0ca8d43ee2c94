"""A handler that answers each item with its own text reversed, and comes to harm by some of them."""

import ctypes
import os
import resource
import signal
import time

ROOM = 512 * 2**20  # bytes that this process may take beyond what it has; the machine is not to be hurt
FIT = 8  # large items that there is memory for at once


def predict(items: list[bytes | str]) -> list[str]:
    texts = [item if isinstance(item, str) else bytes(item).decode() for item in items]
    if sum(text.startswith("large") for text in texts) > FIT:
        raise MemoryError
    return [act(text) for text in texts]


def act(item: str) -> str:
    match item.partition(" ")[0]:
        case "raise":
            raise RuntimeError("a bad item")
        case "segfault":
            ctypes.memset(0, 1, 1)
        case "hang":
            time.sleep(600)
        case "exhaust":
            limit_memory()
            bytearray(64 * ROOM)
        case "native":  # a library that does not look whether it got what it asked for
            limit_memory()
            libc = ctypes.CDLL(None)
            libc.malloc.restype = ctypes.c_void_p
            ctypes.memset(libc.malloc(ctypes.c_size_t(64 * ROOM)) or 0, 1, 4096)
        case "killed":  # what the kernel does to a process that took too much
            os.kill(os.getpid(), signal.SIGKILL)
    return item[::-1]


def limit_memory() -> None:
    with open("/proc/self/statm") as file:
        pages = int(file.read().split()[0])
    limit = pages * os.sysconf("SC_PAGE_SIZE") + ROOM
    resource.setrlimit(resource.RLIMIT_AS, (limit, resource.getrlimit(resource.RLIMIT_AS)[1]))
