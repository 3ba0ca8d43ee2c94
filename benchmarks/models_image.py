"""JPEG in, label out, without a server: the work of benchmarks/image.py in one process, by one thread or by two.

    echo one 8 | python -m benchmarks.models_image resnet18|bees rate --seconds 3
    python -m benchmarks.models_image resnet18|bees lone --port 8080 --path /predictions/model --calls 60

`rate` reads lines: by how many threads, and a batch size; it answers each with images a second, where one thread
decodes and computes in turn, and where a second one decodes the next batch meanwhile. `lone` prints a line of JSON. It
asks a running server, the same through two processes that only hand it on, and calls the model itself: one call of
each in turn, where each finds the caches full of the others' weights, and rows of ten of each in turn, where the next
request of a client that does nothing else finds its own. Two processes differ in what the same call takes by more than
a server adds, by where their memory lies; so where the model says when its methods began and ended, what of a request
and of a bare call lies outside of them is compared as well.
"""

import argparse
import json
import math
import os
import re
import runpy
import socket
import statistics
import sys
import time
from collections.abc import Callable, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from types import SimpleNamespace
from typing import Any

from benchmarks.relay import relay

ROOT = Path(__file__).parents[1]
PEERS = Path(os.environ.get("PEERS_HOME", "~/.cache/peers")).expanduser()
LENGTH = re.compile(rb"(?i)\r\ncontent-length: (\d+)").search
STAMPS = re.compile(rb'"stamps": ?\[([^]]*)\]').search
ROW = 10  # calls of one kind, one after the other
WARM_UP = 6  # calls of each kind that do not count
Step = Callable[[], tuple[float, bytes]]  # gives when its answer had come, and the answer
STAMPED = ROOT / "benchmarks" / "models_stamped.py"
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
        handler = runpy.run_path(str(STAMPED))["Stamped"]()
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


def lone(name: str, port: int, path: str, calls: int) -> dict[str, float]:
    """Seconds of a request with nobody else there, of the same through a relay, and of the bare call, in turn."""
    body = body_file(name).read_bytes()
    with relay(partial(work, name), len(body)) as relayed, connected(port) as link:
        model = work(name)
        head = f"POST {path} HTTP/1.1\r\nHost: b\r\nContent-Type: image/jpeg\r\nContent-Length: {len(body)}\r\n\r\n"
        steps: dict[str, Step] = {
            "server": partial(ask, link, head.encode() + body),
            "relay": partial(through, relayed, body),
            "bare": partial(bare, model),
        }
        found = compared(in_turn(steps, 1, calls))
        rows = compared(in_turn(steps, ROW, max(3, calls // ROW)))
    return found | {f"row_{key}": value for key, value in rows.items()}


def in_turn(steps: Mapping[str, Step], row: int, rounds: int) -> dict[str, list[tuple[float, float]]]:
    """Seconds by step, all and outside the model: so many of each in a row, the middle counts, the steps in turn.

    Every other round goes the other way round: what follows a bare call finds this process's caches emptied by it.
    """
    names = list(steps)
    times: dict[str, list[tuple[float, float]]] = {key: [] for key in names}
    skipped = math.ceil(WARM_UP / row)
    for number in range(skipped + rounds):
        first = number % len(names)
        order = [*names[first:], *names[:first]]
        for key in order if number % 2 else reversed(order):
            whole, outside = [], []
            for _ in range(row):
                start = time.perf_counter()
                end, answer = steps[key]()
                whole.append(end - start)
                outside.append(end - start - inside(answer))
            if number >= skipped:
                times[key].append((statistics.median(whole), statistics.median(outside)))
    return times


def inside(answer: bytes) -> float:
    """Seconds in the model's own methods, as far as it says so."""
    if not (found := STAMPS(answer)):
        return 0.0
    times = [float(one) for one in found[1].split(b",")]
    return sum(end - begin for begin, end in zip(times[::2], times[1::2], strict=True))


def compared(times: Mapping[str, Sequence[tuple[float, float]]]) -> dict[str, float]:
    """The medians, and those of how much longer a request took than the bare call of its round."""
    found = {f"{key}_p50": statistics.median(whole for whole, _ in own) for key, own in times.items()}
    for key, result in (("server", ""), ("relay", "relay_")):
        pairs = list(zip(times[key], times["bare"], strict=True))
        found[f"{result}difference_p50"] = statistics.median(a[0] - b[0] for a, b in pairs)
        found[f"{result}outside_p50"] = statistics.median(a[1] - b[1] for a, b in pairs)
    return found


@contextmanager
def connected(port: int) -> Iterator[socket.socket]:
    """A connection to a server on this machine."""
    with socket.create_connection(("127.0.0.1", port), timeout=60) as link:
        link.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        yield link


def ask(link: socket.socket, request: bytes) -> tuple[float, bytes]:
    """Send a request; gives when the last of its answer had come, which must be a good one, and the answer."""
    link.sendall(request)
    answer, came = b"", 0.0
    while not is_whole(answer):
        if not (piece := link.recv(65536)):
            raise SystemExit("the server closed the connection")
        came = time.perf_counter()
        answer += piece
    if not answer.startswith(b"HTTP/1.1 200"):
        raise SystemExit(f"the server answered {answer[:200]!r}")
    return came, answer


def through(link: socket.socket, body: bytes) -> tuple[float, bytes]:
    """Send a body to the relay; gives when its answer had come, which is short, and the answer."""
    link.sendall(body)
    if not (answer := link.recv(65536)):
        raise SystemExit("the relay closed the connection")
    return time.perf_counter(), answer


def bare(model: Work) -> tuple[float, bytes]:
    """Call the model; gives when it had answered, and the answer."""
    (answer,) = model([model.body])
    return time.perf_counter(), answer


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("model", choices=["resnet18", "bees"])
    parser.add_argument("what", choices=["rate", "lone"])
    parser.add_argument("--seconds", type=float, default=2.0)
    parser.add_argument("--port", type=int, default=8080)
    parser.add_argument("--path", default="/predictions/model")
    parser.add_argument("--calls", type=int, default=60)
    asked = parser.parse_args()
    if asked.what == "lone":
        print(json.dumps(lone(asked.model, asked.port, asked.path, asked.calls)))
        return
    model, by = work(asked.model), {"one": rate, "two": rate_of_two}
    for line in sys.stdin:
        threads, size = line.split()
        print(by[threads](model, int(size), asked.seconds), flush=True)


if __name__ == "__main__":
    main()
