"""ResNet-50 from JPEGs and ResNet-101 from tensors on a GPU: the bare loop, then Shoal with the load beside it.

    python -m benchmarks.gpu [photos] [tensors] [--connections 64,256,512] [--readers 1] [--rounds 2]
    python -m benchmarks.gpu photos --peers mosec,litserve      # which must be importable

Writes gpu.md and gpu.json to benchmarks/out. The bare loop is the handler's own methods, one batch after the other, in
one process without a server, on bodies that are in memory already. The other servers run the same methods, in
benchmarks/models_mosec.py and models_litserve.py, each with the numbers of workers in PEERS. Needs torch.
"""

import argparse
import base64
import io
import json
import runpy
import shutil
import statistics
import subprocess
import sys
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from datetime import UTC, datetime
from functools import partial
from importlib.util import find_spec
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.driving import rest
from benchmarks.report import OUT, machine, plot_bars, table, write
from benchmarks.serving import ROOT, Address, free_port, load, say, shoal, started

SIZES = (1, 8, 32, 128, 256)
WARM_UP, SECONDS = 3, 0.7  # runs, and seconds of measuring for each figure
HANDLERS = {"photos": "Photos", "tensors": "Tensors"}
DEPTHS = {"photos": 50, "tensors": 101}
PEERS = {"mosec": (1, 2, 3), "litserve": (2, 4)}  # numbers of their workers that are tried


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


def handler_of(kind: str, depth: int) -> Any:
    """The example's handler, ready; on a GPU where there is one."""
    handler = runpy.run_path(str(ROOT / "examples" / "resnet.py"))[HANDLERS[kind]]()
    handler.initialize(SimpleNamespace(device="cpu", parameters={"depth": depth} if depth else {}))
    return handler


def bare(kind: str, body: bytes, depth: int) -> list[dict[str, float]]:
    """The handler's own methods without a server, rows a second by batch size."""
    handler = handler_of(kind, depth)
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


@dataclass(frozen=True)
class Target:
    """A running server, and what to send to it."""

    url: str
    body: Path
    content_type: str = "application/octet-stream"
    address: Address | None = None  # of Shoal


@contextmanager
def serving(kind: str, body: bytes, asked: argparse.Namespace) -> Iterator[Target]:
    """Shoal with its defaults, but for the threads that read batches."""
    file = OUT / f"gpu-{kind}.bin"
    file.write_bytes(body)
    depth = f"parameters = {{depth = {asked.depth}}}\n" if asked.depth else ""
    model = f'path = "{ROOT}/examples/resnet.py"\nhandler = "{HANDLERS[kind]}"\n{depth}'
    if asked.readers > 1:
        model += f"micro_batching = {{parallelism = {{preprocess = {asked.readers}}}}}\n"
    with shoal(model, f"shared_memory = {2**32}\n") as address:
        yield Target(f"http://127.0.0.1:{address.port}/predictions/model", file, address=address)


@contextmanager
def peer(name: str, workers: int, body: bytes, asked: argparse.Namespace) -> Iterator[Target]:
    """Another server with the same methods behind it; LitServe reads JSON, so a body travels as base64 there."""
    port = free_port()
    device = "cuda" if has_gpu() else "cpu"
    settings = {"PORT": port, "WORKERS": workers, "MAX_BATCH": asked.max_batch, "DEPTH": asked.depth, "DEVICE": device}
    environment = {f"BENCHMARK_{key}": str(value) for key, value in settings.items()}
    is_json = name == "litserve"
    file = OUT / f"gpu-{name}.bin"
    file.write_bytes(json.dumps({"image": base64.b64encode(body).decode()}).encode() if is_json else body)
    command = [sys.executable, "-m", f"benchmarks.models_{name}"]
    if name == "mosec":  # which reads its settings from the command line
        environment |= mosec_home()
        command += ["--address", "127.0.0.1", "--port", str(port), "--timeout", "60000", "--capacity", "4096"]
        command += ["--log-level", "warning", "--path", str(OUT / f"mosec-{port}")]
    with started(command, port, "/metrics" if name == "mosec" else "/health", OUT / f"gpu-{name}.log",
                 environment=environment) as pid:  # fmt: skip
        path = "/inference" if name == "mosec" else "/predict"
        target = Target(f"http://127.0.0.1:{port}{path}", file, "application/json" if is_json else "image/jpeg")
        asking = urllib.request.Request(target.url, file.read_bytes(), {"Content-Type": target.content_type})
        with urllib.request.urlopen(asking, timeout=180) as answer:
            print(f"{name} answers {answer.read()!r}", flush=True)
        rest(pid)  # the first worker has answered; the others may still be loading
        yield target


def mosec_home() -> dict[str, str]:
    """Tell mosec where its program is: it looks among Python's scripts, and its wheel may be unpacked elsewhere."""
    spec = find_spec("mosec")
    folder = Path(spec.origin or "").parents[1] if spec else OUT
    places = [*folder.glob("mosec-*.data/scripts/mosec"), folder / "bin" / "mosec", Path(sys.prefix) / "bin" / "mosec"]
    for place in filter(Path.is_file, places):
        file = OUT / "mosec-home" / "bin" / "mosec"
        file.parent.mkdir(parents=True, exist_ok=True)
        shutil.copy(place, file)
        file.chmod(0o755)
        return {"PYTHONUSERBASE": str(file.parents[1])}
    return {}


def measured(target: Target, title: str, asked: argparse.Namespace) -> list[dict[str, Any]]:
    """Load a server at every level."""
    shape: dict[str, Any] = {"processes": asked.processes, "window": asked.window, "content_type": target.content_type}
    levels = load(target.url, target.body, asked.connections, **shape)
    for level in levels:
        print(f"{title}, {say(level)}", flush=True)
    if target.address is not None:
        print(target.address.describe()["batching"], flush=True)
    return [{"title": title, **level} for level in levels]


def rows_of(kind: str, body: bytes, asked: argparse.Namespace) -> Iterator[list[dict[str, Any]]]:
    """Shoal and the others in turn, every round; one that cannot run is left out with a line."""
    others = [name for name in asked.peers.split(",") if name and kind == "photos"]
    for name in others:
        if name not in PEERS or find_spec(name) is None:
            sys.exit(f"{name} cannot be imported here; there are {', '.join(PEERS)}")
    for _ in range(asked.rounds):
        with serving(kind, body, asked) as target:
            yield measured(target, "Shoal", asked)
        for name in others:
            for workers in asked.peer_workers or PEERS[name]:
                title = f"{name}, workers: {workers}"
                try:
                    with peer(name, workers, body, asked) as target:
                        yield measured(target, title, asked)
                except (RuntimeError, OSError) as error:
                    print(f"{title} is left out: {error}", flush=True)


def main() -> None:
    """Measure what was asked for and write it down, after every server."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("what", nargs="*", default=["photos", "tensors"])
    parser.add_argument("--connections", default="1,64,256,512")
    parser.add_argument("--processes", type=int, default=6, help="that make the load")
    parser.add_argument("--window", default="2s")
    parser.add_argument("--rounds", type=int, default=1)
    parser.add_argument("--readers", type=int, default=1, help="threads that read batches")
    parser.add_argument("--peers", default="", help="other servers, as mosec,litserve; photos only")
    parser.add_argument("--peer-workers", type=int, nargs="+", help="of the other servers, instead of several tried")
    parser.add_argument("--max-batch", type=int, default=128, help="of the other servers")
    parser.add_argument("--depth", type=int, default=0, help="of the network, instead of 50 and 101")
    parser.add_argument("--no-bare", action="store_true")
    parser.add_argument("--plot", type=Path, metavar="JSON", help="draw what was measured before, and nothing else")
    asked = parser.parse_args()
    if asked.plot:
        draw(json.loads(asked.plot.read_text()))
        return
    OUT.mkdir(exist_ok=True)
    made: dict[str, Any] = {
        "machine": hardware(),
        "depth": asked.depth,
        "date": datetime.now(UTC).date().isoformat(),
        "command": " ".join(["python -m benchmarks.gpu", *sys.argv[1:]]),
    }
    for kind in asked.what:
        body = body_of(kind)
        print(f"{kind}: {len(body)} bytes", flush=True)
        made[kind] = {
            "bytes": len(body),
            "bare": [] if asked.no_bare else json.loads(apart(kind, asked.depth)),
            "rows": [],
        }
        try:
            for rows in rows_of(kind, body, asked):
                made[kind]["rows"] += rows
                write("gpu", report(made), json.dumps(made, indent=1))
        except KeyboardInterrupt:
            print("interrupted; what was measured is kept", flush=True)
            break
    draw(made)
    print(report(made))


def has_gpu() -> bool:
    """Whether torch sees a GPU."""
    import torch

    return bool(torch.cuda.is_available())


def hardware() -> str:
    """Name the machine, its GPU and torch."""
    import torch

    device = f"{torch.cuda.get_device_name()}, " if torch.cuda.is_available() else ""
    return f"{device}{machine()}, torch {torch.__version__}"


def apart(kind: str, depth: int) -> str:
    """The bare loop in a process of its own, so that its memory and threads are gone when the server runs."""
    code = f"from benchmarks import gpu; print(gpu.json.dumps(gpu.bare({kind!r}, gpu.body_of({kind!r}), {depth})))"
    done = subprocess.run([sys.executable, "-c", code], cwd=ROOT, capture_output=True, text=True)
    if done.returncode:
        raise SystemExit(done.stderr[-3000:])
    return done.stdout.strip().splitlines()[-1]


def medians(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, float]]:
    """The rounds of a server at a number of connections put together."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["title"], row["concurrency"]), []).append(row)
    return {
        key: {
            "rate": statistics.median(row["throughput"] for row in own),
            "low": min(row["throughput"] for row in own),
            "high": max(row["throughput"] for row in own),
            "p50": statistics.median(row["latency"]["p50"] for row in own),
            "p99": statistics.median(row["latency"]["p99"] for row in own),
            "errors": sum(sum(row["errors"].values()) for row in own),
            "batch": statistics.median((row.get("server") or {}).get("mean_rows", 0) for row in own),
        }
        for key, own in groups.items()
    }


def report(made: dict[str, Any]) -> str:
    """What was measured, in Markdown."""
    text = f"{made['machine']}; {made['date']}; `{made['command']}`\n"
    for kind, depth in DEPTHS.items():
        if kind not in made:
            continue
        text += f"\nResNet-{made['depth'] or depth} from {kind}, {made[kind]['bytes']:,} bytes each\n"
        if made[kind]["bare"]:
            cells = [[f"{row[key]:,.0f}" for key in ("size", "read", "model", "both")] for row in made[kind]["bare"]]
            text += "\n" + table(["bare, batch of", "read/s", "model/s", "both, one after the other/s"], cells)
        cells = []
        for (name, connections), own in medians(made[kind]["rows"]).items():
            rate = f"{own['rate']:,.0f} ({own['low']:,.0f} to {own['high']:,.0f})"
            times = [f"{1e3 * own[key]:.1f}" for key in ("p50", "p99")]
            batch = f"{own['batch']:.0f}" if own["batch"] else ""
            cells.append([name, str(connections), rate, *times, f"{own['errors']:.0f}", batch])
        head = ["server", "connections", "answers/s", "p50 ms", "p99 ms", "errors", "mean batch"]
        text += "\n" + table(head, cells)
    return text


def draw(made: dict[str, Any]) -> None:
    """Answers a second by server and connections."""
    for kind in HANDLERS:
        if kind in made and (found := medians(made[kind]["rows"])):
            levels = sorted({connections for _, connections in found})
            names = dict.fromkeys(name for name, _ in found)
            none = {"rate": 0.0}
            plot_bars(f"gpu-{kind}", {n: [found.get((n, c), none)["rate"] for c in levels] for n in names}, levels)


if __name__ == "__main__":
    main()
