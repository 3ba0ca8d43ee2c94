"""Serving overhead: echoes of 64 B and 100 KB bodies against the other servers, in one run, interleaved.

    python -m benchmarks.echo --install     # once: one virtual environment for each of them
    python -m benchmarks.echo               # tune each of them, then three rounds; about 20 minutes
    python -m benchmarks.echo --peers shoal,mosec,triton --sizes 100k --rounds 2

The body's length is the answer. The harness and every server's own code are in benchmarks/peers; load by `wrk`. Each
measurement is kept as it comes: an interrupted run reports what it has.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from benchmarks.driving import need
from benchmarks.report import OUT, about, plot_bars, table, write

PEERS = Path(__file__).parent / "peers"
WORKLOADS = {"64": "echo", "100k": "echo100k"}
TITLES = {"echo": "64 B", "echo100k": "100 KB"}
AHEAD = (64, 256)  # clients at which the ratios are given
OURS = {"shoal": "Shoal", "shoal-compiled": "Shoal, compiled,"}


def main() -> None:
    """Run the harness, keep its tables."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install the other servers first")
    parser.add_argument("--peers", help="comma-separated; all when absent")
    parser.add_argument("--sizes", default="64,100k", help="of bodies, comma-separated: 64, 100k")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=2, help="of each measurement")
    parser.add_argument("--nice", type=int, default=0, help="priority of servers and load, as -15 (root)")
    parser.add_argument("--resume", type=Path, help="go on with the lines of this file: rounds only, no tuning")
    parser.add_argument("--name", default="echo", help="of the files under benchmarks/out")
    args = parser.parse_args()
    need("wrk")
    environment = {**os.environ, "PEERS_SHOAL_VENV": str(Path(sys.prefix))}
    if args.install:
        subprocess.run(["bash", str(PEERS / "install.sh")], check=True, env=environment)
    OUT.mkdir(exist_ok=True)
    lines = args.resume or OUT / f"{args.name}-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    workloads = [WORKLOADS[size] for size in args.sizes.split(",")]
    common = [sys.executable, str(PEERS / "run_peers.py"), "--workloads", ",".join(workloads), "--out", str(lines)]
    common += [*("--nice", str(args.nice), "--warm", "1", "--quiet-wait", "5")]
    common += ["--peers", args.peers] if args.peers else []
    began = time.monotonic()
    try:
        if not args.resume:
            subprocess.run(
                [*common, "--tune", "--tune-concurrency", "1,64", "--seconds", "1"], check=True, env=environment
            )
        for number in range(args.rounds):
            print(f"round {number + 1} of {args.rounds}, after {time.monotonic() - began:.0f} s", flush=True)
            rounds = ["--from-round", str(number), "--rounds", "1", "--seconds", str(args.seconds)]
            subprocess.run([*common, *rounds], check=True, env=environment)
    except KeyboardInterrupt:
        print("interrupted; what is there is kept", file=sys.stderr)
    keep(args.name, common, workloads)


def keep(name: str, common: Sequence[str], workloads: Sequence[str]) -> None:
    """Write the tables of what was measured, the data and the pictures."""
    rows_file = OUT / f"{name}-rows.json"
    report = [*common, "--report", "--json", str(rows_file)]
    text = subprocess.run(report, check=True, stdout=subprocess.PIPE, text=True).stdout.strip() + "\n"
    data: dict[str, Any] = json.loads(rows_file.read_text())
    rows_file.unlink()
    parts = [about("Echo", "uvloop", "httptools", "msgspec"), text]
    for workload in workloads:
        rows = {(row["peer"], row["concurrency"]): row for row in data["rows"] if row["workload"] == workload}
        peers = list(dict.fromkeys(peer for peer, _ in rows))
        levels = sorted({level for _, level in rows})
        if rows:
            series = {
                peer: [rows[peer, level]["rps"] if (peer, level) in rows else 0.0 for level in levels] for peer in peers
            }
            plot_bars(f"{name}-{workload}", series, levels)
        for ours, title in OURS.items():
            if (ours, AHEAD[0]) in rows:
                head = [f"{TITLES[workload]}: {title} is ahead of", *(f"c={level}: requests/s, CPU" for level in AHEAD)]
                parts.append(table(head, [_ahead(rows, ours, peer) for peer in peers if peer != ours]))
    write(name, "\n".join(parts), json.dumps(data, indent=1))
    print("\n".join(parts))


def _ahead(rows: dict[tuple[str, int], Any], name: str, peer: str) -> list[str]:
    cells = [peer]
    for level in AHEAD:
        ours, theirs = rows.get((name, level)), rows.get((peer, level))
        if ours and theirs and theirs["rps"] and ours["cpu_ms"]:
            cells.append(f"{ours['rps'] / theirs['rps']:.2f}x, {theirs['cpu_ms'] / ours['cpu_ms']:.2f}x less")
        else:
            cells.append("-")
    return cells


if __name__ == "__main__":
    main()
