"""Unpacking: archives of strangers to a folder, whole or not at all.

A `.mar`, `.model` or `.war` is a zip file; everything else is a gzipped tar whose first folder is taken off. What a
file is shows in its first bytes, whatever its name says. Files are only ever created, never opened again, and nothing
but plain files and folders is made, so no entry can reach outside or write over another.
"""

import gzip
import io
import os
import shutil
import stat
import struct
import tarfile
import zipfile
import zlib
from collections.abc import Callable, Iterator
from pathlib import Path, PurePosixPath
from typing import IO

from shoal.archive.entries import Budget, Limits, safe_path, without_first
from shoal.errors import BadArchive, ServingError

CHUNK = 1 << 20
HEADER = 1 << 20  # the most a tar may say about one entry besides its data
ZIP_METHODS = (zipfile.ZIP_STORED, zipfile.ZIP_DEFLATED)
DIRECTORY_ENTRY = 46 + 2048  # bytes of a zip's directory that one entry may fairly take
BROKEN = (
    zipfile.BadZipFile,
    tarfile.TarError,
    gzip.BadGzipFile,
    zlib.error,
    EOFError,
    struct.error,
    ValueError,
    NotImplementedError,
    OverflowError,
)


def unpack(archive: Path, folder: Path, limits: Limits, check: Callable[[], None] = lambda: None) -> None:
    """Unpack into a folder that is made for it. `check` is called often and may raise to give up.

    Raises BadArchive naming the entry and the reason; nothing is left behind then.
    """
    folder.mkdir(mode=0o755)
    try:
        with open(archive, "rb") as file:
            size = os.fstat(file.fileno()).st_size
            budget = Budget(size, limits)
            if kind_of(file) == "zip":
                _unzip(file, folder, limits, budget, check)
            else:
                _untar(file, folder, limits, budget, check)
    except BaseException as error:
        shutil.rmtree(folder, ignore_errors=True)
        if isinstance(error, BadArchive):
            raise BadArchive(f"{archive.name}: {error}") from None
        if isinstance(error, BROKEN):
            raise BadArchive(f"{archive.name} is damaged: {error}") from None
        if isinstance(error, OSError):
            raise ServingError(f"cannot unpack {archive.name}: {error.strerror or error}") from None
        raise


def kind_of(file: IO[bytes]) -> str:
    """Tell `zip` from `tar.gz` by the first bytes. Raises BadArchive for anything else."""
    start = file.read(4)
    file.seek(0)
    if start in (b"PK\x03\x04", b"PK\x05\x06"):
        return "zip"
    if start[:2] == b"\x1f\x8b":
        return "tar.gz"
    raise BadArchive("this is neither a zip file (.mar) nor a .tar.gz" if start else "the file is empty")


def _unzip(file: IO[bytes], folder: Path, limits: Limits, budget: Budget, check: Callable[[], None]) -> None:
    _check_directory(file, limits)
    with zipfile.ZipFile(file) as archive:
        infos = archive.infolist()
        paths = [_zip_path(info, limits) for info in infos]
        for info in infos:  # all of them first: a bomb is refused before a byte is written
            budget.take(info.filename, info.file_size)
        for info, path in zip(infos, paths, strict=True):
            check()
            if path is None or info.is_dir():
                _make_folder(folder, path)
                continue
            with archive.open(info) as source:
                _write(folder, path, source, info.file_size, info.external_attr >> 16, check)


def _zip_path(info: zipfile.ZipInfo, limits: Limits) -> PurePosixPath | None:
    path = safe_path(info.orig_filename, limits)
    kind = stat.S_IFMT(info.external_attr >> 16)
    if kind not in (0, stat.S_IFREG, stat.S_IFDIR):
        raise BadArchive(f"entry {info.filename!a}: a link or a device; only files and folders are unpacked")
    if info.flag_bits & 1:
        raise BadArchive(f"entry {info.filename!a}: it is encrypted")
    if info.compress_type not in ZIP_METHODS:
        raise BadArchive(f"entry {info.filename!a}: zip method {info.compress_type}; use stored or deflated")
    return path


def _check_directory(file: IO[bytes], limits: Limits) -> None:
    """Refuse a directory too long to be read into memory; `zipfile` reads it whole before anybody can look."""
    size = file.seek(0, os.SEEK_END)
    file.seek(max(0, size - 65536 - 22 - 20))
    tail = file.read()
    at = tail.rfind(b"PK\x05\x06")
    if at < 0 or len(tail) - at < 22:
        raise BadArchive("this zip file has no end; it may have been cut short")
    length: int = struct.unpack_from("<L", tail, at + 12)[0]
    if at >= 20 and tail[at - 20 : at - 16] == b"PK\x06\x07":  # zip64: the true number is in a record of its own
        file.seek(struct.unpack_from("<Q", tail, at - 12)[0])
        record = file.read(56)
        if len(record) < 56 or record[:4] != b"PK\x06\x06":
            raise BadArchive("this zip file has no directory where it says")
        length = struct.unpack_from("<Q", record, 40)[0]
    if length > limits.entries * DIRECTORY_ENTRY:
        raise BadArchive(f"its directory of {length} bytes is too long for {limits.entries} entries")
    file.seek(0)


def _untar(file: IO[bytes], folder: Path, limits: Limits, budget: Budget, check: Callable[[], None]) -> None:
    with gzip.GzipFile(fileobj=file) as plain, tarfile.open(fileobj=_Frugal(plain), mode="r:") as archive:
        for member in _members(archive):
            check()
            path = without_first(safe_path(member.name, limits))
            budget.take(member.name, member.size)
            if member.isdir():
                _make_folder(folder, path)
                continue
            if not member.isreg() or member.issparse():
                raise BadArchive(f"entry {member.name!a}: a {_kind(member)}; only files and folders are unpacked")
            source = archive.extractfile(member)
            if path is None or source is None:
                raise BadArchive(f"entry {member.name!a}: a file has no name")
            _write(folder, path, source, member.size, member.mode, check)


def _members(archive: tarfile.TarFile) -> Iterator[tarfile.TarInfo]:
    """Give each entry once; `tarfile` would keep all of them."""
    while (member := archive.next()) is not None:
        yield member
        archive.members = []  # type: ignore[attr-defined]  # so that a million small entries cost no memory


def _kind(member: tarfile.TarInfo) -> str:
    if member.islnk() or member.issym():
        return "link"
    return "sparse file" if member.issparse() else "device"


class _Frugal(io.RawIOBase):
    """A stream that hands out only a little at once: `tarfile` would read a header of any length into memory."""

    def __init__(self, file: gzip.GzipFile) -> None:
        self._file = file

    def read(self, size: int = -1) -> bytes:
        if not 0 <= size <= HEADER:
            raise BadArchive(f"what it says about an entry is longer than {HEADER} bytes")
        return self._file.read(size)

    def readable(self) -> bool:
        return True

    def seekable(self) -> bool:
        return True

    def seek(self, offset: int, whence: int = os.SEEK_SET) -> int:
        return self._file.seek(offset, whence)

    def tell(self) -> int:
        return self._file.tell()


def _make_folder(folder: Path, path: PurePosixPath | None) -> None:
    if path is None:
        return
    try:
        (folder / path).mkdir(mode=0o755, parents=True, exist_ok=True)
    except (FileExistsError, NotADirectoryError):
        raise BadArchive(f"entry {str(path)!a}: it is there as a file already") from None


def _write(
    folder: Path, path: PurePosixPath, source: IO[bytes], size: int, mode: int, check: Callable[[], None]
) -> None:
    """Create one file; what is there already is never written to."""
    _make_folder(folder, path.parent if len(path.parts) > 1 else None)
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | getattr(os, "O_NOFOLLOW", 0)
    try:
        number = os.open(folder / path, flags, 0o755 if mode & stat.S_IXUSR else 0o644)
    except FileExistsError:
        raise BadArchive(f"entry {str(path)!a}: it is there already; an archive names each file once") from None
    written = 0
    with open(number, "wb") as target:
        while piece := source.read(CHUNK):
            check()
            written += len(piece)
            if written > size:
                raise BadArchive(f"entry {str(path)!a}: it has more than the {size} bytes that it says")
            target.write(piece)
    if written != size:
        raise BadArchive(f"entry {str(path)!a}: it has {written} bytes and says {size}")
