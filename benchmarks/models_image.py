"""JPEG in, label out, without a server: the work of benchmarks/image.py in one process, by one thread or by two.

    python -m benchmarks.models_image resnet18|bees rate --seconds 3 --sizes 1,2,4,8
    python -m benchmarks.models_image resnet18|bees lone --port 8080 --path /predictions/model --calls 60

Prints one line of JSON. `rate` is images a second by batch size, decoding and computing in turn, and with a second
thread that decodes the next batch meanwhile. `lone` asks a running server and calls the model itself, in turn.
"""

import argparse
import json
import os
import re
import runpy
import socket
import statistics
import time
from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from types import SimpleNamespace
from typing import Any

ROOT = Path(__file__).parents[1]
PEERS = Path(os.environ.get("PEERS_HOME", "~/.cache/peers")).expanduser()
LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)").search
BEE = ROOT / "src" / "shoal" / "frontend" / "pages" / "samples" / "bee.jpg"


@dataclass(frozen=True)
class Work:
    """A model's two halves, and one request's body."""

    body: bytes
    decode: Callable[[Sequence[bytes]], Any]
    compute: Callable[[Any], Sequence[Any]]  # up to the answers as JSON

    def __call__(self, bodies: Sequence[bytes]) -> Sequence[Any]:
        """Answer a batch."""
        return self.compute(self.decode(bodies))


def body_file(name: str) -> Path:
    """The request of a model."""
    return BEE if name == "bees" else PEERS / "assets" / "image.jpg"


def work(name: str) -> Work:
    """Load a model: the very code that the servers run."""
    body = body_file(name).read_bytes()
    if name == "bees":
        handler = runpy.run_path(str(ROOT / "src" / "shoal" / "demo" / "bees.py"))["Bees"]()
        handler.initialize(SimpleNamespace(device="cpu", parameters={}))

        def answer(rows: Any) -> list[bytes]:
            return [json.dumps(handler.encode(output)).encode() for output in handler.inference(rows)]

        return Work(body, lambda bodies: [handler.decode(one) for one in bodies], answer)
    os.environ["PEERS_ASSETS"] = str(PEERS / "assets")
    model = runpy.run_path(str(ROOT / "benchmarks" / "peers" / "common" / "work.py"))["Classifier"]()

    def classify(rows: Any) -> list[bytes]:
        return [json.dumps(output).encode() for output in model.forward(rows)]

    return Work(body, lambda bodies: [model.decode(one) for one in bodies], classify)


def rate(model: Work, size: int, seconds: float) -> float:
    """Images a second, one batch after the other."""
    bodies = [model.body] * size
    model(bodies)
    done, start = 0, time.perf_counter()
    while (now := time.perf_counter()) - start < seconds:
        model(bodies)
        done += size
    return done / (now - start)


def rate_of_two(model: Work, size: int, seconds: float) -> float:
    """Images a second where a second thread decodes the next batch while the first computes."""
    bodies = [model.body] * size
    with ThreadPoolExecutor(1) as reader:
        model(bodies)
        done, start = 0, time.perf_counter()
        ahead = reader.submit(model.decode, bodies)
        while (now := time.perf_counter()) - start < seconds:
            rows = ahead.result()
            ahead = reader.submit(model.decode, bodies)
            model.compute(rows)
            done += size
        ahead.result()
    return done / (now - start)


def is_whole(answer: bytes) -> bool:
    """Whether an answer has come to its end."""
    end = answer.find(b"\r\n\r\n")
    found = LENGTH(answer, 0, end + 2) if end >= 0 else None
    return found is not None and len(answer) >= end + 4 + int(found[1])


def lone(model: Work, port: int, path: str, calls: int) -> dict[str, float]:
    """Seconds of a request with nobody else there, and of the bare call, measured in turn."""
    link = socket.create_connection(("127.0.0.1", port), timeout=60)
    link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    head = (
        f"POST {path} HTTP/1.1\r\nHost: bench\r\nContent-Type: image/jpeg\r\nContent-Length: {len(model.body)}\r\n\r\n"
    )
    request = head.encode() + model.body
    served: list[float] = []
    called: list[float] = []

    def ask() -> None:
        link.sendall(request)
        answer = b""
        while not is_whole(answer):
            if not (piece := link.recv(65536)):
                raise SystemExit("the server closed the connection")
            answer += piece
        if not answer.startswith(b"HTTP/1.1 200"):
            raise SystemExit(f"the server answered {answer[:200]!r}")

    def call() -> None:
        model([model.body])

    for number in range(calls + 5):
        for what, times in ((ask, served), (call, called)) if number % 2 else ((call, called), (ask, served)):
            start = time.perf_counter()
            what()
            if number >= 5:
                times.append(time.perf_counter() - start)
    differences = sorted(a - b for a, b in zip(served, called, strict=True))
    return {
        "server_p50": statistics.median(served),
        "bare_p50": statistics.median(called),
        "difference_p50": statistics.median(differences),
        "server_low": sorted(served)[len(served) // 10],
        "bare_low": sorted(called)[len(called) // 10],
    }


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["resnet18", "bees"])
    parser.add_argument("what", choices=["rate", "lone"])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--sizes", default="1,2,4,8")
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--path", default="/predictions/model")
    parser.add_argument("--calls", type=int, default=60)
    asked = parser.parse_args()
    model = work(asked.model)
    if asked.what == "lone":
        print(json.dumps(lone(model, asked.port, asked.path, asked.calls)))
        return
    sizes = [int(size) for size in asked.sizes.split(",")]
    print(
        json.dumps(
            {
                "one": {size: rate(model, size, asked.seconds) for size in sizes},
                "two": {size: rate_of_two(model, size, asked.seconds) for size in sizes},
            }
        )
    )


if __name__ == "__main__":
    main()
