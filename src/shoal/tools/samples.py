"""Sample inputs: a file, a folder of files, or text written on the command line; each with its content type."""

import json
import mimetypes
import os
from collections.abc import Sequence
from pathlib import Path

import msgspec

from shoal.errors import InvalidInput

JSON = "application/json"
TEXT = "text/plain; charset=utf-8"
BYTES = "application/octet-stream"
MOST_FILES = 1000
MOST_BYTES = 512 * 1024 * 1024  # of all samples together


class Sample(msgspec.Struct, frozen=True):
    """One body."""

    body: bytes
    content_type: str
    name: str  # the file it came from, or "text"


def read_samples(inputs: Sequence[str], content_type: str = "") -> list[Sample]:
    """Read what `--input` named; a content type that is given is everybody's."""
    samples = [sample for text in inputs for sample in _read(text, content_type)]
    if (total := sum(len(sample.body) for sample in samples)) > MOST_BYTES:
        raise InvalidInput(f"the samples have {total} bytes together; {MOST_BYTES} are allowed: give fewer or smaller")
    return samples


def _read(text: str, content_type: str) -> list[Sample]:
    try:
        if os.path.isdir(text):
            return [_file(file, content_type) for file in _files(Path(text))]
        if os.path.isfile(text):
            return [_file(Path(text), content_type)]
    except OSError as error:
        raise InvalidInput(f"cannot read {error.filename or text}: {error.strerror}") from None
    return [_text(text, content_type)]


def _files(folder: Path) -> list[Path]:
    files = sorted(file for file in folder.iterdir() if file.is_file() and not file.name.startswith("."))
    if not files:
        raise InvalidInput(f"the folder {folder} has no files to send")
    if len(files) > MOST_FILES:
        raise InvalidInput(f"the folder {folder} has {len(files)} files; {MOST_FILES} are allowed")
    return files


def _file(path: Path, content_type: str) -> Sample:
    return Sample(path.read_bytes(), content_type or type_of(path.name), path.name)


def type_of(name: str) -> str:
    """Guess a content type by a file's name."""
    guessed = mimetypes.guess_type(name)[0] or BYTES
    return TEXT if guessed == "text/plain" else guessed


def _text(text: str, content_type: str) -> Sample:
    """Take text for what it is: JSON, else a name that leads nowhere, else plain text."""
    if _is_json(text):
        return Sample(text.encode(), content_type or JSON, "text")
    if _looks_like_a_path(text):
        raise InvalidInput(f"no input at {text!r}: there is no such file or folder, and it is no JSON text")
    return Sample(text.encode(), content_type or TEXT, "text")


def _is_json(text: str) -> bool:
    try:
        json.loads(text)
    except ValueError:
        return False
    return True


def _looks_like_a_path(text: str) -> bool:
    return " " not in text and ("/" in text or bool(Path(text).suffix))
