"""What an archive may hold: names that stay inside the folder, and limits on how much there is of everything."""

from pathlib import PurePosixPath

import msgspec

from shoal.errors import BadArchive


class Limits(msgspec.Struct, frozen=True, kw_only=True):
    """How much one archive may be. All of it is checked before or while it is written, never after."""

    download: int = 64 * 2**30  # bytes fetched
    unpacked: int = 64 * 2**30  # bytes of all files together
    entries: int = 100_000
    name: int = 1024  # bytes of one entry's whole name
    ratio: int = 200  # unpacked bytes for each byte of the archive ...
    ratio_free: int = 256 * 2**20  # ... once there are more than these
    settings: int = 256 * 2**10  # bytes of a manifest or a model-config.yaml


def safe_path(name: str, limits: Limits) -> PurePosixPath | None:
    """Give an entry's path below the folder; None for the folder itself. Raises BadArchive with the reason."""
    if problem := _problem(name, limits):
        raise BadArchive(f"entry {_shown(name)}: {problem}")
    parts = [part for part in name.split("/") if part not in ("", ".")]
    return PurePosixPath(*parts) if parts else None


def _problem(name: str, limits: Limits) -> str:
    try:
        encoded = name.encode()
    except UnicodeEncodeError:
        return "its name is not UTF-8"
    parts = name.split("/")
    if len(encoded) > limits.name:
        return f"its name has {len(encoded)} bytes, {limits.name} are allowed"
    if any(len(part.encode()) > 255 for part in parts):
        return "a part of its name has more than 255 bytes"
    if any(ord(character) < 32 or ord(character) == 127 for character in name):
        return "its name has control characters"
    if "\\" in name:
        return "its name has a backslash"
    if name.startswith("/"):
        return "its name is an absolute path"
    if len(parts[0]) == 2 and parts[0][1] == ":":
        return "its name starts with a drive"
    if ".." in parts:
        return "its name leads out of the archive"
    return ""


def without_first(path: PurePosixPath | None) -> PurePosixPath | None:
    """Take off the first part of a path, as tar archives have one folder around everything; a lone name stays."""
    if path is None or len(path.parts) == 1:
        return path
    return PurePosixPath(*path.parts[1:])


class Budget:
    """What is left of an archive's limits; `entry` and `bytes` raise BadArchive when it is used up."""

    def __init__(self, archive_size: int, limits: Limits) -> None:
        self._limits = limits
        self._entries = 0
        self._bytes = 0
        self._by_ratio = max(limits.ratio_free, archive_size * limits.ratio)

    def take(self, name: str, size: int) -> None:
        """Take one entry of this size out of it."""
        self._entries += 1
        self._bytes += size
        if self._entries > self._limits.entries:
            raise BadArchive(f"it has more than {self._limits.entries} entries")
        if self._bytes > self._limits.unpacked:
            raise BadArchive(f"entry {_shown(name)}: the archive unpacks to more than {self._limits.unpacked} bytes")
        if self._bytes > self._by_ratio:
            raise BadArchive(
                f"entry {_shown(name)}: the archive unpacks to more than {self._limits.ratio} times its own size"
            )


def _shown(name: str) -> str:
    """Show a name in a message: quoted, and not at full length."""
    return ascii(name if len(name) <= 100 else f"{name[:97]}...")
