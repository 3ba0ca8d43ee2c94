"""`run_handler`: items through the same reading, stages and writing as in a worker, without one."""

import contextlib
import json
import os
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.config.load import model_config
from shoal.config.model import ModelConfig
from shoal.payload import Buffer
from shoal.pool.link import error_of
from shoal.upstream import finder
from shoal.wire.messages import Answered, Ended, Failure, Item, PartHead, Piece, Pieces, Run
from shoal.wire.tray import Laid
from shoal.worker import forms
from shoal.worker.backends import choice
from shoal.worker.batch import Batch
from shoal.worker.handler import Context
from shoal.worker.items import form_of, write
from shoal.worker.pipeline import Inline
from shoal.worker.program import Program

Target = str | Path | type | Callable[..., Any]


def run_handler(target: Target | object, items: Sequence[object], **config: Any) -> list[Any]:
    """Give what clients would get for these items as one batch; an item that fails has its error in its place.

    The target is a file, folder, class, object or function; `config` is a model's settings, such as `parameters`.
    An item is bytes, str, or what JSON can say, and results come back as a client would read them; a streamed
    one is the list of its pieces.
    """
    bodies = [encode(item) for item in items]
    heads = [Item([PartHead("body", content_type, len(body))]) for body, content_type in bodies]
    listener = _Listener(len(items))
    with _program(target, config) as program:
        run = Run(1, 0, heads)
        data = memoryview(b"".join(body for body, _ in bodies))
        Inline(program, None, _ignore, _never).submit(Batch(run, data, listener))
    return listener.results()


@contextlib.contextmanager
def _program(target: Target | object, config: Mapping[str, Any]) -> Iterator[Program]:
    """Load a handler; whatever loading does to this process is undone."""
    is_path = isinstance(target, str | Path)
    name = Path(str(target)).stem if is_path else getattr(target, "__name__", type(target).__name__)
    named = "".join(c if c.isalnum() or c in "._-" else "_" for c in name)
    values = {"name": named or "model", "path": str(target) if is_path else "", **config}
    settings = model_config(values, "config")
    folder, path, modules, environment = Path.cwd(), list(sys.path), set(sys.modules), dict(os.environ)
    try:
        yield choice.load(settings, "testing") if is_path else _loaded(target, name, settings)
    finally:
        os.chdir(folder)
        sys.path[:] = path
        os.environ.clear()
        os.environ.update(environment)
        finder.uninstall()
        own = str(Path(str(target)).resolve()) if is_path else ""
        for name, module in list(sys.modules.items()):
            file = getattr(module, "__file__", None) or ""
            if name not in modules and (name.startswith("shoal_model_") or (own and file.startswith(own))):
                del sys.modules[name]


def _loaded(target: object, name: str, settings: ModelConfig) -> Program:
    os.environ.update(settings.environment)
    manifest = {"model": {"modelName": settings.name, "modelVersion": settings.version, "handler": name}}
    context = Context(settings, "testing", str(Path.cwd()), manifest)
    handler = target() if isinstance(target, type) else target
    forms.initialize(handler, context)
    return forms.make_program(handler, name, context)


class _Listener:
    """Where the pipeline sends what a front process would hear."""

    is_gone = False

    def __init__(self, count: int) -> None:
        self._pieces: list[list[Any]] = [[] for _ in range(count)]
        self._failures: dict[int, Failure] = {}
        self._streamed: set[int] = set()
        self._open = set(range(count))

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        bodies = map(bytes, data)
        if isinstance(message, Answered):
            types = message.content_types * (len(message.sizes) if len(message.content_types) == 1 else 1)
            for index, (content_type, body) in enumerate(zip(types, bodies, strict=True)):
                self._pieces[index].append(decode(body, content_type))
            self._open.clear()
        elif isinstance(message, Pieces):
            for piece in message.pieces:
                self._hear(piece, bodies)
        elif isinstance(message, Ended) and message.failure:
            self._failures |= dict.fromkeys(self._open, message.failure)
            self._open.clear()

    def results(self) -> list[Any]:
        assert not self._open, f"the pipeline left items {sorted(self._open)} without an answer"
        return [self._result(index) for index in range(len(self._pieces))]

    def _hear(self, piece: Piece, bodies: Iterator[bytes]) -> None:
        if piece.failure:
            self._failures[piece.index] = piece.failure
        elif piece.size or piece.content_type:  # the end of a stream has neither
            self._pieces[piece.index].append(decode(next(bodies), piece.content_type))
        if piece.is_last:
            self._open.discard(piece.index)
        else:
            self._streamed.add(piece.index)

    def _result(self, index: int) -> Any:
        if failure := self._failures.get(index):
            return error_of(failure)
        pieces = self._pieces[index]
        return pieces if index in self._streamed or not pieces else pieces[0]


def _ignore(batch: Batch) -> None:
    """Nobody counts batches here."""


def _never() -> None:
    """Nobody cancels here."""


def encode(data: object) -> tuple[Buffer, str]:
    """Bytes and content type of an item: bytes and str as they are, anything else as JSON."""
    body, content_type = write(data)
    return bytes(body.view) if isinstance(body, Laid) else body, content_type


def decode(body: bytes, content_type: str) -> Any:
    """What a body says: an object, text or bytes by its content type."""
    match form_of(content_type):
        case "json":
            return json.loads(body)
        case "text":
            return body.decode()
        case _:
            return body
