"""What a target is: seeds, words of its format, and a trial that raises Finding where something is not as it must."""

import logging
from collections.abc import Hashable, Sequence
from random import Random
from typing import Protocol


class Finding(AssertionError):
    """An input showed a mistake."""


class Target(Protocol):
    """Something that takes bytes from strangers."""

    @property
    def name(self) -> str:
        """Its name on the command line."""
        ...

    @property
    def share(self) -> int:
        """Its part of the inputs, of 1000."""
        ...

    @property
    def seeds(self) -> Sequence[bytes]:
        """Good inputs."""
        ...

    @property
    def words(self) -> Sequence[bytes]:
        """What the format is made of."""
        ...

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Give an input to it and look at all that came of it; what it returns tells one kind of outcome apart."""
        ...


class Witness(logging.Handler):
    """Hears what is logged as an error: code that caught what it did not foresee says so there."""

    def __init__(self, *loggers: str) -> None:
        super().__init__(logging.ERROR)
        self.heard: list[str] = []
        for name in loggers:
            logger = logging.getLogger(name)
            logger.propagate = False
            logger.handlers[:] = [self]

    def emit(self, record: logging.LogRecord) -> None:
        self.heard.append(self.format(record))

    def check(self) -> None:
        """Raise Finding if anything was heard since the last time."""
        if self.heard:
            heard, self.heard = self.heard, []
            raise Finding("\n".join(heard))


def expect(is_so: bool, words: str) -> None:
    """Raise Finding unless it is so."""
    if not is_so:
        raise Finding(words)
