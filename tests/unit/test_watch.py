"""What is seen of files, when a change is over, and what is done about it."""

import asyncio
import logging
import os
from collections.abc import Coroutine
from pathlib import Path
from typing import Any

import pytest

from shoal.config.model import ModelConfig
from shoal.core.model import Model
from shoal.core.repository import Repository
from shoal.core.rollout import Rollouts
from shoal.errors import BadArchive, LoadFailed
from shoal.watch import MOST_FILES, Settling, Stamp, Watch, mistake_in, stamp_of, watchable
from tests.support import Bench, FakeClock, FakePool

ONE: Stamp = {"m.py": (1, 10, 7)}
TWO: Stamp = {"m.py": (2, 10, 7)}
THREE: Stamp = {"m.py": (3, 10, 7)}


@pytest.mark.parametrize(
    ("looks", "changes"),
    [
        ([ONE, ONE, ONE], []),
        ([TWO, TWO, TWO], [1]),
        ([TWO, THREE, THREE, THREE], [2]),  # while it changes, nothing is loaded
        ([None, TWO, TWO], [2]),  # editors put a new file in the old one's place
        ([None, None, None], []),
        ([TWO, ONE, ONE], []),  # it is what it was
        ([TWO, TWO, ONE, ONE], [1, 3]),
    ],
)
def test_a_change_is_over_when_two_looks_see_the_same(looks: list[Stamp | None], changes: list[int]) -> None:
    settling = Settling(ONE)

    assert [number for number, stamp in enumerate(looks) if settling.see(stamp)] == changes


def test_a_change_that_was_not_dealt_with_is_seen_again() -> None:
    settling = Settling(ONE)
    settling.see(TWO)
    assert settling.see(TWO)
    settling.again()

    assert settling.see(TWO)
    assert not settling.see(TWO)


def test_a_stamp_sees_what_is_saved_and_nothing_that_python_or_an_editor_leaves(tmp_path: Path) -> None:
    (tmp_path / "model.py").write_text("one")
    (tmp_path / "parts").mkdir()
    (tmp_path / "parts" / "net.py").write_text("one")
    stamp = stamp_of(tmp_path)
    assert stamp is not None
    assert {Path(name).name for name in stamp} == {"model.py", "net.py"}

    for name in ("__pycache__", ".git"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "x.py").write_text("")
    for name in (".model.py.swp", "model.py~", "model.pyc", ".hidden"):
        (tmp_path / name).write_text("")
    assert stamp_of(tmp_path) == stamp

    (tmp_path / "parts" / "net.py").write_text("longer")
    assert stamp_of(tmp_path) != stamp


def test_a_file_of_the_same_length_and_another_time_or_place_is_another(tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_text("one")
    before = stamp_of(file)
    os.utime(file, ns=(1, 1))
    assert stamp_of(file) != before
    before = stamp_of(file)
    (tmp_path / "new").write_text("two")
    os.utime(tmp_path / "new", ns=(1, 1))
    (tmp_path / "new").rename(file)
    assert stamp_of(file) != before
    file.unlink()
    assert stamp_of(file) is None
    assert stamp_of(tmp_path) is None


def test_no_more_files_are_looked_at_than_a_limit(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    assert MOST_FILES == 10_000
    monkeypatch.setattr("shoal.watch.MOST_FILES", 5)
    for number in range(9):
        (tmp_path / f"{number}.py").write_text("")

    assert len(stamp_of(tmp_path) or {}) == 5


@pytest.mark.parametrize(
    ("code", "words"),
    [
        (b"def predict(items):\n    return items\n", ""),
        (b"def predict(items:\n    return items\n", "model.py line 1: '(' was never closed"),
        (b"a = 1\n b = 2\n", "model.py line 2: unexpected indent"),
        (b"raise SystemExit\n", ""),  # it is read, not run
        (b"x = '\xff'\n", "model.py line 1"),
        (b"a = \x00\n", "model.py"),
        (b"(" * 5000, "model.py"),
    ],
)
def test_a_mistake_of_grammar_is_said_in_a_line(code: bytes, words: str, tmp_path: Path) -> None:
    file = tmp_path / "model.py"
    file.write_bytes(code)

    for source in (file, tmp_path):
        found = mistake_in(source)
        assert bool(found) == bool(words)
        assert found.startswith(words)
        assert "\n" not in found


def test_what_is_no_python_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "model.mar").write_bytes(b"PK(((")

    assert mistake_in(tmp_path / "model.mar") == mistake_in(tmp_path / "gone.py") == ""


def test_workers_of_a_watched_model_compile_anew() -> None:
    config = watchable(ModelConfig(name="m", path="m.py", environment={"A": "b"}))

    assert config.environment == {"A": "b", "PYTHONDONTWRITEBYTECODE": "1"}


class House:
    def __init__(self, folder: Path) -> None:
        self.source = folder / "m.py"
        self.source.write_text("one = 1\n")
        self.failure: Exception | None = None
        self.discarded: list[str] = []
        self.repository = Repository(self.build)
        self.rollouts = Rollouts(self.repository, FakeClock(), drain_within=1.0)
        self.watch = Watch(self.repository, self.rollouts, lambda config: self.discarded.append(config.name))
        self.made = 0
        self.watch.add("m", self.source, self.again)

    def build(self, config: ModelConfig) -> Model:
        pool = FakePool()
        pool.size = config.workers
        if self.failure is not None:
            pool.on_start = self.fail
        return Model(config, Bench().scheduler, pool, FakeClock())

    def fail(self) -> None:
        assert self.failure is not None
        raise self.failure

    async def again(self) -> ModelConfig:
        self.made += 1
        if isinstance(self.failure, BadArchive):
            raise self.failure
        return ModelConfig(name="m", path=str(self.source))

    def save(self, text: str) -> None:
        self.source.write_text(text)

    async def look(self) -> None:
        await self.watch.look_once()
        await self.watch.look_once()

    @property
    def told(self) -> dict[str, Any]:
        return dict(self.rollouts.describe("m").get("rollout", {}))


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_what_is_saved_takes_the_place_of_what_serves_once(tmp_path: Path) -> None:
    async def story() -> None:
        house = House(tmp_path)
        old = await house.repository.register(ModelConfig(name="m", path=str(house.source)))
        await old.scale(3)
        await house.look()
        assert house.repository.find("m") is old

        house.save("two = 22\n")
        await house.watch.look_once()
        assert house.made == 0, "it may still be written to"
        await house.watch.look_once()

        new = house.repository.find("m")
        assert new is not old
        assert new.min_workers == 3
        await house.look()
        assert house.made == 1

    run(story())


@pytest.mark.parametrize(
    ("text", "failure", "words", "discarded"),
    [
        ("def f(:\n", None, "m.py line 1: invalid syntax", []),
        ("fine = 1\n", LoadFailed("no weights"), "no weights", ["m"]),
        ("fine = 1\n", BadArchive("no manifest"), "no manifest", []),
    ],
)
def test_what_cannot_be_loaded_leaves_what_serves_and_is_told_in_a_line(
    text: str,
    failure: Exception | None,
    words: str,
    discarded: list[str],
    tmp_path: Path,
    caplog: pytest.LogCaptureFixture,
) -> None:
    async def story() -> None:
        house = House(tmp_path)
        old = await house.repository.register(ModelConfig(name="m", path=str(house.source)))
        house.failure = failure
        house.save(text)
        with caplog.at_level(logging.ERROR):
            await house.look()

        assert house.repository.find("m") is old
        assert (house.told["state"], house.told["error"]) == ("failed", words)
        assert house.discarded == discarded
        (line,) = [
            record.getMessage()
            for record in caplog.records
            if record.name.startswith("shoal.") and record.levelno >= logging.ERROR
        ]
        assert line == f"not rolled out, what served goes on serving: {words}"
        house.failure = None
        house.save("works = again\n")
        await house.look()
        assert house.repository.find("m") is not old

    run(story())


def test_a_model_that_was_removed_is_looked_at_no_more(tmp_path: Path) -> None:
    async def story() -> None:
        house = House(tmp_path)
        house.save("two = 22\n")
        await house.look()
        assert house.made == 0
        await house.repository.register(ModelConfig(name="m", path=str(house.source)))
        house.save("three = 333\n")
        await house.look()
        assert house.made == 0

    run(story())


def test_while_another_rollout_is_under_way_the_change_waits(tmp_path: Path) -> None:
    async def story() -> None:
        house = House(tmp_path)
        await house.repository.register(ModelConfig(name="m", path=str(house.source)))
        house.rollouts._busy.add("m")
        house.save("two = 22\n")
        await house.look()
        serving = house.repository.find("m")
        house.rollouts._busy.clear()
        await house.watch.look_once()

        assert house.repository.find("m") is not serving

    run(story())


def test_it_looks_by_itself_until_it_is_stopped(tmp_path: Path) -> None:
    async def story() -> None:
        house = House(tmp_path)
        old = await house.repository.register(ModelConfig(name="m", path=str(house.source)))
        house.watch.start()
        house.save("two = 22\n")
        async with asyncio.timeout(10):
            while house.repository.find("m") is old:  # noqa: ASYNC110
                await asyncio.sleep(0.01)
        await house.watch.stop()
        await house.watch.stop()

    run(story())
