"""What is looked at before an archive is written: is everything there, does the handler import, are settings known?"""

import difflib
import json
import os
import re
import subprocess
import sys
import tempfile
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Literal

import msgspec

from shoal.archive.entries import Limits
from shoal.archive.manifest import read_settings
from shoal.config.registration import HANDLER_KEYS, KEYS, usable
from shoal.errors import BadArchive

IMPORT_WITHIN = 60.0  # s
LOADABLE = (".pt", ".onnx", ".so")  # what upstream's base handler loads without a model file
REQUIREMENT = re.compile(
    r"[A-Za-z0-9]([A-Za-z0-9._-]*[A-Za-z0-9])?\s*(\[[\w\s,.-]*\])?\s*"
    r"(@\s*\S.*|\(?\s*((===|==|~=|!=|<=|>=|<|>)\s*[\w.*+!-]+\s*,?\s*)*\)?)\s*(;.*)?(\s+--\S.*)?"
)


class Finding(msgspec.Struct, frozen=True):
    """Something a person should know before the archive is used; an error keeps it from being written."""

    level: Literal["error", "warning", "fine"]
    text: str


def check_handler(handler: str, members: Mapping[str, Path], within: float = IMPORT_WITHIN) -> Finding:
    """Import the handler in a process of its own, among the files it will have beside it."""
    with tempfile.TemporaryDirectory(prefix="shoal-archive-") as name:
        for member, source in members.items():
            target = Path(name) / member
            target.parent.mkdir(parents=True, exist_ok=True)
            target.symlink_to(source.absolute())
        command = [sys.executable, "-c", "from shoal.archive.probe import main; main()", handler]
        environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "1"}
        try:
            done = subprocess.run(  # noqa: S603 - the user's own handler, which is what is asked for
                command, cwd=name, env=environment, capture_output=True, text=True, timeout=within, check=False
            )
        except subprocess.TimeoutExpired:
            return Finding("warning", f"handler {handler}: importing it was not done within {within:g} s")
    return _verdict(handler, done.stdout, done.stderr, members)


def _verdict(handler: str, output: str, errors: str, members: Mapping[str, Path]) -> Finding:
    try:
        said = json.loads(output.strip().splitlines()[-1])
    except (ValueError, IndexError):
        tail = (errors.strip().splitlines() or ["it ended without a word"])[-1]
        return Finding("error", f"handler {handler}: importing it ended the process: {tail}")
    if "found" in said:
        return Finding("fine", f"handler {handler}: {said['found']}")
    if "missing" not in said:
        return Finding("error", f"handler {handler}: {said['error']}\n{said.get('traceback', '')}".rstrip())
    missing = said["missing"]
    text = f"handler {handler}: there is no module {missing} here"
    top = missing.split(".")[0]
    if any(member in (f"{top}.py", f"{top}/__init__.py") for member in members):
        return Finding("error", f"{text}\n{said['traceback']}".rstrip())
    return Finding("warning", f"{text}; the server needs it, or the archive (--extra-files, --requirements-file)")


def check_weights(path: Path, *, has_model_file: bool, is_built_in: bool) -> Iterator[Finding]:
    """Look at the serialized file."""
    try:
        with open(path, "rb") as file:
            if not file.read(1):
                yield Finding("error", f"{path} is empty")
    except OSError as error:
        yield Finding("error", f"{path} cannot be read: {error.strerror}")
    if is_built_in and not has_model_file and path.suffix not in LOADABLE:
        yield Finding(
            "warning", f"{path.name}: without --model-file the built-in handlers load only {', '.join(LOADABLE)}"
        )


def check_requirements(path: Path, members: Mapping[str, Path]) -> Iterator[Finding]:
    """Read a requirements file line by line."""
    try:
        lines = path.read_text("utf-8").splitlines()
    except (OSError, UnicodeDecodeError) as error:
        yield Finding("error", f"{path} cannot be read: {error}")
        return
    for number, raw in enumerate(lines, 1):
        line = re.sub(r"(^|\s)#.*$", "", raw).strip().removesuffix("\\").strip()
        where = f"{path.name} line {number}"
        if not line:
            continue
        if line.startswith("-"):
            option, _, value = line.replace("=", " ", 1).partition(" ")
            if option in ("-r", "-c", "--requirement", "--constraint") and value.strip() not in members:
                yield Finding("warning", f"{where}: {value.strip()} is not in the archive; add it with --extra-files")
        elif "/" in line or line.endswith((".whl", ".tar.gz")):
            if "://" not in line and line.removeprefix("./") not in members:
                yield Finding("warning", f"{where}: {line} is not in the archive; add it with --extra-files")
        elif not REQUIREMENT.fullmatch(line):
            yield Finding("error", f"{where}: {line!r} is not a requirement, such as `numpy>=1.26`")


def check_settings(path: Path) -> Iterator[Finding]:
    """Read a model-config.yaml as a server will; a key that is nearly one of the server's is pointed out."""
    try:
        settings = read_settings(path.absolute().parent, path.name, Limits())
    except BadArchive as error:
        yield Finding("error", str(error))
        return
    notes: list[str] = []
    usable(settings, notes)
    for note in notes:
        yield Finding("warning", note)
    for key in settings:
        if key not in KEYS and key not in HANDLER_KEYS and (near := difflib.get_close_matches(key, KEYS, 1, 0.75)):
            yield Finding("warning", f"{path.name}: {key} is not a setting of the server; did you mean {near[0]}?")
