"""The requests of a batch as its handler sees them: made when asked for, and what was said about each answer kept."""

from collections.abc import Callable, Sequence
from typing import Any, Protocol

from shoal.wire.messages import Item


class Said(Protocol):
    """What a handler said about an answer."""

    @property
    def status(self) -> int:
        """The status it chose."""
        ...

    @property
    def reason(self) -> str:
        """The reason phrase it chose; empty when it chose none."""
        ...

    @property
    def content_type(self) -> str:
        """The content type it chose; empty when it chose none."""
        ...

    @property
    def headers(self) -> list[tuple[str, str]]:
        """The headers it chose, without the content type."""
        ...


class Requests:
    """The requests of a batch or micro-batch, in the order of the data its handler sees; looked at when asked for."""

    __slots__ = ("_items", "_make", "_views")

    def __init__(
        self,
        items: Sequence[Item],
        make: Callable[[Item], Said],
        views: list[Any] | None = None,
    ) -> None:
        self._items = items
        self._make = make  # what a handler sees of each
        self._views = views

    def __len__(self) -> int:
        return len(self._items)

    @property
    def is_untouched(self) -> bool:
        """Whether no handler asked for or said anything."""
        return self._views is None

    def show_as(self, make: Callable[[Item], Said]) -> None:
        """Let handlers see something else of them."""
        self._make = make

    def id(self, index: int) -> str:
        """The id of one of them."""
        return self._items[index].id.decode("latin-1")

    def view(self, index: int) -> Any:
        """One of them."""
        if self._views is None:
            self._views = [None] * len(self._items)
        view = self._views[index]
        if view is None:
            view = self._views[index] = self._make(self._items[index])
        return view

    def said(self, index: int) -> Said | None:
        """One of them if a handler touched it."""
        return None if self._views is None else self._views[index]

    def keep(self, indices: Sequence[int]) -> "Requests":
        """Only these of them."""
        views = None if self._views is None else [self._views[index] for index in indices]
        return Requests([self._items[index] for index in indices], self._make, views)
