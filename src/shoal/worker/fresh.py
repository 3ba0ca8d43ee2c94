"""Fresh: a model's own code is read from its source each time, never from what Python compiled before.

Python tells the source it compiled from another by size and whole seconds. A model that is loaded anew right after it
was saved, or whose files all have the date of the image they came in, would go on as its older self.
"""

import importlib
import os
import sys
from importlib.machinery import (
    BYTECODE_SUFFIXES,
    EXTENSION_SUFFIXES,
    SOURCE_SUFFIXES,
    ExtensionFileLoader,
    FileFinder,
    ModuleSpec,
    SourceFileLoader,
    SourcelessFileLoader,
)
from importlib.util import spec_from_file_location
from pathlib import Path
from typing import Any

_folders: set[str] = set()


class Fresh(SourceFileLoader):
    """Reads a source; neither looks for what was compiled of it, nor keeps what it compiles."""

    def path_stats(self, path: Any) -> Any:
        """Say nothing of the file, without which no compiled one is trusted or written."""
        raise OSError(f"{path} is read anew")


def spec_of(name: str, file: Path) -> ModuleSpec | None:
    """Give the spec of a model's file; None where it is nothing that can be imported."""
    loader = Fresh(name, str(file)) if file.suffix in SOURCE_SUFFIXES else None
    return spec_from_file_location(name, file, loader=loader)


def read_fresh(folder: Path) -> None:
    """Read the modules that lie in a folder anew. What lies deeper may be a library: kept compiled as usual."""
    _folders.add(os.path.abspath(folder))
    if _finder not in sys.path_hooks:
        sys.path_hooks.insert(0, _finder)
    for path in [path for path in sys.path_importer_cache if _is_fresh(path)]:
        del sys.path_importer_cache[path]
    importlib.invalidate_caches()


def _is_fresh(path: str) -> bool:
    return os.path.abspath(path) in _folders


def _finder(path: str) -> FileFinder:
    if not _is_fresh(path):
        raise ImportError(f"{path} is no folder of a model")
    return FileFinder(
        path,
        (ExtensionFileLoader, EXTENSION_SUFFIXES),
        (Fresh, SOURCE_SUFFIXES),
        (SourcelessFileLoader, BYTECODE_SUFFIXES),
    )
