"""Lead: two threads that read the commands in turn.

Where one thread reads a batch and another runs it, the second has to wake first, which takes a lone request a tenth of
a millisecond. So while it has nothing to run, the thread of inference waits for the commands itself. The thread that
otherwise reads them rests meanwhile, and takes over as soon as there is something to run.
"""

import os
import select
import socket
import threading
from collections.abc import Callable


def never() -> bool:
    """Let nobody read who asks."""
    return False


class Lead:
    """Whose turn it is to read from a socket.

    `read` reads until there is something to run, and begins with it. `grant` is asked by the reading thread, whether
    the other may read now, and tells it so.
    """

    def __init__(self, sock: socket.socket, read: Callable[[], None]) -> None:
        self.grant: Callable[[], bool] = never
        self.may_ask = False  # the last batch was one after which the thread of inference asks
        self._read = read
        self._bell, self._rope = os.pipe()
        self._has_rung = False
        self._ready = select.poll()
        self._ready.register(sock, select.POLLIN)
        self._ready.register(self._bell, select.POLLIN)
        self._turn = threading.Lock()
        self._turn.acquire()

    def wait(self) -> bool:
        """Wait for something to read; False where the other thread has asked, and read meanwhile if it could.

        Where nobody will ask, to read is to wait: in two calls it would wake on another processor.
        """
        if not self.may_ask or all(file != self._bell for file, _ in self._ready.poll()):
            return True
        os.read(self._bell, 1)
        self._has_rung = False
        if self.grant():
            self._turn.acquire()
        return False

    def ask(self) -> None:
        """Ask to read, on the thread of inference."""
        if not self._has_rung:
            self._has_rung = True
            os.write(self._rope, b".")

    def read(self) -> None:
        """Read, on that thread, and let the other go on."""
        try:
            self._read()
        finally:
            self._turn.release()
