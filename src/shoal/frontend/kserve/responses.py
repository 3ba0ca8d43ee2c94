"""The answers of models that may give many to one request, counted one by one."""

from collections.abc import Callable

from shoal.core.model import Model
from shoal.core.request import OnAnswer, Outcome, Request
from shoal.errors import ServingError, Withdrawn
from shoal.tensor import ANSWER, split

OnResponse = Callable[[Model, int, str, float], None]  # which of the answers, how it was, and seconds it took


class Counted:
    """Hears a request's answers before its call does."""

    __slots__ = ("_index", "_model", "_now", "_on_answer", "_on_response", "_since")

    def __init__(self, on_answer: OnAnswer, model: Model, on_response: OnResponse, now: Callable[[], float]) -> None:
        self._on_answer = on_answer
        self._model = model
        self._on_response = on_response
        self._now = now
        self._since = now()
        self._index = 0

    def answer(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        """Count one piece of the answer and hand it on."""
        now = self._now()
        began = self._since if self._index else max(self._since, request.batched)
        self._on_response(self._model, self._index, kind_of(outcome), max(0.0, now - began))
        self._since = now
        self._index += 1
        self._on_answer(request, outcome, is_last)


def kind_of(outcome: Outcome) -> str:
    """Say what became of one answer, in the words of the statistics."""
    if isinstance(outcome, ServingError):
        return "cancel" if isinstance(outcome, Withdrawn) else "fail"
    if not outcome.body:
        return "empty_response"
    return "fail" if outcome.content_type == ANSWER and split(outcome.body)[0].error else "success"
