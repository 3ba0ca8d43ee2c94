"""Scope: for which batch a model calls others, and whether anybody still waits for it."""

from collections.abc import Callable
from contextvars import ContextVar, Token


class Scope:
    """The batch that a call is made for: whether anybody waits for it, and whether it holds its instance.

    Within it calls are made for this batch, also from the coroutines that are begun meanwhile.
    """

    __slots__ = ("_before", "holds", "is_wanted")

    def __init__(self, is_wanted: Callable[[], bool], *, holds: bool) -> None:
        self.is_wanted = is_wanted
        self.holds = holds
        self._before: Token[Scope] | None = None

    def __enter__(self) -> None:
        self._before = _scope.set(self)

    def __exit__(self, *_: object) -> None:
        assert self._before is not None, "it was entered"
        _scope.reset(self._before)


OPEN = Scope(lambda: True, holds=False)  # of a thread that the model started itself
_scope: ContextVar[Scope] = ContextVar("scope", default=OPEN)


def current() -> Scope:
    """Give the scope of the calling thread or coroutine."""
    return _scope.get()
