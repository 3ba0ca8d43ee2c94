"""One server under ever more connections: requests per second from 1 to 5,000 of them, and what an idle one holds.

    python -m benchmarks.connections                     # needs wrk; under four minutes
    python -m benchmarks.connections --connections 1,64,1000 --rounds 1
    python -m benchmarks.connections --frontends 4 --threads 4     # where there are cores for it

A 64-byte echo over HTTP, closed loop, every connection kept alive. "Of the best" compares a level's median with that of
the best: where it falls, there is a cliff. Many connections cost the kernel and the load generator more as well; so
where nginx is installed, one process of it that answers two bytes without reading any is measured in turn, as a
yardstick. Memory is that of the process that accepts, or of all that do and their core, before and with idle
connections.
"""

import argparse
import contextlib
import json
import shutil
import socket
import statistics
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import asdict, dataclass
from pathlib import Path

from benchmarks.driving import Load, cpu_seconds, family, fronts, memory, need, raise_file_limit, rest, wrk
from benchmarks.report import about, plot_lines, spread, table, write
from benchmarks.serving import free_port, native, started

MODEL = "def predict(items):\n    return [b'%d' % len(item) for item in items]\n"
BODY = b"0123456789abcdef" * 4
REQUEST = b"POST /predictions/echo HTTP/1.1\r\nHost: bench\r\nContent-Length: %d\r\n\r\n%b" % (len(BODY), BODY)
MANY = 1000  # connections that take a while to be made, inside the time that is measured
YARDSTICK = """
worker_processes 1; daemon off; pid {folder}/nginx.pid; error_log {folder}/nginx.log; worker_rlimit_nofile 20000;
events {{ worker_connections 10000; }}
http {{
  access_log off; keepalive_requests 1000000000;
  client_body_temp_path {folder}; proxy_temp_path {folder}; fastcgi_temp_path {folder};
  uwsgi_temp_path {folder}; scgi_temp_path {folder};
  server {{ listen 127.0.0.1:{port} backlog=8192; location / {{ return 200 "64"; }} }}
}}
"""
FEW = 100  # from here on a level counts for "no cliff": below, the server waits for its clients


@dataclass(frozen=True)
class Row:
    """One round of a server at one level."""

    server: str
    connections: int
    round: int
    cpu_us: float
    load: Load


@dataclass(frozen=True)
class Idle:
    """Bytes of a server without its workers, with idle connections: resident, and by its share of what is shared."""

    connections: int
    before: tuple[int, int]
    fresh: tuple[int, int]
    used: tuple[int, int]


def main() -> None:
    """Measure both, keep the tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--connections", default="1,8,64,256,1000,2500,5000", help="comma-separated")
    parser.add_argument("--rounds", type=int, default=4)
    parser.add_argument("--seconds", type=int, default=4, help="of each measurement; twice that from 1,000 on")
    parser.add_argument("--frontends", type=int, default=1, help="front processes of the server")
    parser.add_argument("--threads", type=int, default=1, help="of the load")
    parser.add_argument("--idle", type=int, default=5000, help="connections whose memory is measured")
    parser.add_argument("--name", default="connections", help="of the files under benchmarks/out")
    args = parser.parse_args()
    need("wrk")
    levels = [int(number) for number in args.connections.split(",")]
    raise_file_limit(max(*levels, args.idle) + 500)
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        model, log = folder / "echo.py", folder / "server.log"
        model.write_text(MODEL)
        options = ("--frontends", str(args.frontends))
        with native(model, log, *options) as server:
            print(f"memory of {args.idle} idle connections ...", file=sys.stderr, flush=True)
            idle = hold(server.pid, server.port, args.idle)
        rows: list[Row] = []
        with contextlib.ExitStack() as stack, contextlib.suppress(KeyboardInterrupt):
            server = stack.enter_context(native(model, log, *options))
            places = {"Shoal": (server.pid, server.port)}
            if shutil.which("nginx"):
                places["nginx"] = stack.enter_context(yardstick(folder))
            measure(places, levels, args, folder, rows)
    if rows:
        keep(rows, idle, args)


def hold(pid: int, port: int, count: int) -> Idle:
    """Open connections and let them be: before, when they are fresh, and after one request on each."""
    ask(port, 50)
    accepting = [pid, *fronts(family(pid))]
    before = settled(accepting)
    with contextlib.ExitStack() as stack:
        links = [stack.enter_context(socket.create_connection(("127.0.0.1", port))) for _ in range(count)]
        fresh = settled(accepting)
        for link in links:
            link.sendall(REQUEST)
            if not link.recv(4096).startswith(b"HTTP/1.1 200"):
                sys.exit("the server does not answer")
        return Idle(count, before, fresh, settled(accepting))


def ask(port: int, times: int) -> None:
    """Warm up."""
    with socket.create_connection(("127.0.0.1", port)) as link:
        for _ in range(times):
            link.sendall(REQUEST)
            link.recv(4096)


def settled(pids: Sequence[int]) -> tuple[int, int]:
    """The memory of a server's core, the first, and its front processes once they have come to rest."""
    rest(pids[0])
    return memory(pids)


@contextlib.contextmanager
def yardstick(folder: Path) -> Iterator[tuple[int, int]]:
    """One process of nginx, and where it answers."""
    port = free_port()
    settings = folder / "nginx.conf"
    settings.write_text(YARDSTICK.format(folder=folder, port=port))
    with started(["nginx", "-c", str(settings)], port, "/", folder / "nginx.out") as pid:
        yield pid, port


def measure(
    places: Mapping[str, tuple[int, int]],
    levels: Sequence[int],
    asked: argparse.Namespace,
    folder: Path,
    rows: list[Row],
) -> None:
    """Every level of every server in turn, round by round."""
    body = folder / "body"
    body.write_bytes(BODY)
    headers = {"Content-Type": "application/octet-stream"}
    urls = {name: f"http://127.0.0.1:{port}/predictions/echo" for name, (_, port) in places.items()}
    for url in urls.values():
        wrk(url, body, headers, 64, 2)  # warm
    pids = {name: family(pid) for name, (pid, _) in places.items()}
    for number, level, name in [(n, level, name) for n in range(asked.rounds) for level in levels for name in places]:
        before = cpu_seconds(pids[name])
        seconds = asked.seconds * (2 if level >= MANY else 1)
        load = wrk(urls[name], body, headers, level, seconds, threads=asked.threads)
        cpu = (cpu_seconds(pids[name]) - before) / max(1, load.requests) * 1e6
        rows.append(Row(name, level, number, cpu, load))
        print(
            f"round {number + 1}: {name:5} {level:5} connections {load.rps:8.0f}/s {cpu:6.1f} us "
            f"p99 {load.p99_ms:8.2f} ms, {load.errors} errors",
            file=sys.stderr,
            flush=True,
        )


def rates_of(rows: Sequence[Row], server: str) -> dict[int, float]:
    """The median rate of a server by connections."""
    levels = sorted({row.connections for row in rows})
    own = [row for row in rows if row.server == server]
    found = {level: [row.load.rps for row in own if row.connections == level] for level in levels}
    return {level: statistics.median(values) for level, values in found.items() if values}


def least(rates: Mapping[int, float]) -> float:
    """The lowest rate with many connections, of the best; 1 where there were only few."""
    return min([rate for level, rate in rates.items() if level >= FEW], default=1.0) / max(rates.values())


def keep(rows: Sequence[Row], idle: Idle, asked: argparse.Namespace) -> None:
    """Write the tables, the data and the picture."""
    rates = rates_of(rows, "Shoal")
    beside = rates_of(rows, "nginx")
    cells = []
    for level in rates:
        found = [row for row in rows if row.server == "Shoal" and row.connections == level]
        cells.append(
            [
                f"{level:,}",
                spread([row.load.rps for row in found]),
                f"{rates[level] / max(rates.values()):.2f}",
                spread([row.cpu_us for row in found], 1),
                f"{statistics.median(row.load.p50_ms for row in found):.2f}",
                f"{statistics.median(row.load.p99_ms for row in found):.2f}",
                str(sum(row.load.errors for row in found)),
                *(
                    [f"{beside.get(level, 0.0):,.0f} ({beside.get(level, 0.0) / max(beside.values()):.2f})"]
                    if beside
                    else []
                ),
            ]
        )
    head = ["connections", "requests/s", "of the best", "CPU us per request", "p50 ms", "p99 ms", "errors"]
    head += ["nginx, requests/s (of its best)"] if beside else []
    text = [about("Connections", "uvloop", "httptools")]
    text += [
        f"64-byte echo, {asked.frontends} front process(es), wrk -t{asked.threads} on the same machine, "
        f"{asked.seconds} s each, levels in turns; medians (lowest to highest).\n"
    ]
    text += [table(head, cells)]
    line = f"From {FEW} connections on, the lowest rate is {least(rates):.2f} of the best"
    text += [line + (f", nginx's {least(beside):.2f}.\n" if beside else ".\n")]
    memories = [
        [title, f"{rss / 2**20:.1f}", f"{pss / 2**20:.1f}", f"{(pss - idle.before[1]) / idle.connections / 1024:.2f}"]
        for title, (rss, pss) in (
            ("none", idle.before),
            (f"{idle.connections:,}, nothing sent yet", idle.fresh),
            (f"{idle.connections:,}, one request each", idle.used),
        )
    ]
    text += [table(["idle connections", "RSS MiB", "PSS MiB", "KiB for each"], memories)]
    data = {"rows": [asdict(row) for row in rows], "idle": asdict(idle)}
    write(asked.name, "\n".join(text), json.dumps(data, indent=1))
    lines = {"Shoal": list(rates.items())} | ({"nginx, two bytes": list(beside.items())} if beside else {})
    plot_lines(asked.name, lines, "connections", "requests per second")
    print("\n".join(text))


if __name__ == "__main__":
    main()
