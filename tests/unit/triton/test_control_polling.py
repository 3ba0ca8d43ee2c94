"""Repositories that are looked at now and then, and followed."""

from pathlib import Path

import pytest

from tests.unit.triton.repositories import BATCHED, put
from tests.unit.triton.yard import Yard, run


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def write(root: Path, name: str, version: str, text: str) -> None:
    (root / name / version / "model.py").write_text(text)


def test_changes_in_the_repository_are_followed(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root, mode="poll")
        await yard.control.start()
        first = yard.repository.find("a")
        await yard.control.poll_once()
        assert yard.repository.find("a") is first, "nothing has changed"

        put(root, "b")
        await yard.control.poll_once()
        assert yard.repository.names() == ["a", "b"]
        assert yard.repository.find("a") is first

        write(root, "a", "1", "nothing much")
        await yard.control.poll_once()
        assert yard.repository.find("a") is not first

        put(root, "a", BATCHED, "2")
        await yard.control.poll_once()
        assert yard.repository.find("a").version == "2"

        (root / "b").rename(root.parent / "away")
        await yard.control.poll_once()
        assert yard.repository.names() == ["a"]
        await yard.settle()
        assert [line[0] for line in await yard.index()] == ["a", "a"]
        await yard.control.close()

    run(work())


def test_a_change_for_the_worse_leaves_the_old_one_and_is_tried_once(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root, mode="poll")
        await yard.control.start()
        first = yard.repository.find("a")
        write(root, "a", "1", "fail no way")
        await yard.control.poll_once()
        await yard.control.poll_once()

        assert yard.repository.find("a") is first
        assert len(yard.models) == 2
        assert await yard.index() == [("a", "1", "READY")]

        write(root, "a", "1", "better now")
        await yard.control.poll_once()
        assert yard.repository.find("a") is not first

    run(work())


def test_polling_goes_on_by_itself_until_the_server_stops(root: Path) -> None:
    async def work() -> None:
        yard = Yard(root, mode="poll", poll_every=0.01)
        await yard.control.start()
        put(root, "a")
        while "a" not in yard.repository.names():
            await yard.settle()
        await yard.control.close()
        put(root, "b")
        await yard.settle()

        assert yard.repository.names() == ["a"]

    run(work())
