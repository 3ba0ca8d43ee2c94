"""Handlers that are known by name and not provided: they load as classes, and say why when a model uses them."""

from typing import Any, NoReturn

from shoal.upstream.ts.torch_handler.base_handler import BaseHandler


def refuse(name: str, why: str) -> NoReturn:
    """Say that something of this name is not provided, and what would serve instead."""
    raise ImportError(f"{name} is not provided: {why}")


class MissingHandler(BaseHandler):
    """The base of such handlers; `why` is the sentence that the load fails with."""

    why = ""

    def initialize(self, context: Any) -> None:
        """Fail, naming the handler that comes from here, not the user's class."""
        refuse(next(kind.__name__ for kind in type(self).__mro__ if "why" in vars(kind)), self.why)
