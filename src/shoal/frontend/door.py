"""The door of a listener: who waits outside is let in at once, not one in each turn of the loop.

libuv accepts one connection of a listening socket in a turn. A turn in which a hundred photographs are received takes
many milliseconds: a thousand clients that come together would wait for seconds, while those inside are served.
"""

import asyncio
import os
import socket
from collections.abc import Callable, Iterable
from typing import Any, Final

MOST: Final = 256  # let in by one call, so that those inside get their turn

Make = Callable[[], asyncio.BaseProtocol]


class Door:
    """Makes the protocol of a connection that the loop has accepted, and first lets in all who wait behind it."""

    def __init__(self, make: Make, options: dict[str, Any]) -> None:
        self._make = make
        self._options = options  # of a connection: TLS, and how long its handshake may take
        self._sockets: list[socket.socket] = []
        self._entering: set[asyncio.Task[object]] = set()

    def __call__(self) -> asyncio.BaseProtocol:
        """The protocol of the one that the loop has accepted."""
        for sock in self._sockets:
            self._let_in(sock)
        return self._make()

    def open(self, numbers: Iterable[int]) -> None:
        """Let in who waits at these listening sockets too, which the loop knows by their descriptors."""
        for number in numbers:
            sock = socket.socket(fileno=os.dup(number))
            sock.setblocking(False)
            self._sockets.append(sock)

    def close(self) -> None:
        """Let nobody in any more; who is inside stays."""
        for sock in self._sockets:
            sock.close()
        self._sockets.clear()

    def _let_in(self, sock: socket.socket) -> None:
        loop = asyncio.get_running_loop()
        for _ in range(MOST):
            try:
                connection, _address = sock.accept()
            except OSError:  # nobody waits, or there is no room, which the loop says when it accepts
                return
            entering = loop.create_task(self._enter(loop, connection))
            self._entering.add(entering)
            entering.add_done_callback(self._entering.discard)

    async def _enter(self, loop: asyncio.AbstractEventLoop, connection: socket.socket) -> None:
        try:
            await loop.connect_accepted_socket(self._make, connection, **self._options)
        except OSError:  # it has left already, or cannot speak TLS
            connection.close()
