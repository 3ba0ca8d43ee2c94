"""Files of a report: each is written beside its name and put in place whole, so that none is ever seen half."""

import os
import tempfile
from pathlib import Path

from shoal.errors import InvalidInput


def write_whole(path: Path, data: str | bytes) -> Path:
    """Write a file, or leave the one that was there."""
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        handle, name = tempfile.mkstemp(dir=path.parent, prefix=f".{path.name}.")
        try:
            with open(handle, "wb") as file:
                file.write(data.encode() if isinstance(data, str) else data)
            os.chmod(name, 0o666 & ~_mask())
            os.replace(name, path)
        except BaseException:
            os.unlink(name)
            raise
    except OSError as error:
        raise InvalidInput(f"cannot write {path}: {error.strerror}") from None
    return path


def check_writable(path: Path) -> None:
    """Say before the work, not after it, that a report could not be written there."""
    folder = path.absolute().parent
    while not folder.exists():
        folder = folder.parent
    if not folder.is_dir() or not os.access(folder, os.W_OK):
        raise InvalidInput(f"cannot write {path}: {folder} is no folder that can be written to")


def base_of(output: str) -> Path:
    """Give the part of a report's name that all its files share; an ending of one of them may be said or not."""
    path = Path(output)
    return path.with_suffix("") if path.suffix in (".md", ".json", ".csv", ".png", ".html") else path


def _mask() -> int:
    mask = os.umask(0)
    os.umask(mask)
    return mask
