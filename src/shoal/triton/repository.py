"""Model repositories as they lie on disk: a folder for each model, in it its settings and a folder for each version."""

import os
import re
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import msgspec

from shoal.config import pbtxt
from shoal.config.scheduling import scheduling_of
from shoal.core.ensemble import Ensemble
from shoal.errors import ConfigError, SourceNotFound
from shoal.triton.checks import check_settings
from shoal.triton.form import config_json
from shoal.triton.normalise import deduce_backend, fill_in

VERSION = re.compile(r"[1-9]\d{0,17}")
NAME = re.compile(r"[\w-][\w.-]*")
MOST_FILES = 100_000  # looked at for changes in one model's folder
LARGEST_LABELS = 16 * 2**20  # bytes

Stamp = tuple[tuple[str, int, int], ...]  # path, time and size of every file


class Found(msgspec.Struct, frozen=True, eq=False):
    """A model's folder and what its settings say; `versions` are those that its policy chooses, lowest first."""

    name: str
    folder: Path
    message: Any
    versions: list[int]

    @property
    def steps(self) -> list[str]:
        """The models that it is made of, where it is an ensemble."""
        return list(dict.fromkeys(step.model_name for step in self.message.ensemble_scheduling.step))


class Folders:
    """The repositories a server was given; the first is looked at first, and no model may be in two."""

    def __init__(self, roots: Sequence[Path], *, config_name: str = "", must_have_settings: bool = False) -> None:
        for root in roots:
            if not root.is_dir():
                raise ConfigError(f"model repository not found: {root} is no folder")
        self._roots = [root.resolve() for root in roots]
        self._config_name = config_name
        self._must_have_settings = must_have_settings

    def names(self) -> list[str]:
        """Name every model that has a version, sorted."""
        found = set()
        for root in self._roots:
            with os.scandir(root) as entries:
                found |= {entry.name for entry in entries if not entry.name.startswith(".") and _is_folder(entry)}
        return sorted(name for name in found if any(versions_in(root / name) for root in self._roots))

    def find(self, name: str) -> Found:
        """Read a model's settings; raises SourceNotFound, or ConfigError with what is wrong with them."""
        folder = self._folder(name)
        path = self._settings_file(folder)
        if path is None and self._must_have_settings:
            raise ConfigError(f"{folder / 'config.pbtxt'} is missing, and settings are not to be completed")
        message = pbtxt.read(path) if path else pbtxt.parse("", "")
        return understand(name, folder, message, deduce=not self._must_have_settings)

    def find_with(self, name: str, config: str | bytes) -> Found:
        """Read a model's folder with other settings than its own, given in JSON."""
        return understand(
            name, self._folder(name), pbtxt.parse_json(config, "config"), deduce=not self._must_have_settings
        )

    def stamp(self, name: str) -> Stamp:
        """Tell what every file of a model was when it was last written; empty where the model is gone."""
        files: list[tuple[str, int, int]] = []
        for root in self._roots:
            for folder, _, names in os.walk(root / name, followlinks=True):
                for file in names[: MOST_FILES - len(files)]:
                    path = os.path.join(folder, file)
                    try:
                        status = os.stat(path)
                    except OSError:
                        continue  # gone since it was listed
                    files.append((path, status.st_mtime_ns, status.st_size))
                if len(files) >= MOST_FILES:
                    break
            files += [(str(root / name / str(version)), 0, 0) for version in versions_in(root / name)]
        return tuple(sorted(files))

    def is_twice(self, name: str) -> bool:
        """Say whether more than one repository has a model of this name."""
        return sum((root / name).is_dir() for root in self._roots) > 1

    def _folder(self, name: str) -> Path:
        check_name(name)
        folders = [root / name for root in self._roots if (root / name).is_dir()]
        if not folders:
            raise SourceNotFound(f"model '{name}' is in no model repository")
        if len(folders) > 1:
            raise ConfigError(f"model '{name}' is in more than one repository: {', '.join(map(str, folders))}")
        return folders[0]

    def _settings_file(self, folder: Path) -> Path | None:
        named = folder / "configs" / f"{self._config_name}.pbtxt"
        if self._config_name and named.is_file():
            return named
        path = folder / "config.pbtxt"
        return path if path.exists() else None


def check_name(name: str) -> None:
    """Refuse what is no name of a model."""
    if not NAME.fullmatch(name):
        raise ConfigError(f"a model's name is made of letters, digits, '.', '_' and '-', got {name!r}")


def understand(name: str, folder: Path, message: Any, *, deduce: bool) -> Found:
    """Fill in what settings leave out, check them, and choose versions."""
    if message.name and message.name != name:
        raise ConfigError(
            f"unexpected directory name '{name}' for model '{message.name}', directory name must equal model name"
        )
    message.name = name
    present = versions_in(folder)
    first = folder / min(map(str, present)) if present else None
    deduce_backend(message, set(os.listdir(first)) if first and deduce else set())
    check_settings(message)
    if message.WhichOneof("scheduling_choice") == "ensemble_scheduling":
        _check_graph(message)
    fill_in(message)
    return Found(name, folder, message, chosen(message.version_policy, present))


def _check_graph(message: Any) -> None:
    """See that no step of an ensemble waits for itself."""
    steps = scheduling_of(config_json(message), message.name).ensemble_scheduling
    assert steps is not None
    Ensemble(message.name, [tensor.name for tensor in message.input], [tensor.name for tensor in message.output], steps)


def versions_in(folder: Path) -> list[int]:
    """Find the version folders: whole numbers without a leading zero; lowest first."""
    try:
        with os.scandir(folder) as entries:
            return sorted(int(entry.name) for entry in entries if VERSION.fullmatch(entry.name) and _is_folder(entry))
    except OSError:
        return []


def chosen(policy: Any, present: Sequence[int]) -> list[int]:
    """Choose the versions that are served; a policy that says nothing means all."""
    match policy.WhichOneof("policy_choice"):
        case "latest":
            count = policy.latest.num_versions
            return sorted(present)[-count:] if count else []
        case "specific":
            return sorted(set(present) & set(policy.specific.versions))
    return sorted(present)


def labels_of(folder: Path, name: str) -> list[str]:
    """Read the names of an output's classes, one on each line."""
    try:
        with open(folder / name, "rb") as file:
            data = file.read(LARGEST_LABELS + 1)
    except OSError as error:
        raise ConfigError(f"cannot read {folder / name}: {error.strerror}") from None
    if len(data) > LARGEST_LABELS:
        raise ConfigError(f"{folder / name} is larger than {LARGEST_LABELS} bytes")
    return data.decode(errors="replace").splitlines()


def _is_folder(entry: "os.DirEntry[str]") -> bool:
    try:
        return entry.is_dir()
    except OSError:
        return False
