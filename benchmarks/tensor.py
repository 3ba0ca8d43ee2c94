"""KServe v2 tensors over HTTP and gRPC: Shoal, Triton's Python backend and MLServer give them back, interleaved.

    python -m benchmarks.tensor             # needs wrk, h2load and the other servers: benchmarks.echo --install
    python -m benchmarks.tensor --servers shoal,triton --rounds 1 --cases grpc-large

Shoal and Triton run the same model.py from the same repository. FP32, 16 values and 150,000 (600 KB). Over HTTP as JSON
and as bytes behind the JSON; MLServer takes only JSON there. CPU time is that of all of a server's processes.
"""

import argparse
import contextlib
import json
import os
import random
import signal
import statistics
import struct
import subprocess
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator, Sequence
from dataclasses import asdict, dataclass, field
from pathlib import Path

import grpc

from benchmarks.driving import Load, cpu_seconds, family, h2load, memory, need, wrk
from benchmarks.report import about, lines_of, plot_bars, spread, table, write
from shoal.frontend.grpc.proto import grpc_service_pb2 as messages

PEERS = Path(__file__).parent / "peers"
HOME = Path(os.environ.get("PEERS_HOME", "~/.cache/peers")).expanduser()
TITLES = {"shoal": "Shoal", "triton": "Triton, Python backend", "mlserver": "MLServer"}
VENVS = {"triton": "pytriton"}
SIZES = {"small": 16, "large": 150_000}
CASES = {
    "json-small": "HTTP, JSON, 16 FP32",
    "http-small": "HTTP, bytes, 16 FP32",
    "http-large": "HTTP, bytes, 150,000 FP32 (600 KB)",
    "grpc-small": "gRPC, 16 FP32",
    "grpc-large": "gRPC, 150,000 FP32 (600 KB)",
}
SHAPES = {1: (1, 1), 8: (2, 4), 64: (4, 16)}  # clients at once -> connections of gRPC, streams of each
METHOD = "/inference.GRPCInferenceService/ModelInfer"


@dataclass(frozen=True)
class Row:
    """One round of one server in one case at one level."""

    server: str
    case: str
    clients: int
    round: int
    cpu_us: float
    load: Load


@dataclass
class Server:
    """A server that runs."""

    name: str
    process: subprocess.Popen[bytes]
    port: int
    memory: tuple[int, int] = (0, 0)
    refuses: set[str] = field(default_factory=set)  # cases


def main() -> None:
    """Run the rounds, keep the tables; what was measured is kept when it is interrupted."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--servers", default="shoal,triton,mlserver", help="comma-separated")
    parser.add_argument("--cases", default=",".join(CASES), help="comma-separated")
    parser.add_argument("--clients", default="1,8,64", help="comma-separated, of " + ", ".join(map(str, SHAPES)))
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=float, default=2.0, help="of each measurement")
    parser.add_argument("--name", default="tensor", help="of the files under benchmarks/out")
    args = parser.parse_args()
    need("wrk", "h2load")
    clients = [int(number) for number in args.clients.split(",")]
    rows: list[Row] = []
    with contextlib.ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="tensor-")))
        make_bodies(folder)
        servers = [stack.enter_context(running(name, folder)) for name in args.servers.split(",")]
        try:
            measure(servers, args.cases.split(","), clients, args.rounds, args.seconds, folder, rows)
        except KeyboardInterrupt:
            print("interrupted; what is there is kept", file=sys.stderr)
        if rows:
            keep(args.name, rows, servers, clients, args.seconds)


# Bodies


def make_bodies(folder: Path) -> None:
    """Write every request to a file."""
    for size, count in SIZES.items():
        values = [0.5 + number % 97 for number in range(count)]
        raw = struct.pack(f"<{count}f", *values)
        tensor = {"name": "IN", "datatype": "FP32", "shape": [1, count]}
        (folder / f"json-{size}").write_text(json.dumps({"inputs": [{**tensor, "data": values}]}))
        head = json.dumps(
            {
                "inputs": [{**tensor, "parameters": {"binary_data_size": len(raw)}}],
                "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}],
            }
        ).encode()
        (folder / f"http-{size}").write_bytes(head + raw)
        (folder / f"http-{size}.head").write_text(str(len(head)))
        message = messages.ModelInferRequest(model_name="m", raw_input_contents=[raw])
        message.inputs.add(name="IN", datatype="FP32", shape=[1, count])
        text = message.SerializeToString()
        (folder / f"grpc-{size}").write_bytes(b"\0" + len(text).to_bytes(4, "big") + text)


def request_of(server: Server, case: str, folder: Path) -> tuple[Path, dict[str, str]]:
    """Give the file and the headers of a case over HTTP, in the smallest form that the server takes."""
    size = case.partition("-")[2]
    if case.startswith("json") or server.name == "mlserver":
        return folder / f"json-{size}", {"Content-Type": "application/json"}
    length = (folder / f"http-{size}.head").read_text()
    return folder / f"http-{size}", {
        "Content-Type": "application/octet-stream",
        "Inference-Header-Content-Length": length,
    }


# Servers


@contextlib.contextmanager
def running(name: str, folder: Path) -> Iterator[Server]:
    """Start a server as the peers' harness does, and wait until it answers every case rightly."""
    port = random.randrange(20_000, 30_000, 10)
    run = folder / name
    run.mkdir()
    own = {
        "PEERS_HOME": str(HOME),
        "PEERS_VENV": str(HOME / VENVS.get(name, name)),
        "PEERS_SHOAL_VENV": sys.prefix,
        "PEERS_ASSETS": str(HOME / "assets"),
        "PEERS_COMMON": str(PEERS / "common"),
        "WORKLOAD": "tensor",
        "PORT": str(port),
        "MAX_BATCH": "32",
        "DELAY_MS": "0",
        "PARALLEL": "0",
        "RUN_DIR": str(run),
        "OMP_NUM_THREADS": "1",
        "MKL_NUM_THREADS": "1",
    }
    log = run / "server.log"
    print(f"starting {TITLES[name]} ...", file=sys.stderr, flush=True)
    with log.open("wb") as output:
        process = subprocess.Popen(
            ["bash", str(PEERS / "peers" / name / "start.sh")],
            cwd=run,
            env={**os.environ, **own},
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    server = Server(name, process, port)
    try:
        wait(server, folder, log)
        server.memory = memory(family(process.pid))
        yield server
    finally:
        stop(server)


def wait(server: Server, folder: Path, log: Path) -> None:
    """Wait for the first right answer, then ask for one of each kind."""
    end = time.monotonic() + 120
    while True:
        try:
            check(server, "json-small", folder)
            break
        except OSError as error:
            if server.process.poll() is not None or time.monotonic() > end:
                sys.exit(f"{server.name} does not answer: {error}\n{log.read_text(errors='replace')[-3000:]}")
            time.sleep(0.2)
    for case in CASES:
        check(server, case, folder)


def check(server: Server, case: str, folder: Path) -> None:
    """One answer must be the tensor that was sent."""
    size = case.partition("-")[2]
    sent = (folder / f"grpc-{size}").read_bytes()[-4 * SIZES[size] :]
    if case.startswith("grpc"):
        with grpc.insecure_channel(
            f"127.0.0.1:{server.port + 1}", options=[("grpc.max_receive_message_length", -1)]
        ) as channel:
            call = channel.unary_unary(METHOD, response_deserializer=messages.ModelInferResponse.FromString)
            got = call((folder / case).read_bytes()[5:], timeout=30).raw_output_contents
            answer = got[0] if got else b""
    else:
        body, headers = request_of(server, case, folder)
        url = f"http://127.0.0.1:{server.port}/v2/models/m/infer"
        with urllib.request.urlopen(urllib.request.Request(url, body.read_bytes(), headers), timeout=30) as response:
            text, length = response.read(), response.headers.get("Inference-Header-Content-Length")
        if length is None:
            values = json.loads(text)["outputs"][0]["data"]
            answer = struct.pack(f"<{len(values)}f", *values)
        else:
            answer = text[int(length) :]
    if answer != sent and not (case.startswith("grpc") and server.name == "mlserver"):  # which answers in its own form
        sys.exit(f"{server.name} does not give back what it is sent: {case}")


def stop(server: Server) -> None:
    """End a server and whatever it started."""
    for number in (signal.SIGTERM, signal.SIGKILL):
        members = family(server.process.pid)
        for pid in members:
            with contextlib.suppress(OSError):
                os.kill(pid, number)
        with contextlib.suppress(subprocess.TimeoutExpired):
            server.process.wait(10)


# Rounds


def measure(
    servers: Sequence[Server],
    cases: Sequence[str],
    clients: Sequence[int],
    rounds: int,
    seconds: float,
    folder: Path,
    rows: list[Row],
) -> None:
    """Every server in every case, in turns."""
    for number in range(rounds):
        for case in cases:
            for at_once in clients:
                for server in servers:
                    pids = family(server.process.pid)
                    try:
                        if not number:
                            drive(server, case, at_once, 1.0, folder)  # warm
                            settle(pids)
                        before = cpu_seconds(pids)
                        load = drive(server, case, at_once, seconds, folder)
                    except (RuntimeError, subprocess.CalledProcessError) as error:  # the others go on
                        print(
                            f"{server.name} failed at {case}, {at_once} clients: {error}", file=sys.stderr, flush=True
                        )
                        continue
                    cpu = (cpu_seconds(pids) - before) / max(1, load.requests) * 1e6
                    rows.append(Row(server.name, case, at_once, number, cpu, load))
                    settle(pids)
                    print(
                        f"round {number + 1} {case:11} {at_once:3} {server.name:9} {load.rps:9.0f}/s {cpu:8.0f} us "
                        f"p99 {load.p99_ms:7.2f} ms, {load.errors} errors",
                        file=sys.stderr,
                        flush=True,
                    )


def settle(pids: Sequence[int]) -> None:
    """Wait until a server is through with what its clients left behind."""
    end = time.monotonic() + 20
    while time.monotonic() < end:
        before = cpu_seconds(pids)
        time.sleep(0.2)
        if cpu_seconds(pids) - before < 0.03:
            return


def drive(server: Server, case: str, clients: int, seconds: float, folder: Path) -> Load:
    """One measurement."""
    if case.startswith("grpc"):
        least = 4 * SIZES[case.partition("-")[2]]
        return h2load(
            f"http://127.0.0.1:{server.port + 1}{METHOD}", folder / case, *SHAPES[clients], seconds, answer=least
        )
    body, headers = request_of(server, case, folder)
    return wrk(f"http://127.0.0.1:{server.port}/v2/models/m/infer", body, headers, clients, seconds)


# Report


def keep(name: str, rows: Sequence[Row], servers: Sequence[Server], clients: Sequence[int], seconds: float) -> None:
    """Write the tables, the data and the picture."""
    text = [about("KServe v2 identity", "grpcio", "msgspec", "uvloop")]
    text += [
        f"Each measurement {seconds:g} s, servers in turns; medians (lowest to highest) of the rounds. wrk -t1 and "
        "h2load -t1 on the same machine; gRPC's clients are streams on 1, 2 and 4 connections.\n"
    ]
    series: dict[str, list[float]] = {TITLES[server.name]: [] for server in servers}
    groups = []
    for case, title in CASES.items():
        cells = []
        for at_once in clients:
            group = {
                s.name: [r for r in rows if (r.server, r.case, r.clients) == (s.name, case, at_once)] for s in servers
            }
            if not group[servers[0].name]:
                continue
            groups.append(f"{case} {at_once}")
            for server, found in group.items():
                if not found:
                    series[TITLES[server]].append(0.0)
                    cells.append([str(at_once), TITLES[server], *["-"] * 6])
                    continue
                own = statistics.median(row.load.rps for row in found)
                first = statistics.median(row.load.rps for row in group[servers[0].name])
                series[TITLES[server]].append(own)
                cells.append(
                    [
                        str(at_once),
                        TITLES[server],
                        spread([row.load.rps for row in found]),
                        spread([row.cpu_us for row in found]),
                        f"{statistics.median(row.load.p50_ms for row in found):.2f}",
                        f"{statistics.median(row.load.p99_ms for row in found):.2f}",
                        str(sum(row.load.errors for row in found)),
                        f"{first / own:.2f}" if own else "-",
                    ]
                )
        if cells:
            head = ["clients", "server", "requests/s", "CPU us per request", "p50 ms", "p99 ms", "errors"]
            text += [f"### {title}\n", table([*head, f"{TITLES[servers[0].name]} is ahead by"], cells)]
    idle = [[TITLES[s.name], *(f"{size / 2**20:.0f}" for size in s.memory)] for s in servers]
    text += ["### Memory before the load\n", table(["server", "RSS MiB", "PSS MiB"], idle)]
    write(name, lines_of(text), json.dumps([asdict(row) for row in rows], indent=1))
    plot_bars(name, series, groups, is_log=True)
    print(lines_of(text))


if __name__ == "__main__":
    main()
