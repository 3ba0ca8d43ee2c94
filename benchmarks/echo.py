"""Serving overhead: a 64-byte echo against the other servers, in one run, interleaved.

    python -m benchmarks.echo --install     # once: one virtual environment for each of them
    python -m benchmarks.echo               # tune each of them, then three rounds

The harness and every server's own code are in benchmarks/peers; load by `wrk`.
"""

import argparse
import json
import os
import subprocess
import sys
import time
from pathlib import Path

from benchmarks.report import OUT, plot_bars, write

PEERS = Path(__file__).parent / "peers"


def main() -> None:
    """Run the harness, keep its table."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawTextHelpFormatter)
    parser.add_argument("--install", action="store_true", help="install the other servers first")
    parser.add_argument("--peers", help="comma-separated; all when absent")
    parser.add_argument("--rounds", type=int, default=3)
    parser.add_argument("--seconds", type=int, default=5)
    parser.add_argument("--nice", type=int, default=0, help="priority of servers and load, as -15 (root)")
    args = parser.parse_args()
    if args.install:
        subprocess.run(["bash", str(PEERS / "install.sh")], check=True)
    OUT.mkdir(exist_ok=True)
    results = OUT / f"echo-{time.strftime('%Y%m%d-%H%M%S')}.jsonl"
    common = [sys.executable, str(PEERS / "run_peers.py"), "--workloads", "echo", "--out", str(results)]
    common += ["--nice", str(args.nice), *(["--peers", args.peers] if args.peers else [])]
    environment = {**os.environ, "PEERS_SHOAL_VENV": str(Path(sys.prefix))}
    subprocess.run([*common, "--tune", "--seconds", "2"], check=True, env=environment)
    rounds = ["--rounds", str(args.rounds), "--seconds", str(args.seconds)]
    subprocess.run([*common, *rounds], check=True, env=environment)
    report = [*common, "--report", "--json", str(OUT / "echo-rows.json")]
    text = subprocess.run(report, check=True, stdout=subprocess.PIPE, text=True).stdout.strip() + "\n"
    data = json.loads((OUT / "echo-rows.json").read_text())
    write("echo", text, json.dumps(data, indent=1))
    levels = sorted({row["concurrency"] for row in data["rows"]})
    series = {
        peer: [
            next((r["rps"] for r in data["rows"] if (r["peer"], r["concurrency"]) == (peer, c)), 0.0) for c in levels
        ]
        for peer in dict.fromkeys(row["peer"] for row in data["rows"])
    }
    plot_bars("echo", series, levels)
    print(text)


if __name__ == "__main__":
    main()
