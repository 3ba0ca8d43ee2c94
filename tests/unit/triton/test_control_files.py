"""What a request to load brings along: other settings, and files."""

import asyncio
import base64
import os
from pathlib import Path

import pytest

from shoal.errors import InvalidInput, ServingError
from tests.unit.triton.repositories import as_json, put
from tests.unit.triton.yard import Yard, run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def test_other_settings_may_be_given(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a", {"config": as_json(max_batch_size="16")})
        model = yard.repository.find("a")
        assert model.config.interface is not None
        assert (model.config.interface.max_batch_size, model.config.interface.inputs[0].name) == (16, "T")

        await yard.control.load("a")
        assert yard.repository.find("a").config.settings["max_batch_size"] == 8

    run(work())


@pytest.mark.parametrize(
    "parameters",
    [
        {"config": "nope"},
        {"config": "[]"},
        {"config": as_json(max_batch_sze=1)},
        {"config": as_json(name="other")},
        {"config": as_json(max_batch_size=-3)},
        {"file:1/model.py": b""},
        {"config": as_json(), "file:../x/model.py": b""},
        {"config": as_json(), "file:/x/model.py": b""},
        {"config": as_json(), "file:": b""},
        {"config": as_json(), "file:1/model.py": "!!! not base64"},
        {"config": as_json(), "file:1/model.py": "YQ==!!!!"},
        {"config": as_json(), "file:1": b"", "file:1/model.py": b""},
    ],
)
def test_what_cannot_be_used_changes_nothing(root: Path, parameters: dict[str, str | bytes]) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a")

        with pytest.raises(ServingError, match="failed to poll from model repository"):
            await yard.control.load("a", parameters)
        assert await yard.index() == [("a", "1", "READY")]
        kept = root.parent / "work" / "models"
        assert not kept.exists() or list(kept.iterdir()) == []

    run(work())


def test_a_parameter_nobody_knows_is_refused(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root)
        await yard.control.start()

        with pytest.raises(ServingError, match="unexpected parameter 'other'"):
            await yard.control.load("a", {"other": "x"})

    run(work())


def test_files_may_be_given_for_a_model_that_is_nowhere_else(root: Path) -> None:
    async def work() -> None:
        yard = Yard(root)
        await yard.control.start()
        files: dict[str, str | bytes] = {
            "file:3/model.py": base64.b64encode(b"of text").decode(),
            "file:3/deep/er.bin": b"of bytes",
        }
        await yard.control.load("fresh", {"config": as_json(), **files})

        folder = Path(yard.repository.find("fresh").config.path)
        assert folder.name == "3"
        assert (folder / "model.py").read_bytes() == b"of text"
        assert (folder / "deep" / "er.bin").read_bytes() == b"of bytes"
        assert os.stat(folder.parent).st_mode & 0o777 == 0o700
        assert await yard.index() == [("fresh", "3", "READY")]

        yard.control.unload("fresh")
        await yard.settle()
        assert not folder.parent.exists()

    run(work())


def test_files_stay_until_what_was_loaded_from_them_has_finished(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a", {"config": as_json(), "file:7/model.py": b"sticky"})
        folder = Path(yard.repository.find("a").config.path).parent
        assert await yard.index() == [("a", "7", "READY")]

        await yard.control.load("a")
        await yard.settle()
        assert yard.repository.find("a").version == "1"
        assert folder.exists()
        yard.ends.set()
        await yard.settle()
        assert not folder.exists()

    run(work())


def test_files_of_a_load_that_is_under_way_are_left_alone(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a")
        loading = asyncio.ensure_future(
            yard.control.load("fresh", {"config": as_json(), "file:1/model.py": b"slow"}),
        )
        await yard.settle()
        yard.control.unload("a")
        await yard.settle()

        (folder,) = (root.parent / "work" / "models").iterdir()
        assert (folder / "1" / "model.py").exists()
        yard.loads.set()
        await loading
        assert (folder / "1" / "model.py").exists()

    run(work())


def test_files_of_a_load_that_failed_are_removed(root: Path) -> None:
    async def work() -> None:
        yard = Yard(root)
        await yard.control.start()

        with pytest.raises(InvalidInput, match="no way"):
            await yard.control.load("fresh", {"config": as_json(), "file:1/model.py": b"fail no way"})
        assert list((root.parent / "work" / "models").iterdir()) == []

    run(work())
