import base64
import json
import os
import stat
from pathlib import Path

import pytest

from shoal.errors import ConfigError, Unauthorised
from shoal.frontend.tokens import Tokens


class Keys:
    """A key file and a time that goes where it is told."""

    def __init__(self, folder: Path, lifetime: float = 3600.0) -> None:
        self.now = 1_700_000_000.801167
        self.path = folder / "key_file.json"
        self.tokens = Tokens(str(self.path), lifetime, lambda: self.now)
        self.tokens.start()

    @property
    def rows(self) -> dict[str, dict[str, str]]:
        rows: dict[str, dict[str, str]] = json.loads(self.path.read_text())
        return rows

    def bearer(self, name: str) -> bytes:
        return f"Bearer {self.rows[name]['key']}".encode()


def test_the_file_holds_three_keys_and_only_its_owner_reads_it(tmp_path: Path) -> None:
    keys = Keys(tmp_path)

    assert list(keys.rows) == ["management", "inference", "API"]
    assert all(len(base64.urlsafe_b64decode(row["key"])) == 6 for row in keys.rows.values())
    assert len({row["key"] for row in keys.rows.values()}) == 3
    assert keys.rows["inference"]["expiration time"] == "2023-11-14T23:13:20.801167Z"
    assert "expiration time" not in keys.rows["API"]
    assert stat.S_IMODE(os.stat(keys.path).st_mode) == 0o600
    assert os.listdir(tmp_path) == ["key_file.json"]


def test_each_api_has_a_key_of_its_own(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    keys.tokens.check("inference", keys.bearer("inference"))
    keys.tokens.check("management", keys.bearer("management"))

    for api, name in (("inference", "management"), ("management", "inference"), ("inference", "API")):
        with pytest.raises(Unauthorised, match="Token Authorization failed"):
            keys.tokens.check(api, keys.bearer(name))  # type: ignore[arg-type]  # one of the two


@pytest.mark.parametrize(
    "shown", [None, b"", b"Bearer", b"Bearer ", b"Bearer x", b"Basic {key}", b"{key}", b"Bearer {key}x"]
)
def test_what_is_not_the_key_is_refused(tmp_path: Path, shown: bytes | None) -> None:
    keys = Keys(tmp_path)
    if shown is not None:
        shown = shown.replace(b"{key}", keys.rows["inference"]["key"].encode())

    with pytest.raises(Unauthorised):
        keys.tokens.check("inference", shown)


def test_a_key_expires_and_the_api_key_does_not(tmp_path: Path) -> None:
    keys = Keys(tmp_path, lifetime=60.0)
    old = keys.bearer("inference")
    keys.now += 59.9
    keys.tokens.check("inference", old)
    keys.now += 0.1
    with pytest.raises(Unauthorised):
        keys.tokens.check("inference", old)

    keys.now += 1e9
    keys.tokens.rotate("inference", keys.bearer("API"))
    keys.tokens.check("inference", keys.bearer("inference"))
    with pytest.raises(Unauthorised):
        keys.tokens.check("inference", old)


def test_a_new_key_leaves_the_other_alone(tmp_path: Path) -> None:
    keys = Keys(tmp_path)
    management, inference = keys.bearer("management"), keys.bearer("inference")
    keys.tokens.rotate("management", keys.bearer("API"))

    assert keys.bearer("management") != management
    assert keys.bearer("inference") == inference
    keys.tokens.check("management", keys.bearer("management"))
    assert stat.S_IMODE(os.stat(keys.path).st_mode) == 0o600


@pytest.mark.parametrize(("api", "name"), [("inference", "inference"), ("both", "API"), ("", "API"), ("API", "API")])
def test_a_new_key_needs_the_api_key_and_a_known_api(tmp_path: Path, api: str, name: str) -> None:
    keys = Keys(tmp_path)
    before = keys.rows

    with pytest.raises(Unauthorised, match=r"^Token Authentication failed\."):
        keys.tokens.rotate(api, keys.bearer(name))
    assert keys.rows == before


def test_a_key_file_of_another_server_is_replaced_at_the_start_and_left_at_the_end(tmp_path: Path) -> None:
    old, new = Keys(tmp_path), Keys(tmp_path)
    old.tokens.stop()
    assert new.path.exists()
    new.tokens.stop()
    assert not new.path.exists()
    new.tokens.stop()


def test_a_link_in_the_place_of_the_file_is_replaced_and_not_followed(tmp_path: Path) -> None:
    target = tmp_path / "target"
    target.write_text("precious")
    (tmp_path / "key_file.json").symlink_to(target)
    Keys(tmp_path)

    assert target.read_text() == "precious"


def test_keys_that_cannot_be_written_are_said_plainly(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match="cannot write the keys"):
        Tokens(str(tmp_path / "nowhere" / "keys"), 60.0, lambda: 0.0).start()


def test_a_lifetime_beyond_the_calendar_can_be_written(tmp_path: Path) -> None:
    assert Keys(tmp_path, lifetime=1e18).rows["inference"]["expiration time"].startswith("9999-")
