"""What a unary call costs: one byte-echo service on our HTTP/2 connection and on grpc.aio, in one run, interleaved.

    python -m benchmarks.grpc_echo               # needs h2load (Debian: nghttp2-client) and grpcio
    python -m benchmarks.grpc_echo --size 100000 --seconds 5

Load by `h2load`. CPU time is the server process's own, user and system; requests per second are what h2load counted.
On a machine that does other work at the same time, trust the CPU time, and give `--nice -15`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import re
import shutil
import signal
import statistics
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from dataclasses import asdict, dataclass
from importlib.metadata import version
from pathlib import Path

import grpc
import grpc.aio
import uvloop

from benchmarks.report import machine, table, write
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.http2.server import Http2Listener
from shoal.frontend.rpc import Call

METHOD = "/bench.Echo/Call"
SHAPES = ((1, 1), (4, 16), (16, 16))  # connections, streams of each
TICK = os.sysconf("SC_CLK_TCK")

_requests = re.compile(r"requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed")
_rate = re.compile(r"finished in [\d.]+\w*, ([\d.]+) req/s")


@dataclass(frozen=True)
class Figures:
    """One round of one server at one shape."""

    server: str
    connections: int
    streams: int
    rps: float
    cpu_us: float


def main() -> None:
    """Run the rounds, keep the table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=3.0, help="of each measurement")
    parser.add_argument("--size", type=int, default=64, help="bytes of the message")
    parser.add_argument("--nice", type=int, default=0, help="priority of servers and load, as -15 (root)")
    parser.add_argument("--serve", choices=list(SERVERS), help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        SERVERS[args.serve]()
        return
    if shutil.which("h2load") is None:
        sys.exit("h2load is not installed; it is in the Debian package nghttp2-client")
    if args.nice:
        os.setpriority(os.PRIO_PROCESS, 0, args.nice)  # what is started from here inherits it
    figures = measure(args.rounds, args.seconds, args.size)
    text = report(figures, args.rounds, args.seconds, args.size)
    name = "grpc-echo" if args.size == 64 else f"grpc-echo-{args.size}"
    write(name, text, json.dumps([asdict(f) for f in figures], indent=1))
    print(text)


def measure(rounds: int, seconds: float, size: int) -> list[Figures]:
    """Every server at every shape, in turns."""
    figures = []
    with contextlib.ExitStack() as stack:
        body = Path(stack.enter_context(tempfile.TemporaryDirectory())) / "body"
        body.write_bytes(b"\0" + size.to_bytes(4, "big") + bytes(size))
        servers = {name: stack.enter_context(running(name)) for name in SERVERS}
        for _, address in servers.values():
            check(address, size)
        for number in range(rounds):
            for connections, streams in SHAPES:
                for name, (process, address) in servers.items():
                    load(address, body, connections, streams, 0.3)  # warm
                    before = cpu_seconds(process.pid)
                    rps, done = load(address, body, connections, streams, seconds)
                    cpu = (cpu_seconds(process.pid) - before) / done * 1e6
                    figures.append(Figures(name, connections, streams, rps, cpu))
                    print(f"round {number + 1}: {figures[-1]}", file=sys.stderr)
    return figures


@contextlib.contextmanager
def running(name: str) -> Iterator[tuple[subprocess.Popen[str], str]]:
    """A server in a process of its own; says where it listens."""
    command = [sys.executable, "-m", "benchmarks.grpc_echo", "--serve", name]
    with subprocess.Popen(command, stdout=subprocess.PIPE, text=True) as process:
        assert process.stdout is not None
        try:
            yield process, process.stdout.readline().strip()
        finally:
            process.terminate()


def check(address: str, size: int) -> None:
    """A real client gets its bytes back, before anything is measured."""
    with grpc.insecure_channel(address) as channel:
        text = os.urandom(min(size, 4 * 2**20 - 1024))
        if channel.unary_unary(METHOD)(text, timeout=10) != text:
            sys.exit(f"the server at {address} does not echo")


def load(address: str, body: Path, connections: int, streams: int, seconds: float) -> tuple[float, int]:
    """Run h2load; says requests per second, and how many there were."""
    head = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    shape = ["-c", str(connections), "-m", str(streams), "-t", "1", "-D", f"{seconds * 1000:.0f}ms"]
    command = ["h2load", *shape, "-d", str(body), *head, f"http://{address}{METHOD}"]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found, rate = _requests.search(out), _rate.search(out)
    if found is None or rate is None or found[2] != found[3] or int(found[4]):
        sys.exit(f"h2load failed:\n{out}")
    return float(rate[1]), int(found[2])


def cpu_seconds(pid: int) -> float:
    """The CPU time a process has used."""
    fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def report(figures: list[Figures], rounds: int, seconds: float, size: int) -> str:
    """Write the table: medians, and the spread in brackets."""

    def cell(values: list[float], digits: int) -> str:
        low, middle, high = (f"{v:,.{digits}f}" for v in (min(values), statistics.median(values), max(values)))
        return f"{middle} ({low} to {high})"

    rows = []
    for connections, streams in SHAPES:
        of = {
            name: [f for f in figures if (f.server, f.connections, f.streams) == (name, connections, streams)]
            for name in SERVERS
        }
        medians = {name: statistics.median(f.rps for f in found) for name, found in of.items()}
        rows += [
            [
                f"{connections} x {streams}",
                name,
                cell([f.rps for f in found], 0),
                cell([f.cpu_us for f in found], 1),
                f"{medians[name] / medians['grpc.aio']:.1f}",
            ]
            for name, found in of.items()
        ]
    head = ("connections x streams", "server", "requests/s", "CPU us per call", "requests/s against grpc.aio")
    h2load = subprocess.run(["h2load", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    about = (
        f"Unary echo of {size} bytes over gRPC: {machine()}; {time.strftime('%Y-%m-%d')}; grpcio {version('grpcio')}, "
        f"uvloop {version('uvloop')}, {h2load}. {rounds} rounds of {seconds:g} s each, servers in turns; medians "
        "(lowest to highest).\n\n"
    )
    return about + table(head, rows)


# The servers


def serve_shoal() -> None:
    """The service on our own connection."""

    def echo(call: Call) -> None:
        got: list[bytes] = []

        def end() -> None:
            call.send(got[0])
            call.finish()

        call.on_message = got.append
        call.on_end = end

    async def serve() -> None:
        listener = Http2Listener({METHOD: echo}, Http2Limits(), host="127.0.0.1", port=0, ssl_context=None)
        await listener.start()
        print(listener.address, flush=True)
        await until_told()
        await listener.drain(1.0)

    uvloop.run(serve())


def serve_grpc_aio() -> None:
    """The same service on grpc.aio: bytes in, bytes out, no protobuf."""

    async def echo(request: bytes, context: object) -> bytes:
        return request

    async def serve() -> None:
        service, method = METHOD.strip("/").split("/")
        handler = grpc.unary_unary_rpc_method_handler(echo)
        server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
        server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
        port = server.add_insecure_port("127.0.0.1:0")
        await server.start()
        print(f"127.0.0.1:{port}", flush=True)
        await until_told()
        await server.stop(1.0)

    uvloop.run(serve())


async def until_told() -> None:
    """Wait for SIGTERM."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    await told.wait()


SERVERS: dict[str, Callable[[], None]] = {"shoal": serve_shoal, "grpc.aio": serve_grpc_aio}


if __name__ == "__main__":
    main()
