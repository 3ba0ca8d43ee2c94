"""ResNet-50 from JPEGs and ResNet-101 from tensors on a GPU: the bare loop, then Shoal with the load beside it.

    python -m benchmarks.gpu [photos] [tensors] [--connections 64,256,512] [--readers 1]

Writes gpu.md and gpu.json to benchmarks/out. The bare loop is the handler's own methods, one batch after the other, in
one process without a server, on bodies that are in memory already. Needs torch.
"""

import argparse
import io
import json
import os
import platform
import runpy
import signal
import socket
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[1]
OUT = ROOT / "benchmarks" / "out"
SIZES = (1, 8, 32, 128, 256)
WARM_UP, SECONDS = 3, 0.7  # runs, and seconds of measuring for each figure
HANDLERS = {"photos": "Photos", "tensors": "Tensors"}


def photo() -> bytes:
    """A JPEG of 500 x 375 pixels and about 63 KB, with as much detail as a photograph."""
    import numpy as np
    from PIL import Image

    rng = np.random.default_rng(7)
    pixels = np.zeros((375, 500, 3))
    for step in (1, 2, 4, 8, 16, 32, 64):
        coarse = rng.normal(0, 6 * step**0.5, (375 // step + 2, 500 // step + 2, 3))
        pixels += np.kron(coarse, np.ones((step, step, 1)))[:375, :500]
    image = Image.fromarray((pixels + 128).clip(0, 255).astype("uint8"))
    best = b""
    for quality in range(95, 30, -1):
        buffer = io.BytesIO()
        image.save(buffer, "JPEG", quality=quality)
        best = buffer.getvalue()
        if len(best) <= 64_000:
            break
    return best


def body_of(kind: str) -> bytes:
    """One request's body."""
    if kind == "photos":
        return photo()
    import torch

    return torch.randn(3, 224, 224, generator=torch.Generator().manual_seed(7)).numpy().tobytes()


def bare(kind: str, body: bytes) -> list[dict[str, float]]:
    """The handler's own methods without a server, rows a second by batch size."""
    handler = runpy.run_path(str(ROOT / "examples" / "resnet.py"))[HANDLERS[kind]]()
    handler.initialize(SimpleNamespace(device="cpu", parameters={}))
    rows = []
    for size in SIZES:
        bodies = [memoryview(bytes(body)) for _ in range(size)]
        for _ in range(WARM_UP):
            handler.inference(handler.decode_batch(bodies))
        read = timed(partial(handler.decode_batch, bodies))
        run = timed(partial(handler.inference, handler.decode_batch(bodies)))
        both = timed(partial(both_stages, handler, bodies))
        rows.append({"size": size, "read": size / read, "model": size / run, "both": size / both})
    return rows


def both_stages(handler: Any, bodies: list[memoryview]) -> Any:
    """What a server does for a batch, but for serving it."""
    return handler.inference(handler.decode_batch(bodies))


def timed(call: Callable[[], Any]) -> float:
    """The median seconds of a call."""
    took: list[float] = []
    end = time.perf_counter() + SECONDS
    while time.perf_counter() < end or len(took) < 3:
        start = time.perf_counter()
        call()
        took.append(time.perf_counter() - start)
    return statistics.median(took)


@contextmanager
def started(command: list[str], port: int, path: str) -> Iterator[None]:
    """A server that answers at the path, gone at the end."""
    log = (OUT / "gpu-server.log").open("w")
    server = subprocess.Popen(command, stdout=log, stderr=log, cwd=ROOT, start_new_session=True)
    try:
        end = time.monotonic() + 120
        while True:
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=2).read()
                break
            except OSError:
                if server.poll() is not None or time.monotonic() > end:
                    raise SystemExit((OUT / "gpu-server.log").read_text()[-3000:]) from None
                time.sleep(0.2)
        yield
    finally:
        os.killpg(server.pid, signal.SIGTERM)
        try:
            server.wait(20)
        except subprocess.TimeoutExpired:
            os.killpg(server.pid, signal.SIGKILL)
        log.close()


def free_port() -> int:
    """A port nobody listens on."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def load(url: str, file: Path, connections: str, processes: int, window: str) -> list[dict[str, Any]]:
    """What `shoal bench` measures."""
    report = OUT / "gpu-bench"
    command = [
        *(sys.executable, "-m", "shoal", "bench", url, "-i", str(file), "--content-type", "application/octet-stream"),
        *(
            "-c",
            connections,
            "--processes",
            str(processes),
            "--window",
            window,
            "--max-windows",
            "5",
            "-o",
            str(report),
        ),
    ]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, timeout=300)
    print(done.stdout, done.stderr, flush=True)
    levels: list[dict[str, Any]] = json.loads(report.with_suffix(".json").read_text())["levels"]
    return levels


def serve(kind: str, body: bytes, connections: str, processes: int, window: str, readers: int) -> list[dict[str, Any]]:
    """Shoal with its defaults, but for the threads that read batches."""
    file = OUT / f"gpu-{kind}.bin"
    file.write_bytes(body)
    port, management = free_port(), free_port()
    settings = OUT / "gpu-shoal.toml"
    settings.write_text(
        f"port = {port}\nmanagement_port = {management}\nmetrics_port = {free_port()}\nshared_memory = {2**32}\n"
        f'[models.resnet]\npath = "{ROOT}/examples/resnet.py"\nhandler = "{HANDLERS[kind]}"\n'
        f"[models.resnet.micro_batching]\nparallelism = {{preprocess = {readers}}}\n"
    )
    with started([sys.executable, "-m", "shoal", "serve", "--config", str(settings)], port, "/ping"):
        levels = load(f"http://127.0.0.1:{port}/predictions/resnet", file, connections, processes, window)
        with urllib.request.urlopen(f"http://127.0.0.1:{management}/models/resnet") as described:
            print(json.loads(described.read())[0]["batching"], flush=True)
        return levels


def main() -> None:
    """Measure what was asked for and write it down."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["photos", "tensors"])
    parser.add_argument("--connections", default="1,64,256,512")
    parser.add_argument("--processes", type=int, default=6)
    parser.add_argument("--window", default="2s")
    parser.add_argument("--readers", type=int, default=1, help="threads that read batches")
    parser.add_argument("--no-bare", action="store_true")
    asked = parser.parse_args()
    OUT.mkdir(exist_ok=True)
    import torch

    device = torch.cuda.get_device_name() if torch.cuda.is_available() else platform.processor() or "CPU"
    made: dict[str, Any] = {
        "machine": f"{device}, {os.cpu_count()} cores, torch {torch.__version__}",
        "date": datetime.now(UTC).date().isoformat(),
    }
    for kind in asked.what:
        body = body_of(kind)
        print(f"{kind}: {len(body)} bytes", flush=True)
        made[kind] = {
            "bytes": len(body),
            "bare": [] if asked.no_bare else json.loads(apart(kind)),
            "shoal": serve(kind, body, asked.connections, asked.processes, asked.window, asked.readers),
        }
        (OUT / "gpu.json").write_text(json.dumps(made, indent=1))
    (OUT / "gpu.md").write_text(table(made))
    print(table(made))


def apart(kind: str) -> str:
    """The bare loop in a process of its own, so that its memory and threads are gone when the server runs."""
    code = f"import json; from benchmarks import gpu; print(json.dumps(gpu.bare({kind!r}, gpu.body_of({kind!r}))))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return done.stdout.strip().splitlines()[-1]


def table(made: dict[str, Any]) -> str:
    """What was measured, in Markdown."""
    lines = [f"{made['machine']}; {made['date']}; `{' '.join(['python -m benchmarks.gpu', *sys.argv[1:]])}`", ""]
    for kind in ("photos", "tensors"):
        if kind not in made:
            continue
        lines += [f"{kind}, {made[kind]['bytes']:,} bytes each", ""]
        if made[kind]["bare"]:
            lines += ["| bare, batch of | read/s | model/s | both, one after the other/s |", "|---|---|---|---|"]
            lines += [
                f"| {r['size']} | {r['read']:,.0f} | {r['model']:,.0f} | {r['both']:,.0f} |" for r in made[kind]["bare"]
            ]
            lines.append("")
        lines += [
            "| Shoal, connections | answers/s | p50 ms | p99 ms | errors | mean batch |",
            "|---|---|---|---|---|---|",
        ]
        for level in made[kind]["shoal"]:
            latency, rows = level["latency"], level["server"]["mean_rows"]
            lines.append(
                f"| {level['concurrency']} | {level['throughput']:,.0f} | {1e3 * latency['p50']:.1f} "
                f"| {1e3 * latency['p99']:.1f} | {sum(level['errors'].values())} | {rows:.0f} |"
            )
        lines.append("")
    return "\n".join(lines)


if __name__ == "__main__":
    main()
