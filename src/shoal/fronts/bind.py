"""Binding: sockets that several processes accept from, made by the core so that an address in use is its own error."""

import os
import socket
from collections.abc import Sequence

from shoal.frontend.listen import remove_stale_socket


def bound(host: str | None, port: int, count: int) -> list[list[socket.socket]]:
    """Bind `count` sockets to each address of a host, all on one port; an address in use is an OSError.

    The first is bound alone, as nobody else may be there; only then may the others join it.
    """
    sockets: list[list[socket.socket]] = []
    try:
        found = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM, flags=socket.AI_PASSIVE)
        for family, kind, protocol, _, address in dict.fromkeys(found):
            sockets.append([])
            there: tuple[object, ...] = address
            for number in range(count):
                sock = socket.socket(family, kind, protocol)
                sockets[-1].append(sock)
                there = _bind(sock, there, is_first=number == 0)
    except BaseException:
        close(sockets)
        raise
    return sockets


def bound_path(path: str, count: int) -> list[list[socket.socket]]:
    """Bind a Unix socket; all processes accept from the one."""
    remove_stale_socket(path)
    sock = socket.socket(socket.AF_UNIX, socket.SOCK_STREAM)
    try:
        sock.bind(path)
    except OSError:
        sock.close()
        raise
    return [[sock] * count]


def close(sockets: Sequence[Sequence[socket.socket]]) -> None:
    """Close them here; a process that has one of them keeps it."""
    for group in sockets:
        for sock in group:
            sock.close()


def _bind(sock: socket.socket, address: tuple[object, ...], *, is_first: bool) -> tuple[object, ...]:
    """Bind one; gives the address with the port that it has."""
    sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
    if sock.family == socket.AF_INET6:
        sock.setsockopt(socket.IPPROTO_IPV6, socket.IPV6_V6ONLY, 1)
    if not is_first:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    try:
        sock.bind(address)
    except OSError as error:
        raise OSError(
            error.errno, f"error while attempting to bind on address {address!r}: {os.strerror(error.errno or 0)}"
        ) from None
    if is_first:
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
    return sock.getsockname()  # type: ignore[no-any-return]  # a tuple of what the family has
