"""What is loaded and unloaded, what the index says of it, and that what serves goes on serving."""

import asyncio
from pathlib import Path

import pytest

from shoal.core.model import Life
from shoal.errors import InvalidInput, LoadFailed, ServingError, Unavailable
from tests.unit.triton.repositories import BATCHED, PLAIN, as_json, put
from tests.unit.triton.yard import Yard, run

ALL = "version_policy { all { } }\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def write(root: Path, name: str, version: str, text: str) -> None:
    (root / name / version / "model.py").write_text(text)


# -- the start -----------------------------------------------------------------------------------------------------


def test_everything_is_loaded_at_the_start(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        put(root, "b", BATCHED, "1", "2", "3")
        yard = Yard(root, mode="none")
        assert not yard.control.is_ready()

        await yard.control.start()

        assert await yard.index() == [("a", "1", "READY"), ("b", "3", "READY")]
        assert yard.control.is_ready()
        assert yard.repository.find("b").version == "3"

    run(work())


@pytest.mark.parametrize("mode", ["none", "poll"])
def test_clients_may_not_load_or_unload_unless_that_is_explicit(root: Path, mode: str) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root, mode=mode)
        await yard.control.start()

        with pytest.raises(Unavailable, match=r"^explicit model load / unload is not allowed if polling is enabled$"):
            await yard.control.load("a")
        with pytest.raises(Unavailable, match="polling is enabled"):
            yard.control.unload("a")
        assert yard.serving("a") == ["1"]
        await yard.control.close()

    run(work())


@pytest.mark.parametrize(("names", "loaded"), [((), []), (("b",), ["b"]), (("*",), ["a", "b"])])
def test_explicit_mode_starts_with_what_is_named(root: Path, names: tuple[str, ...], loaded: list[str]) -> None:
    async def work() -> None:
        put(root, "a")
        put(root, "b")
        yard = Yard(root, at_start=names)
        await yard.control.start()

        assert yard.repository.names() == loaded
        assert [line[0] for line in await yard.index()] == ["a", "b"]
        assert yard.control.is_ready()

    run(work())


def test_a_model_that_fails_at_the_start_ends_it(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        put(root, "b", file="")
        (root / "b" / "1" / "model.py").write_text("fail no way")
        yard = Yard(root, mode="none")

        with pytest.raises(LoadFailed, match=r"(?s)failed to load all models.*'b'.*Internal: no way"):
            await yard.control.start()
        assert not yard.control.is_ready()

    run(work())


def test_a_name_to_load_that_is_not_there_ends_the_start(root: Path) -> None:
    async def work() -> None:
        yard = Yard(root, at_start=("nope",))

        with pytest.raises(LoadFailed, match="failed to load 'nope'"):
            await yard.control.start()

    run(work())


def test_failures_can_be_put_up_with(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        put(root, "b")
        write(root, "b", "1", "fail no way")
        put(root, "c", "nope: 1")
        yard = Yard(root, mode="none", exit_on_error=False)
        await yard.control.start()

        lines = [("a", "1", "READY"), ("b", "1", "UNAVAILABLE", "Internal: no way"), ("c",)]
        assert await yard.index() == lines
        assert not yard.control.is_ready(), "b has failed"

        write(root, "b", "1", "")
        lenient = Yard(root, mode="none", exit_on_error=False)
        await lenient.control.start()
        assert lenient.control.is_ready(), "what cannot be read is not known"

    run(work())


def test_readiness_need_not_be_strict(root: Path) -> None:
    async def work() -> None:
        put(root, "b")
        write(root, "b", "1", "fail no way")
        yard = Yard(root, mode="none", exit_on_error=False, strict_readiness=False)
        assert not yard.control.is_ready()
        await yard.control.start()
        assert yard.control.is_ready()
        await yard.control.close()
        assert not yard.control.is_ready()

    run(work())


def test_a_name_in_two_repositories_is_neither(tmp_path: Path) -> None:
    async def work() -> None:
        for name in ("one", "two"):
            put(tmp_path / name, "a")
        put(tmp_path / "two", "b")
        yard = Yard(tmp_path / "one", tmp_path / "two", mode="none", exit_on_error=False)
        await yard.control.start()

        lines = [("a", "UNAVAILABLE", "model appears in two or more repositories"), ("b", "1", "READY")]
        assert await yard.index() == lines

    run(work())


# -- loading -------------------------------------------------------------------------------------------------------


def test_a_model_is_loaded_when_that_is_asked(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root)
        await yard.control.start()
        assert await yard.index() == [("a",)]

        await yard.control.load("a")

        assert await yard.index() == [("a", "1", "READY")]
        assert await yard.index(ready=True) == [("a", "1", "READY")]
        assert yard.repository.find("a").life is Life.READY

    run(work())


def test_a_model_on_its_way_is_not_found_and_the_server_not_ready(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        write(root, "a", "1", "slow")
        yard = Yard(root)
        await yard.control.start()
        loading = asyncio.ensure_future(yard.control.load("a"))
        await yard.settle()

        assert await yard.index() == [("a", "1", "LOADING")]
        assert not yard.control.is_ready()
        assert yard.repository.names() == []
        assert await yard.index(ready=True) == []

        yard.loads.set()
        await loading
        assert yard.control.is_ready()

    run(work())


def test_a_caller_who_leaves_does_not_stop_a_load(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        write(root, "a", "1", "slow")
        yard = Yard(root)
        await yard.control.start()
        loading = asyncio.ensure_future(yard.control.load("a"))
        await yard.settle()
        loading.cancel()
        yard.loads.set()
        await yard.settle()

        assert yard.serving("a") == ["1"]

    run(work())


def test_what_is_not_there_cannot_be_loaded(root: Path) -> None:
    async def work() -> None:
        yard = Yard(root)
        await yard.control.start()

        with pytest.raises(
            ServingError, match=r"^failed to load 'nope', failed to poll from model repository$"
        ) as raised:
            await yard.control.load("nope")
        assert not isinstance(raised.value, InvalidInput)
        assert await yard.index() == []
        assert yard.control.is_ready()

    run(work())


def test_settings_that_cannot_be_read_are_told_and_nothing_changes(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a")
        put(root, "a", BATCHED + "max_batchsize: 3")

        words = r"failed to load 'a', failed to poll from model repository: .*did you mean 'max_batch_size'"
        with pytest.raises(ServingError, match=words):
            await yard.control.load("a")
        assert await yard.index() == [("a", "1", "READY")]

    run(work())


def test_a_failed_load_says_why_in_the_answer_and_in_the_index(root: Path) -> None:
    async def work() -> None:
        put(root, "a", BATCHED)
        write(root, "a", "1", "fail RuntimeError: no way")
        put(root, "b", PLAIN + "instance_group [ { kind: KIND_GPU } ]")
        yard = Yard(root)
        await yard.control.start()

        with pytest.raises(InvalidInput) as raised:
            await yard.control.load("a")
        with pytest.raises(InvalidInput, match="version 1 is at UNAVAILABLE state: Invalid argument: instance group"):
            await yard.control.load("b")

        reason = "Internal: RuntimeError: no way"
        assert str(raised.value) == f"load failed for model 'a': version 1 is at UNAVAILABLE state: {reason};\n"
        assert (await yard.index())[0] == ("a", "1", "UNAVAILABLE", reason)
        assert yard.repository.names() == []

        write(root, "a", "1", "")
        await yard.control.load("a")
        assert (await yard.index())[0] == ("a", "1", "READY")

    run(work())


def test_an_error_nobody_foresaw_is_a_failed_load(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        write(root, "a", "1", "burst")
        yard = Yard(root)
        await yard.control.start()

        with pytest.raises(InvalidInput, match="Internal: ZeroDivisionError: not foreseen"):
            await yard.control.load("a")

    run(work())


@pytest.mark.parametrize("policy", ["latest { num_versions: 0 }", "specific { versions: [ 9 ] }"])
def test_a_policy_that_chooses_nothing_is_a_failed_load(root: Path, policy: str) -> None:
    async def work() -> None:
        put(root, "a", f"{PLAIN} version_policy {{ {policy} }}")
        yard = Yard(root)
        await yard.control.start()

        rule = "at least one version must be available under the version policy of model 'a'"
        with pytest.raises(InvalidInput, match=f"^load failed for model 'a': {rule}\n$"):
            await yard.control.load("a")
        assert not yard.control.is_ready()

    run(work())


def test_versions_are_loaded_all_or_none(root: Path) -> None:
    async def work() -> None:
        put(root, "a", BATCHED + ALL, "1", "2")
        write(root, "a", "2", "fail no way")
        yard = Yard(root)
        await yard.control.start()

        with pytest.raises(InvalidInput, match="version 2 is at UNAVAILABLE state: Internal: no way"):
            await yard.control.load("a")
        await yard.settle()

        assert await yard.index() == [
            ("a", "1", "UNAVAILABLE", "unloaded"),
            ("a", "2", "UNAVAILABLE", "Internal: no way"),
        ]
        assert yard.repository.names() == []
        assert yard.models[0].life is Life.UNLOADED

    run(work())


def test_no_more_versions_load_at_once_than_may(root: Path) -> None:
    async def work() -> None:
        put(root, "a", BATCHED + ALL, "1", "2", "3", "4", "5")
        for version in "12345":
            write(root, "a", version, "slow")
        yard = Yard(root, at_once=2)
        await yard.control.start()
        loading = asyncio.ensure_future(yard.control.load("a"))
        await yard.settle()

        assert yard.starting == 2

        yard.loads.set()
        await loading
        assert yard.serving("a") == ["1", "2", "3", "4", "5"]

    run(work())


# -- loading anew --------------------------------------------------------------------------------------------------


def test_the_old_one_serves_until_the_new_one_does(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a")
        old = yard.repository.find("a")
        write(root, "a", "1", "slow")
        loading = asyncio.ensure_future(yard.control.load("a"))
        await yard.settle()

        assert yard.repository.find("a") is old
        assert await yard.index() == [("a", "1", "READY")]
        assert yard.control.is_ready()

        yard.loads.set()
        await loading
        new = yard.repository.find("a")
        assert new is not old
        assert new.life is Life.READY
        await yard.settle()
        assert old.life is Life.UNLOADED

    run(work())


def test_when_the_new_one_fails_the_old_one_goes_on(root: Path) -> None:
    async def work() -> None:
        put(root, "a", BATCHED + ALL, "1")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a")
        old = yard.repository.find("a")
        put(root, "a", BATCHED + ALL, "2")
        write(root, "a", "2", "fail no way")

        with pytest.raises(InvalidInput, match="version 2 is at UNAVAILABLE state: Internal: no way"):
            await yard.control.load("a")
        await yard.settle()

        assert await yard.index() == [("a", "1", "READY")]
        assert yard.repository.find("a") is old
        assert old.life is Life.READY
        assert [model.life for model in yard.models[1:]] == [Life.UNLOADED, Life.UNLOADED]

    run(work())


def test_a_newer_version_takes_over_and_the_older_finishes(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        write(root, "a", "1", "sticky")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a")
        put(root, "a", BATCHED, "2")

        await yard.control.load("a")

        assert yard.repository.find("a").version == "2"
        assert await yard.index() == [("a", "1", "UNLOADING"), ("a", "2", "READY")]
        assert not yard.control.is_ready()
        yard.ends.set()
        await yard.settle()
        assert await yard.index() == [("a", "1", "UNAVAILABLE", "unloaded"), ("a", "2", "READY")]
        assert yard.control.is_ready()

    run(work())


def test_the_default_is_the_highest_number(root: Path) -> None:
    async def work() -> None:
        put(root, "a", BATCHED + ALL, "9", "10")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a")
        assert yard.repository.find("a").version == "10"

        put(root, "a", BATCHED + "version_policy { specific { versions: [ 9 ] } }")
        await yard.control.load("a")
        assert yard.repository.find("a").version == "9"

    run(work())


def test_a_model_whose_workers_were_given_up_is_not_available(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a")
        yard.repository.find("a").fail("workers keep dying")

        assert await yard.index() == [("a", "1", "UNAVAILABLE", "Internal: workers keep dying")]
        assert not yard.control.is_ready()

    run(work())


# -- unloading -----------------------------------------------------------------------------------------------------


def test_an_unloaded_model_is_gone_at_once_and_ends_by_itself(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        write(root, "a", "1", "sticky")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a")

        yard.control.unload("a")

        assert yard.repository.names() == []
        assert await yard.index() == [("a", "1", "UNLOADING")]
        assert not yard.control.is_ready()
        yard.ends.set()
        await yard.settle()
        assert await yard.index() == [("a", "1", "UNAVAILABLE", "unloaded")]
        assert yard.control.is_ready()
        yard.control.unload("a")
        yard.control.unload("nobody")

        await yard.control.load("a")
        assert await yard.index() == [("a", "1", "READY")]

    run(work())


def test_a_model_that_is_unloaded_while_it_loads_does_not_stay(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        write(root, "a", "1", "slow")
        yard = Yard(root)
        await yard.control.start()
        loading = asyncio.ensure_future(yard.control.load("a"))
        await yard.settle()
        yard.control.unload("a")
        yard.loads.set()
        await loading
        await yard.settle()

        assert await yard.index() == [("a", "1", "UNAVAILABLE", "unloaded")]

    run(work())


def test_a_model_may_be_loaded_again_while_it_ends(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        write(root, "a", "1", "sticky")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a")
        yard.control.unload("a")
        await yard.control.load("a")
        yard.ends.set()
        await yard.settle()

        assert await yard.index() == [("a", "1", "READY")]
        assert yard.serving("a") == ["1"]

    run(work())


def test_a_model_that_is_no_longer_there_is_forgotten_when_it_is_asked_for(root: Path) -> None:
    async def work() -> None:
        folder = put(root, "a")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a")
        yard.control.unload("a")
        await yard.settle()
        folder.rename(root.parent / "elsewhere")

        with pytest.raises(ServingError, match="failed to load 'a'"):
            await yard.control.load("a")
        assert await yard.index() == []

    run(work())


# -- the end -------------------------------------------------------------------------------------------------------


def test_the_end_does_not_wait_for_what_is_still_loading(root: Path) -> None:
    async def work() -> None:
        put(root, "a")
        write(root, "a", "1", "slow")
        yard = Yard(root)
        await yard.control.start()
        loading = asyncio.ensure_future(yard.control.load("a"))
        await yard.settle()
        await yard.control.close()

        with pytest.raises(asyncio.CancelledError):
            await loading
        assert [model.life for model in yard.models] == [Life.UNLOADED]

    run(work())


def test_the_end_waits_for_what_is_finishing_and_removes_what_was_sent(root: Path) -> None:
    async def work() -> None:
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("a", {"config": as_json(), "file:1/model.py": b"sticky"})
        await yard.control.load("b", {"config": as_json(), "file:1/model.py": b""})
        yard.control.unload("a")
        closing = asyncio.ensure_future(yard.control.close())
        await yard.settle()
        assert not closing.done()
        yard.ends.set()
        await closing

        assert [model.life for model in yard.models] == [Life.UNLOADED, Life.READY]
        assert list((root.parent / "work" / "models").iterdir()) == []

    run(work())
