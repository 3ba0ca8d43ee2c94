"""Findings: what a doctor says of a server's settings or of one model, each with the change that would help."""

from collections.abc import Sequence
from typing import Literal

import msgspec

Level = Literal["works", "differs", "fails"]
ORDER: tuple[Level, ...] = ("works", "differs", "fails")
WORDS = {"works": "works", "differs": "differs", "fails": "will not work"}
COUNTED = {"works": "work", "differs": "work with differences", "fails": "will not work"}


class Finding(msgspec.Struct, frozen=True):
    """One thing that a person should know."""

    level: Level
    text: str
    change: str = ""  # exactly what to do about it; empty: nothing has to be done


class Subject(msgspec.Struct, frozen=True):
    """A server's settings, or one version of a model."""

    name: str
    kind: str  # such as "TorchServe archive"
    findings: list[Finding]

    @property
    def level(self) -> Level:
        """The worst that was found."""
        return max((finding.level for finding in self.findings), key=ORDER.index, default="works")


class Diagnosis(msgspec.Struct, frozen=True):
    """Everything that was looked at."""

    target: str
    what: str  # that was found there
    subjects: list[Subject]
    start: str = ""  # the command that serves it here
    format: int = 1

    @property
    def level(self) -> Level:
        """The worst of all."""
        return max((subject.level for subject in self.subjects), key=ORDER.index, default="works")


def differs(texts: Sequence[str]) -> list[Finding]:
    """Make findings of notes that the server itself would log."""
    return [Finding("differs", text) for text in texts]
