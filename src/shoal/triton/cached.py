"""CachedModel: a model whose answers are kept, and given again to whoever asks the same."""

from collections.abc import Callable
from itertools import count
from typing import Any, Protocol

from shoal.core.batch import Batch, Stages
from shoal.core.batcher import Batcher
from shoal.core.model import Life, Model
from shoal.core.request import OnAnswer, Outcome, Request
from shoal.errors import HandlerFailed
from shoal.payload import Buffer, Part, Payload, Result
from shoal.tensor import ANSWER
from shoal.triton.cache import ResponseCache, cache_key
from shoal.triton.inside import told_of

_editions = count()


class Tally(Protocol):
    """Who counts what the cache did for a model."""

    def hit(self, seconds: float, lookup: float) -> None:
        """Count an answer from the cache."""
        ...

    def miss(self, seconds: float) -> None:
        """Count one that was not there."""
        ...


class CachedModel(Model):
    """Looks every request up before it is queued."""

    def __init__(self, *model: Any, cache: ResponseCache[bytes], tally: Tally, now: Callable[[], float]) -> None:
        super().__init__(*model)
        self.cache = cache
        self.tally = tally
        self.now = now
        interface = self.config.interface
        self._outputs = [spec.name for spec in interface.outputs] if interface is not None else []
        self._edition = f"{self.version}/{next(_editions)}"  # what is loaded anew may answer otherwise

    def submit(self, request: Request) -> None:
        """Answer the request at once where the same was asked before; otherwise admit it."""
        if self.life is not Life.READY:
            super().submit(request)
            return
        began = self.now()
        key = self._key(request.payload)
        body = self.cache.get(key)
        lookup = self.now() - began
        self.cache.looked_up += lookup
        if body is None:
            request.on_answer = Keeper(self, key, request.on_answer, lookup).answer
            super().submit(request)
            return
        self._answer(request, body, lookup)

    def _answer(self, request: Request, body: bytes, lookup: float) -> None:
        """Give a kept answer; where answers keep the order of their requests it takes its turn."""
        batcher = self.scheduler.batcher
        order = batcher.order if isinstance(batcher, Batcher) else None
        if order is not None:
            order.add(request)
        now = self.now()
        batch = Batch(0, [request], "cached", now)
        batch.stages = Stages()
        request.answer(Result(body, ANSWER), True, now)
        batch.close(now, lambda: HandlerFailed("an answer that was kept is gone"))
        if order is None:
            batch.let_go()
        self.scheduler.stats.answered += batch.answered
        self.tally.hit(now - request.arrived, lookup)

    def _key(self, payload: Payload) -> bytes:
        """Everything that is asked is in it; not who asks, nor how long that may take."""
        told = told_of(payload)
        tensors = [(part.name, part.content_type, (), _bytes(part)) for part in payload.parts]
        sequence = told.sequence
        asked = {**told.parameters, " sequence": [sequence.id, sequence.start, sequence.end] if sequence else None}
        return cache_key(self.name, self._edition, tensors, told.outputs or self._outputs, asked)


class Keeper:
    """Hears an answer before its client does, and keeps it."""

    __slots__ = ("_key", "_lookup", "_model", "_on_answer")

    def __init__(self, model: CachedModel, key: bytes, on_answer: OnAnswer, lookup: float) -> None:
        self._model = model
        self._key = key
        self._on_answer = on_answer
        self._lookup = lookup

    def answer(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        """Keep the answer if it is a whole one, then hand it on."""
        if is_last and request.pieces == 1 and isinstance(outcome, Result) and outcome.content_type == ANSWER:
            self._keep(outcome)
        self._on_answer(request, outcome, is_last)

    def _keep(self, result: Result) -> None:
        model, size = self._model, len(result.body)
        began = model.now()
        if size and model.cache.fits(size):
            model.cache.put(self._key, bytes(result.body), size)
        spent = model.now() - began
        model.cache.inserted += spent
        model.tally.miss(self._lookup + spent)


def _bytes(part: Part) -> Buffer:
    data = part.data
    return data if isinstance(data, (bytes, bytearray, memoryview)) else data.view
