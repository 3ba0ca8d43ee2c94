"""What an archive says of itself: the manifest, in the forms of TorchServe, MMS and MMS 0.x, and model-config.yaml."""

import json
from pathlib import Path, PurePosixPath
from typing import Any, Literal

import msgspec
import yaml

from shoal.archive.entries import Limits
from shoal.errors import BadArchive

MANIFEST = "MAR-INF/MANIFEST.json"
LEGACY_MANIFEST = "MANIFEST.json"
MOST_VALUES = 100_000  # in a YAML file, aliases followed
DEEPEST = 64


class Manifest(msgspec.Struct, frozen=True, kw_only=True):
    """The parts of a manifest that a server acts upon; empty where nothing is said."""

    name: str = ""
    version: str = ""
    handler: str = ""
    runtime: str = ""
    envelope: str = ""
    serialized_file: str = ""
    model_file: str = ""
    requirements_file: str = ""
    config_file: str = ""
    flavour: Literal["", "torchserve", "mms"] = ""  # whose archiver wrote it, where that shows


def read_manifest(folder: Path, limits: Limits) -> Manifest | None:
    """Read the manifest of an unpacked archive; None where there is none. Raises BadArchive naming the key."""
    if (folder / MANIFEST).is_file():
        return _manifest(_Fields(_read_json(folder, MANIFEST, limits), MANIFEST))
    if (folder / LEGACY_MANIFEST).is_file():
        fields = _Fields(_read_json(folder, LEGACY_MANIFEST, limits), LEGACY_MANIFEST)
        if "Model" in fields.values:
            return _legacy(fields)
    return None


def read_settings(folder: Path, name: str, limits: Limits) -> dict[str, Any]:
    """Read a model-config.yaml. Raises BadArchive with the line that is wrong."""
    text = _read(folder, name, limits)
    try:
        values = yaml.safe_load(text)
    except yaml.YAMLError as error:
        mark = getattr(error, "problem_mark", None)
        where = f" line {mark.line + 1}" if mark is not None else ""
        raise BadArchive(f"{name}{where}: {getattr(error, 'problem', None) or error}") from None
    except (ValueError, RecursionError) as error:  # a date that is none; lists in lists without end
        raise BadArchive(f"{name}: {error}") from None
    if values is None:
        return {}
    if not isinstance(values, dict):
        raise BadArchive(f"{name}: settings by name are expected, and this is a {type(values).__name__}")
    _count(values, name)
    return {str(key): value for key, value in values.items()}


def _count(value: Any, name: str, depth: int = 0, seen: int = 0) -> int:
    """Count the values with aliases followed: a small file can stand for more than memory holds."""
    seen += 1
    if seen > MOST_VALUES or depth > DEEPEST:
        raise BadArchive(f"{name}: more than {MOST_VALUES} values, or nested deeper than {DEEPEST}")
    inner = list(value.values()) if isinstance(value, dict) else value if isinstance(value, list | tuple | set) else ()
    for one in inner:
        seen = _count(one, name, depth + 1, seen)
    return seen


class _Fields:
    """One object of a manifest, read key by key."""

    def __init__(self, values: Any, where: str) -> None:
        if not isinstance(values, dict):
            raise BadArchive(f"{where}: an object is expected, and this is {_kind(values)}")
        self.values: dict[str, Any] = values
        self._where = where

    def text(self, key: str) -> str:
        value = self.values.get(key)
        if value is None:
            return ""
        if not isinstance(value, str):
            raise BadArchive(f"{self._where}: {key} is a text, not {_kind(value)}")
        return value.strip()

    def file(self, key: str) -> str:
        """The name of a file that must be inside the archive."""
        name = self.text(key)
        path = PurePosixPath(name)
        if name and (path.is_absolute() or ".." in path.parts or "\\" in name or "\0" in name):
            raise BadArchive(f"{self._where}: {key} {name!a} leads out of the archive")
        return name

    def inner(self, key: str) -> "_Fields":
        return _Fields(self.values.get(key) or {}, f"{self._where}: {key}")


def _manifest(fields: _Fields) -> Manifest:
    model = fields.inner("model")
    return Manifest(
        name=model.text("modelName"),
        version=model.text("modelVersion"),
        handler=model.text("handler"),
        runtime=fields.text("runtime"),
        envelope=model.text("envelope"),
        serialized_file=model.text("serializedFile"),
        model_file=model.text("modelFile"),
        requirements_file=model.file("requirementsFile"),
        config_file=model.file("configFile"),
        flavour=_flavour(fields, model),
    )


def _flavour(fields: _Fields, model: _Fields) -> Literal["", "torchserve", "mms"]:
    """Tell whose it is: TorchServe's archiver always asked for a version, the other never did."""
    if "archiverVersion" in fields.values or "modelVersion" in model.values:
        return "torchserve"
    is_mms = "modelServerVersion" in fields.values or "specificationVersion" in fields.values
    return "mms" if is_mms and "serializedFile" not in model.values else ""


def _legacy(fields: _Fields) -> Manifest:
    """Read the root manifest of a 0.x archive: its service file is the handler."""
    model = fields.inner("Model")
    return Manifest(name=model.text("Model-Name"), handler=model.file("Service"), flavour="mms")


def _read_json(folder: Path, name: str, limits: Limits) -> Any:
    text = _read(folder, name, limits)
    try:
        # numbers as they were written: a version 1.10 is not 1.1
        return json.loads(text, parse_int=str, parse_float=str, parse_constant=str)
    except (ValueError, RecursionError) as error:
        raise BadArchive(f"{name} is not valid JSON: {error}") from None


def _read(folder: Path, name: str, limits: Limits) -> str:
    path = folder / name
    try:
        inside = path.resolve().is_relative_to(folder.resolve())
        with open(path, "rb") as file:
            content = file.read(limits.settings + 1)
        text = content.decode("utf-8-sig")
    except OSError as error:
        raise BadArchive(f"{name} cannot be read: {error.strerror}") from None
    except UnicodeDecodeError as error:
        raise BadArchive(f"{name} is not UTF-8: {error.reason} at byte {error.start}") from None
    if not inside:
        raise BadArchive(f"{name} leads out of the archive")
    if len(content) > limits.settings:
        raise BadArchive(f"{name} has more than {limits.settings} bytes")
    return text


def _kind(value: Any) -> str:
    names = {dict: "an object", list: "a list", bool: "true or false", str: "a text", type(None): "null"}
    return names.get(type(value), type(value).__name__)
