"""What a unary call costs: the same services on our HTTP/2 connection and on grpc.aio, in one run, interleaved.

    python -m benchmarks.grpc_echo               # needs h2load (Debian: nghttp2-client) and grpcio; about two minutes
    python -m benchmarks.grpc_echo --services echo --size 100000 --seconds 5

`echo` is a bare service of bytes; `infer` is ModelInfer of KServe v2, through the scheduler to a model in its worker
process and back. Load by `h2load`. CPU time is that of the server's processes, user and system.
On a machine that does other work at the same time, trust the CPU time, and give `--nice -15`.
"""

import argparse
import asyncio
import contextlib
import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from dataclasses import asdict, dataclass
from pathlib import Path

import grpc
import grpc.aio
import uvloop

from benchmarks.driving import cpu_seconds, family, h2load, need
from benchmarks.report import about, plot_bars, spread, table, write
from benchmarks.serving import announced
from shoal.app import App
from shoal.config.server import ServerConfig
from shoal.frontend.grpc.kserve import KServe
from shoal.frontend.grpc.proto import grpc_service_pb2 as messages
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.http2.server import Http2Listener
from shoal.frontend.rpc import Call
from tests.process.grpcio_transport import GrpcioListener
from tests.process.kserve_front import model, put_together

ECHO = "/bench.Echo/Call"
INFER = "/inference.GRPCInferenceService/ModelInfer"
TRANSPORTS = ("shoal", "grpc.aio")
SHAPES = ((1, 1), (4, 16), (16, 16))  # connections, streams of each


@dataclass(frozen=True)
class Figures:
    """One round of one service of one server at one shape."""

    service: str
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
    parser.add_argument("--size", type=int, default=64, help="bytes of the message, or of the tensor")
    parser.add_argument("--services", default="echo,infer", help="comma-separated")
    parser.add_argument("--nice", type=int, default=0, help="priority of servers and load, as -15 (root)")
    parser.add_argument("--serve", help=argparse.SUPPRESS)
    args = parser.parse_args()
    if args.serve:
        service, _, transport = args.serve.partition("/")
        uvloop.run(SERVICES[service][1](transport, args.size))
        return
    need("h2load")
    if args.nice:
        os.setpriority(os.PRIO_PROCESS, 0, args.nice)  # what is started from here inherits it
    figures: list[Figures] = []
    with contextlib.suppress(KeyboardInterrupt):  # what is there is kept
        measure(args.services.split(","), args.rounds, args.seconds, args.size, figures)
    text = report(figures, args.rounds, args.seconds, args.size)
    name = "grpc-echo" if args.size == 64 else f"grpc-echo-{args.size}"
    write(name, text, json.dumps([asdict(f) for f in figures], indent=1))
    groups = [f"{service}, {c} x {m}" for service in args.services.split(",") for c, m in SHAPES]
    series = {
        transport: [
            statistics.median(
                [
                    f.rps
                    for f in figures
                    if (f.server, f"{f.service}, {f.connections} x {f.streams}") == (transport, group)
                ]
                or [0.0]
            )
            for group in groups
        ]
        for transport in TRANSPORTS
    }
    plot_bars(name, series, groups)
    print(text)


def measure(services: list[str], rounds: int, seconds: float, size: int, figures: list[Figures]) -> None:
    """Every service of every server at every shape, in turns."""
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = {}
        for service in services:
            message = message_of(service, size)
            (folder / service).write_bytes(b"\0" + len(message).to_bytes(4, "big") + message)
            for transport in TRANSPORTS:
                log = folder / f"{service}-{transport}.log"
                running = announced(command(service, transport, size), log)
                servers[service, transport] = stack.enter_context(running)
        for (service, _), (_, address) in servers.items():
            check(service, address, size)
        for number in range(rounds):
            for connections, streams in SHAPES:
                for (service, transport), (pid, address) in servers.items():
                    url = f"http://{address}{SERVICES[service][0]}"
                    load(url, folder / service, connections, streams, 0.3)  # warm
                    pids = family(pid)
                    before = cpu_seconds(pids)
                    rps, done = load(url, folder / service, connections, streams, seconds)
                    cpu = (cpu_seconds(pids) - before) / done * 1e6
                    figures.append(Figures(service, transport, connections, streams, rps, cpu))
                    print(f"round {number + 1}: {figures[-1]}", file=sys.stderr, flush=True)


def command(service: str, transport: str, size: int) -> list[str]:
    """What serves in a process of its own, and says where."""
    return [sys.executable, "-m", "benchmarks.grpc_echo", "--serve", f"{service}/{transport}", "--size", str(size)]


def message_of(service: str, size: int) -> bytes:
    """What is sent: bytes, or a tensor of as many."""
    if service == "echo":
        return bytes(size)
    asked = messages.ModelInferRequest(model_name="plain", raw_input_contents=[bytes(size)])
    asked.inputs.add(name="IN", datatype="FP32", shape=[1, size // 4])
    return bytes(asked.SerializeToString())


def check(service: str, address: str, size: int) -> None:
    """A real client gets its bytes back, before anything is measured."""
    sent = message_of(service, size)
    with grpc.insecure_channel(address) as channel:
        got = channel.unary_unary(SERVICES[service][0])(sent, timeout=10)
    back = got if service == "echo" else messages.ModelInferResponse.FromString(got).raw_output_contents[0]
    if back != bytes(size):
        sys.exit(f"the server at {address} does not give back what it is sent")


def load(url: str, body: Path, connections: int, streams: int, seconds: float) -> tuple[float, int]:
    """Run h2load; says requests per second, and how many there were."""
    got = h2load(url, body, connections, streams, seconds)
    if got.errors or not got.requests:
        sys.exit(f"h2load counted {got.errors} errors and {got.requests} good answers of {url}")
    return got.rps, got.requests


def report(figures: list[Figures], rounds: int, seconds: float, size: int) -> str:
    """Write the table: medians, and the spread in brackets."""
    rows = []
    for service in SERVICES:
        for connections, streams in SHAPES:
            shape = (service, connections, streams)
            of = {
                name: [f for f in figures if (f.service, f.connections, f.streams) == shape and f.server == name]
                for name in TRANSPORTS
            }
            if not all(of.values()):
                continue
            medians = {name: statistics.median(f.rps for f in found) for name, found in of.items()}
            rows += [
                [
                    service,
                    f"{connections} x {streams}",
                    name,
                    spread([f.rps for f in found]),
                    spread([f.cpu_us for f in found], 1),
                    f"{medians[name] / medians['grpc.aio']:.1f}",
                ]
                for name, found in of.items()
            ]
    head = ("service", "connections x streams", "transport", "requests/s", "CPU us per call", "against grpc.aio")
    h2load = subprocess.run(["h2load", "--version"], check=True, capture_output=True, text=True).stdout.strip()
    words = (
        f"Unary calls of {size} bytes, {h2load}. {rounds} rounds of {seconds:g} s each, servers in turns; medians "
        "(lowest to highest).\n\n"
    )
    return about("gRPC transports", "grpcio", "uvloop") + "\n" + words + table(head, rows)


# The services


async def serve_echo(transport: str, size: int) -> None:
    """Bytes in, bytes out: on our own connection, and on grpc.aio as its users would write it."""
    if transport == "shoal":
        listener = Http2Listener({ECHO: echo}, Http2Limits(), host="127.0.0.1", port=0, ssl_context=None)
        await serve(listener)
    else:
        await serve_bare_grpc()


def echo(call: Call) -> None:
    """Send back what came."""
    got: list[bytes] = []

    def end() -> None:
        call.send(got[0])
        call.finish()

    call.on_message = got.append
    call.on_end = end


async def serve_bare_grpc() -> None:
    """The echo without anything of ours."""

    async def echo(request: bytes, context: object) -> bytes:
        return request

    service, method = ECHO.strip("/").split("/")
    handler = grpc.unary_unary_rpc_method_handler(echo)
    server = grpc.aio.server(options=[("grpc.max_receive_message_length", -1)])
    server.add_generic_rpc_handlers((grpc.method_handlers_generic_handler(service, {method: handler}),))
    port = server.add_insecure_port("127.0.0.1:0")
    await server.start()
    print(f"127.0.0.1:{port}", flush=True)
    await until_told()
    await server.stop(1.0)


async def serve_infer(transport: str, size: int) -> None:
    """The whole way to a model and back: the very same services on either transport."""
    config = ServerConfig(port=0, management_port=0, metrics_port=0, drain_timeout=5.0)
    app = App(config, [model("plain", "FP32", [size // 4], rows=32)])
    services = KServe(put_together(app)[0]).services()
    await app.start()
    if transport == "shoal":
        await serve(Http2Listener(services, Http2Limits(), host="127.0.0.1", port=0, ssl_context=None))
    else:
        await serve(GrpcioListener(services, host="127.0.0.1", port=0, max_message=64 * 2**20))
    await app.drain()


async def serve(listener: Http2Listener | GrpcioListener) -> None:
    """Listen until told to stop."""
    await listener.start()
    print(listener.address, flush=True)
    await until_told()
    await listener.drain(1.0)


async def until_told() -> None:
    """Wait for SIGTERM."""
    told = asyncio.Event()
    asyncio.get_running_loop().add_signal_handler(signal.SIGTERM, told.set)
    await told.wait()


SERVICES = {"echo": (ECHO, serve_echo), "infer": (INFER, serve_infer)}


if __name__ == "__main__":
    main()
