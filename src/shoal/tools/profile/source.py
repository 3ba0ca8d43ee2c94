"""From what a person names (a Python file, a folder, an archive) to a model's settings, unpacked where needed."""

import asyncio
import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from typing import Any

from shoal.archive.intake import Intake
from shoal.archive.source import find_source, name_of
from shoal.archive.store import ENDINGS
from shoal.config.deployment import Defaults
from shoal.config.load import model_config
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.errors import InvalidInput

MANIFEST = "MAR-INF/MANIFEST.json"


@contextlib.contextmanager
def settings_of(model: str, overrides: Mapping[str, Any]) -> Iterator[ModelConfig]:
    """Give a model's settings; what had to be unpacked is there while the block runs."""
    source = find_source(model)
    is_packed = (source / MANIFEST).is_file() if source.is_dir() else source.name.lower().endswith(ENDINGS)
    if not is_packed:
        yield model_config({"name": name_of(source), "path": str(source), **overrides}, model)
        return
    intake = Intake(ServerConfig(), Defaults(), {})
    try:
        yield asyncio.run(intake.prepare_source(source, overrides))
    finally:
        intake.close()


def overrides_of(options: Mapping[str, Any]) -> dict[str, Any]:
    """Give what the options --handler, --device and --parameter say, as a model's settings."""
    found = {key: options[key] for key in ("handler", "device") if options[key]}
    return {**found, "parameters": parameters_of(options["parameters"])} if options["parameters"] else found


def parameters_of(texts: Sequence[str]) -> dict[str, Any]:
    """Read NAME=VALUE; a value that is JSON is what it says, anything else is text."""
    found: dict[str, Any] = {}
    for text in texts:
        name, equals, value = text.partition("=")
        if not equals or not name:
            raise InvalidInput(f"--parameter takes NAME=VALUE, got {text!r}")
        try:
            found[name] = json.loads(value)
        except ValueError:
            found[name] = value
    return found
