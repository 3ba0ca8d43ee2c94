"""Tokens: keys that callers show, one for each API, kept in a file that only the server's user can read."""

import contextlib
import hmac
import json
import os
import secrets
import tempfile
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

from shoal.errors import ConfigError, Unauthorised

Api = Literal["management", "inference"]
LAST_TIME = 253402300799.0  # the end of the year 9999: no text says a later one
FAILED = "Token Authorization failed. Token either incorrect, expired, or not provided correctly"
NO_NEW_KEY = "Token Authentication failed. A new key needs the API key, and type=management or type=inference"


@dataclass(frozen=True, slots=True)
class Key:
    """One key, and the Unix time from which on it is none."""

    text: str
    expires: float


class Tokens:
    """The keys of one server. `wall` gives the Unix time; keys live for `lifetime` seconds, the API key for ever."""

    def __init__(self, path: str, lifetime: float, wall: Callable[[], float]) -> None:
        self._path = Path(path)
        self._lifetime = lifetime
        self._wall = wall
        self._api_key = _new_key()
        self._keys: dict[Api, Key] = {"management": self._make(), "inference": self._make()}

    def start(self) -> None:
        """Write the file; raises ConfigError where that is not possible."""
        try:
            self._write(self._keys)
        except OSError as error:
            raise ConfigError(f"cannot write the keys to {self._path}: {error.strerror}") from None

    def stop(self) -> None:
        """Remove the file, if it is still this server's."""
        with contextlib.suppress(OSError, ValueError, KeyError, TypeError):
            if json.loads(self._path.read_bytes())["API"]["key"] == self._api_key:
                self._path.unlink()

    def check(self, api: Api, authorization: bytes | None) -> None:
        """Raise Unauthorised unless the header's value carries this API's key, and the key is still good."""
        key = self._keys[api]
        if not _is_same(authorization, key.text) or self._wall() >= key.expires:
            raise Unauthorised(FAILED)

    def rotate(self, api: str, authorization: bytes | None) -> None:
        """Make a new key for an API, for a caller that shows the API key; raises Unauthorised."""
        if not _is_same(authorization, self._api_key) or api not in self._keys:
            raise Unauthorised(NO_NEW_KEY)
        keys = {name: self._make() if name == api else key for name, key in self._keys.items()}
        self._write(keys)
        self._keys = keys

    def _make(self) -> Key:
        return Key(_new_key(), self._wall() + self._lifetime)

    def _write(self, keys: Mapping[Api, Key]) -> None:
        """Replace the file in one step, so that a reader sees the old keys or the new ones, and nobody else any."""
        rows: dict[str, Any] = {
            api: {"key": key.text, "expiration time": _time(key.expires)} for api, key in keys.items()
        }
        rows["API"] = {"key": self._api_key}
        folder = self._path.parent
        number, name = tempfile.mkstemp(prefix=".keys-", dir=folder)  # readable and writable by its owner alone
        try:
            with os.fdopen(number, "w") as file:
                json.dump(rows, file, indent=2)
                file.write("\n")
            os.replace(name, self._path)
        except BaseException:
            os.unlink(name)
            raise


def _new_key() -> str:
    return secrets.token_urlsafe(6)


def _is_same(authorization: bytes | None, key: str) -> bool:
    scheme, _, shown = (authorization or b"").strip().partition(b" ")
    return scheme.lower() == b"bearer" and hmac.compare_digest(shown.strip(), key.encode())


def _time(moment: float) -> str:
    return datetime.fromtimestamp(min(moment, LAST_TIME), UTC).isoformat(timespec="microseconds").replace("+00:00", "Z")
