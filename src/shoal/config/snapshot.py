"""Snapshots: which models a TorchServe has and how they are set, kept as a file that a later start restores."""

import json
import logging
import os
import re
import tempfile
from collections.abc import Callable, Mapping, Sequence
from datetime import datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from shoal.config.properties import write
from shoal.errors import ConfigError

log = logging.getLogger("shoal")
FILE_NAME = re.compile(r"\d{17}-(startup|snapshot|shutdown)\.cfg")
Kind = Literal["startup", "snapshot", "shutdown"]
NUMBERS = {"minWorkers": 1, "maxWorkers": 1, "batchSize": 1, "maxBatchDelay": 100}
OPTIONAL = {"responseTimeout": 120, "startupTimeout": 120}


class SnapshotModel(msgspec.Struct, frozen=True, kw_only=True):
    """One version of a model, as a snapshot keeps it."""

    name: str
    version: str
    is_default: bool
    archive: str  # what it was registered by: a name in the model store, or an absolute path
    min_workers: int
    max_workers: int
    batch_size: int = 1
    max_batch_delay: float = 100.0  # ms
    response_timeout: float = 120.0  # s
    startup_timeout: float = 120.0  # s
    runtime: str = "python"


class Snapshots:
    """Writes snapshots into a folder; without a folder it does nothing. `now` gives Unix time."""

    def __init__(self, folder: str, properties: Mapping[str, str], now: Callable[[], float]) -> None:
        self._folder = folder
        self._properties = {key: value for key, value in properties.items() if key != "model_snapshot"}
        self._now = now
        self._last = 0

    def save(self, kind: Kind, models: Sequence[SnapshotModel]) -> Path | None:
        """Write what the server has now; a disk that is full is logged and hurts nothing else."""
        if not self._folder:
            return None
        self._last = max(int(self._now() * 1000), self._last + 1)  # names tell the order
        name = file_name(kind, self._last)
        content = json.dumps(snapshot_of(name, self._last, models), indent=2)
        text = write({**self._properties, "model_snapshot": content}, ["Saving snapshot"])
        try:
            return _replace(Path(self._folder), name, text)
        except OSError as error:
            log.error("cannot save snapshot %s in %s: %s", name, self._folder, error.strerror)
            return None


def file_name(kind: Kind, milliseconds: int) -> str:
    """Name the file of a snapshot by when it was taken, in local time."""
    moment = datetime.fromtimestamp(milliseconds // 1000)
    return f"{moment:%Y%m%d%H%M%S}{milliseconds % 1000:03d}-{kind}.cfg"


def snapshot_of(name: str, milliseconds: int, models: Sequence[SnapshotModel]) -> dict[str, Any]:
    """Give the content of a snapshot, in upstream's words."""
    by_name: dict[str, dict[str, Any]] = {}
    for model in models:
        by_name.setdefault(model.name, {})[model.version] = {
            "defaultVersion": model.is_default,
            "marName": model.archive,
            "minWorkers": model.min_workers,
            "maxWorkers": model.max_workers,
            "batchSize": model.batch_size,
            "maxBatchDelay": int(model.max_batch_delay),
            "responseTimeout": int(model.response_timeout),
            "startupTimeout": int(model.startup_timeout),
            "runtimeType": model.runtime,
        }
    return {"name": name, "modelCount": len(models), "created": milliseconds, "models": by_name}


def newest(folder: str) -> Path | None:
    """Find the last snapshot that was written into a folder."""
    try:
        names = [name for name in os.listdir(folder) if FILE_NAME.fullmatch(name)]
    except OSError:
        return None
    return Path(folder, max(names)) if names else None


def read_snapshot(text: str, model_store: str) -> dict[str, Any]:
    """Read and check `model_snapshot`; what older ones leave out is filled in. One missing archive refuses all."""
    try:
        snapshot = json.loads(text)
    except ValueError as error:
        raise ConfigError(f"model_snapshot is not JSON: {error}") from None
    models = snapshot.get("models") if isinstance(snapshot, dict) else None
    if not isinstance(models, dict):
        raise ConfigError('model_snapshot: expected {"name": ..., "models": {...}}')
    checked = {}
    for name, versions in models.items():
        if not isinstance(versions, dict) or not versions:
            raise ConfigError(f"model_snapshot: expected the versions of {name}, got {versions!r}")
        checked[name] = {
            version: _checked(settings, f"{name}, version {version}", model_store)
            for version, settings in versions.items()
        }
        if sum(settings["defaultVersion"] for settings in checked[name].values()) != 1:
            raise ConfigError(f"model_snapshot: one version of {name} must be the default one")
    return {**snapshot, "models": checked}


def _checked(settings: object, where: str, model_store: str) -> dict[str, Any]:
    if not isinstance(settings, dict):
        raise ConfigError(f"model_snapshot: expected the settings of {where}, got {settings!r}")
    archive = settings.get("marName")
    if not isinstance(archive, str) or not _is_there(archive, model_store):
        raise ConfigError(
            f"model_snapshot: the archive of {where}, {archive!r}, is not in {model_store or 'any store'}"
        )
    found = {"runtimeType": "python", "defaultVersion": False, **OPTIONAL, **settings}
    for key in (*NUMBERS, *OPTIONAL):
        value = found.setdefault(key, NUMBERS.get(key))
        least = 0 if key in ("minWorkers", "maxWorkers", "maxBatchDelay") else 1
        if type(value) is not int or value < least:
            raise ConfigError(f"model_snapshot: {key} of {where} must be {least} or more, got {value!r}")
    found["defaultVersion"] = found["defaultVersion"] is True
    return found


def _is_there(archive: str, model_store: str) -> bool:
    path = Path(archive)
    if not path.name or ".." in path.parts:
        return False
    return bool(model_store and Path(model_store, path.name).exists()) or (path.is_absolute() and path.exists())


def _replace(folder: Path, name: str, text: str) -> Path:
    """Write a file whole or not at all."""
    folder.mkdir(parents=True, exist_ok=True)
    handle, temporary = tempfile.mkstemp(prefix=".snapshot-", dir=folder)
    try:
        with os.fdopen(handle, "w", encoding="ascii") as file:
            file.write(text)
        os.replace(temporary, folder / name)
    except BaseException:
        os.unlink(temporary)
        raise
    return folder / name
