"""What the tests of the worker make again and again: contexts, batches, and a front process that only listens."""

import threading
from collections.abc import Callable, Sequence
from typing import Any

import msgspec

from shoal.config.model import MicroBatching, ModelConfig
from shoal.payload import Buffer
from shoal.wire.messages import Answered, Ended, Failure, Item, PartHead, Pieces, Run
from shoal.worker import forms
from shoal.worker.batch import Batch
from shoal.worker.handler import Context
from shoal.worker.home import Home
from shoal.worker.pipeline import Inline, Threaded
from shoal.worker.program import Program

Result = bytes | Failure
BYTES = "application/octet-stream"


class Listener:
    """Keeps what a worker sends and puts each request's answer together."""

    def __init__(self) -> None:
        self.is_gone = False
        self.frames: list[tuple[Any, list[bytes]]] = []
        self._ended = threading.Semaphore(0)

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        self.frames.append((message, [bytes(part) for part in data]))
        if isinstance(message, Answered | Ended):
            self._ended.release()

    def wait(self, batches: int = 1) -> None:
        for _ in range(batches):
            assert self._ended.acquire(timeout=20), "a batch was never answered"

    @property
    def ends(self) -> list[Any]:
        return [message for message, _ in self.frames if isinstance(message, Answered | Ended)]

    def results(self, batch: int, count: int) -> list[Result]:
        """What each request was told in the end; a failure wins over the pieces before it."""
        bodies: list[Any] = [None] * count
        for message, data in self.frames:
            if message.batch != batch:
                continue
            if isinstance(message, Answered):
                bodies = list(data)
            elif isinstance(message, Pieces):
                sources = iter(data)
                for piece in message.pieces:
                    if piece.failure:
                        bodies[piece.index] = piece.failure
                    elif piece.size or piece.is_last:
                        bodies[piece.index] = (bodies[piece.index] or b"") + (next(sources) if piece.size else b"")
            elif isinstance(message, Ended) and message.failure:
                bodies = [message.failure if body is None else body for body in bodies]
        assert None not in bodies, f"unanswered: {bodies}"
        return bodies


def home() -> Home:
    """A home whose jobs run on a thread of their own, named as the tests know it."""
    made: list[Home] = []
    is_there = threading.Event()

    def live() -> None:
        made.append(Home())
        is_there.set()
        made[0].serve()

    threading.Thread(target=live, name="model", daemon=True).start()
    assert is_there.wait(20)
    return made[0]


def config(**fields: Any) -> ModelConfig:
    return ModelConfig(**{"name": "m", "path": "m.py", **fields})


def context(**fields: Any) -> Context:
    return Context(config(**fields), "worker-1", "/models/m", {})


def program(target: Any, name: str = "", **fields: Any) -> Program:
    made = context(**fields)
    forms.initialize(target, made)
    return forms.make_program(target, name or getattr(target, "__name__", type(target).__name__), made)


def body_item(size: int, content_type: str = BYTES, headers: Sequence[tuple[bytes, bytes]] = ()) -> Item:
    return Item([PartHead("body", content_type, size)], b"id", list(headers))


def batch(number: int, bodies: Sequence[bytes], sender: Listener, content_type: str = BYTES, limit: int = 0) -> Batch:
    items = [
        Item([PartHead("body", content_type, len(body))], f"{number}-{index}".encode())
        for index, body in enumerate(bodies)
    ]
    return Batch(Run(number, 0, items), memoryview(b"".join(bodies)), sender, limit)


def nothing(*_: Any) -> None:
    """Stands where nothing needs to happen."""


def failing(error: BaseException) -> Callable[..., Any]:
    def fail(*_: Any) -> Any:
        raise error

    return fail


STAGES = ("preprocess", "inference", "postprocess")


class Doubler:
    """Native: a number in, its double out."""

    def decode(self, item: Any) -> int:
        return int(item)

    def inference(self, data: list[int]) -> list[int]:
        return [2 * number for number in data]

    def encode(self, output: int) -> str:
        return str(output)


def inline(target: Any, *bodies: bytes, content_type: str = "", limit: int = 0) -> tuple[list[Result], Listener]:
    """Run one batch on this thread."""
    listener = Listener()
    Inline(program(target), None, nothing, nothing).submit(batch(1, bodies, listener, content_type, limit))
    return listener.results(1, len(bodies)), listener


def staged(
    target: Any, *bodies: bytes, size: int = 0, threads: int = 1, content_type: str = ""
) -> tuple[list[Result], Listener]:
    """Run one batch through threads."""
    listener = Listener()
    micro = MicroBatching(micro_batch_size=size, parallelism=dict.fromkeys(STAGES, threads))  # type: ignore[arg-type]
    pipeline = Threaded(program(target), micro, None, nothing)
    pipeline.start()
    pipeline.submit(batch(1, bodies, listener, content_type))
    listener.wait()
    return listener.results(1, len(bodies)), listener


def messages(results: list[Result]) -> list[str]:
    return [result.message if isinstance(result, Failure) else "" for result in results]
