"""Answers the same 80 bytes to whatever comes, as fast as Python can: what is left is the load generator's own work.

python -m benchmarks.responder    (prints its port)
"""

import asyncio

import uvloop

ANSWER = b"HTTP/1.1 200 OK\r\nContent-Type: text/plain\r\nContent-Length: 15\r\n\r\nnothing at all\n"


class Responder(asyncio.Protocol):
    """One connection; every piece of data counts as a request, as it does from a load with one at a time."""

    def connection_made(self, transport: asyncio.BaseTransport) -> None:
        """Keep the way back."""
        self._transport: asyncio.Transport = transport  # type: ignore[assignment]  # a stream's

    def data_received(self, data: bytes) -> None:
        """Answer."""
        self._transport.write(ANSWER)


async def serve() -> None:
    """Answer until the process is ended."""
    listening = await asyncio.get_running_loop().create_server(Responder, "127.0.0.1", 0)
    print(f"port {listening.sockets[0].getsockname()[1]}", flush=True)
    await listening.serve_forever()


if __name__ == "__main__":
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        runner.run(serve())
