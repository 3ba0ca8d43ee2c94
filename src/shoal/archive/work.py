"""The server's own folder for unpacked models: private, gone when the server is gone, cleared of those who crashed."""

import contextlib
import fcntl
import os
import secrets
import shutil
import tempfile
from pathlib import Path

PREFIX = "shoal-models-"
LOCK = "in-use"


class Work:
    """A folder that only this user can read; `new` names a new one in it, `close` removes all of it."""

    def __init__(self, folder: Path | None = None) -> None:
        self._made: list[Path] = []
        self._is_named = folder is not None
        if folder is None:
            _clear_left_behind(Path(tempfile.gettempdir()))
        self.folder, self._lock = _named(folder) if folder is not None else _fresh()
        self._models = self.folder / "models"
        self._models.mkdir(mode=0o700, exist_ok=True)

    def new(self) -> Path:
        """Give the path of a folder that is not there yet."""
        self._made.append(self._models / secrets.token_hex(16))
        return self._made[-1]

    def let_through(self) -> None:
        """Let workers of another user reach what they are told the name of; nobody can list the names."""
        for folder in (self.folder, self._models):
            folder.chmod(0o711)

    def close(self) -> None:
        """Remove everything; a second call does nothing."""
        if self._lock < 0:
            return
        for folder in self._made if self._is_named else [self.folder]:  # others may use a folder that was named
            shutil.rmtree(folder, ignore_errors=True)
        os.close(self._lock)
        self._lock = -1


def _named(folder: Path) -> tuple[Path, int]:
    folder.mkdir(mode=0o700, parents=True, exist_ok=True)
    return folder.resolve(), _locked(folder)


def _fresh() -> tuple[Path, int]:
    """Make a folder that is locked before anybody can see it by its name."""
    hidden = Path(tempfile.mkdtemp(prefix=f".{PREFIX}"))
    lock = _locked(hidden)
    folder = hidden.with_name(hidden.name[1:])
    hidden.rename(folder)
    return folder.resolve(), lock


def _locked(folder: Path) -> int:
    lock = os.open(folder / LOCK, os.O_RDWR | os.O_CREAT | getattr(os, "O_NOFOLLOW", 0), 0o600)
    with contextlib.suppress(OSError):  # taken: another server was given the same folder by name
        fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
    return lock


def _clear_left_behind(parent: Path) -> None:
    """Remove the folders of servers that ended without doing so: those whose lock nobody holds any more."""
    for folder in parent.glob(f"{PREFIX}*"):
        with contextlib.suppress(OSError):
            if folder.is_symlink() or folder.stat().st_uid != os.getuid():
                continue
            lock = os.open(folder / LOCK, os.O_RDWR | getattr(os, "O_NOFOLLOW", 0))
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                shutil.rmtree(folder, ignore_errors=True)
            finally:
                os.close(lock)
