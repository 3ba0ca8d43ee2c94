"""Where the `url` of a registration leads: to a download, or to something in the model store, by TorchServe's rules."""

from collections.abc import Sequence
from pathlib import Path
from typing import Literal

import msgspec

from shoal.archive.fetch import is_url
from shoal.errors import InvalidInput, SourceNotFound

AT_START = (".mar", ".model", ".tar.gz")  # what `load_models=all` takes, besides folders
ENDINGS = (".mar", ".tar.gz", ".tgz", ".model", ".war")


class Place(msgspec.Struct, frozen=True):
    """What was found, and where."""

    kind: Literal["download", "archive", "folder", "file"]  # `file`: a Python file, served as it is
    path: Path  # of a download: empty


class Store:
    """A folder of archives, and the rules for what a name means in it.

    `compat` is whose rules: TorchServe's drop every folder of a name and take absolute folders from anywhere; without
    it nothing outside the store is found, and links that lead out of it are not followed.
    """

    def __init__(self, folder: str, compat: str, *, python_files: bool) -> None:
        self.folder = Path(folder).resolve() if folder else None
        self._compat = compat
        self._python_files = python_files

    def find(self, url: str) -> Place:
        """Resolve what a client named. Raises SourceNotFound."""
        if not url:
            raise SourceNotFound("empty url")
        if ".." in url:
            raise SourceNotFound(f"Relative path is not allowed in url: {url}")
        if is_url(url):
            return Place("download", Path())
        try:
            found = self._find(url)
        except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, links in a circle: no file has such a name
            found = None
        if found is not None:
            return found
        if self.folder is None and not url.startswith("/"):
            if not self._compat:
                raise InvalidInput("the server has no model store; start it with --model-store DIR to register by name")
            raise SourceNotFound("Model store has not been configured.")
        where = "in model store" if self._compat == "mms" else "at"
        raise SourceNotFound(f"Model not found {where}: {url}")

    def _find(self, url: str) -> Place | None:
        name = Path(url).name
        names = [name] if self._compat == "torchserve" or Path(url).is_absolute() else [url, name]
        if self.folder is not None and name:
            for candidate in names:
                for ending in ("", *ENDINGS, *((".py",) if self._python_files else ())):
                    place = self._look(self.folder / f"{candidate}{ending}")
                    if place is not None and not (ending and place.kind == "folder"):
                        return place
        return self._outside(Path(url)) if name else None

    def _look(self, path: Path) -> Place | None:
        """Tell what is at a path of the store; None: nothing, or nothing that may be taken."""
        if not (path.is_file() or path.is_dir()) or not (self._compat or self._is_inside(path)):
            return None
        return place_of(path, python_files=self._python_files)

    def _is_inside(self, path: Path) -> bool:
        return self.folder is not None and path.resolve() != self.folder and path.resolve().is_relative_to(self.folder)

    def _outside(self, path: Path) -> Place | None:
        """Take a folder named by its absolute path, as SageMaker does; without `compat` only one inside the store."""
        if not path.is_absolute() or not path.is_dir() or not (self._compat or self._is_inside(path)):
            return None
        return Place("folder", _only_folder(path.resolve()))

    def startup(self, load_models: Sequence[str]) -> list[tuple[str, str]]:
        """Turn `all`, `file.mar` and `name=location` into names (empty: the archive's own) and locations."""
        entries: list[tuple[str, str]] = []
        for entry in (text.strip() for text in load_models):
            name, equals, location = entry.partition("=")
            if entry.lower() == "all":
                entries += [("", name) for name in self._all()]
            elif equals and "/" not in name and ":" not in name:
                entries.append((name.strip(), location.strip()))
            elif entry:
                entries.append(("", entry))
        return entries

    def _all(self) -> list[str]:
        if self.folder is None or not self.folder.is_dir():
            return []
        endings = (*AT_START, ".tgz", ".py") if self._python_files else AT_START
        return sorted(
            path.name
            for path in self.folder.iterdir()
            if not path.name.startswith(".") and path.name != "__pycache__"
            and (path.is_dir() or path.name.lower().endswith(endings))
        )  # fmt: skip


def place_of(path: Path, *, python_files: bool) -> Place:
    """Tell what kind of thing a file or folder is."""
    if path.is_dir():
        return Place("folder", _only_folder(path.resolve()))
    if python_files and path.suffix == ".py":
        return Place("file", path.resolve())
    return Place("archive", path)


def stem_of(name: str) -> str:
    """Take the ending off the name of an archive, a file or a folder."""
    for ending in (*ENDINGS, ".py"):
        if name.lower().endswith(ending) and len(name) > len(ending):
            return name[: -len(ending)]
    return name


def _only_folder(folder: Path) -> Path:
    """Go down into a folder that holds nothing but one other, as unpacked tar archives do."""
    inside = list(folder.iterdir())
    if len(inside) == 1 and inside[0].is_dir() and not inside[0].is_symlink() and inside[0].name != "MAR-INF":
        return inside[0]
    return folder
