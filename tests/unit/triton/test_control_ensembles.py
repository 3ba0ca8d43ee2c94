"""Ensembles and the models they are made of, loaded and unloaded."""

import asyncio
from pathlib import Path

import pytest

from shoal.core.model import Life, Model
from shoal.errors import InvalidInput, ServingError
from tests.support import ask
from tests.unit.triton.repositories import BATCHED, PLAIN, ensemble, put, step
from tests.unit.triton.yard import Yard, run

ALL = "version_policy { all { } }\n"


@pytest.fixture
def root(tmp_path: Path) -> Path:
    (tmp_path / "models").mkdir()
    return tmp_path / "models"


def write(root: Path, name: str, version: str, text: str) -> None:
    (root / name / version / "model.py").write_text(text)


def lives(*models: Model) -> list[Life]:
    return [model.life for model in models]


def parts(root: Path) -> None:
    put(root, "first")
    put(root, "second")
    put(root, "both", ensemble(step("first", target="mid"), step("second", source="mid")), file="")


def test_an_ensemble_brings_its_models(root: Path) -> None:
    async def work() -> None:
        parts(root)
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("both")

        assert yard.repository.names() == ["both", "first", "second"]
        assert yard.repository.find("both").config.backend == "ensemble"
        assert yard.control.is_ready()

    run(work())


def test_at_the_start_each_model_is_loaded_once(root: Path) -> None:
    async def work() -> None:
        parts(root)
        put(root, "around", ensemble(step("both")), file="")
        yard = Yard(root, mode="none")
        await yard.control.start()

        assert sorted(model.name for model in yard.models) == ["around", "both", "first", "second"]

    run(work())


def test_unloading_a_model_takes_its_ensembles_down_and_loading_it_brings_them_back(root: Path) -> None:
    async def work() -> None:
        parts(root)
        put(root, "around", ensemble(step("both")), file="")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("around")
        yard.control.unload("first")
        await yard.settle()
        assert yard.repository.names() == ["second"]
        assert (await yard.index())[0] == ("around", "1", "UNAVAILABLE", "unloaded")

        await yard.control.load("first")
        assert yard.repository.names() == ["around", "both", "first", "second"]

    run(work())


def test_what_somebody_asked_for_stays_asked_for_when_it_comes_back_with_its_models(root: Path) -> None:
    async def work() -> None:
        parts(root)
        put(root, "around", ensemble(step("both")), file="")
        yard = Yard(root)
        await yard.control.start()
        for name in ("both", "first", "around"):
            await yard.control.load(name)
        yard.control.unload("around", unload_dependents=True)

        assert yard.repository.names() == ["both", "first", "second"]

    run(work())


def test_an_ensemble_that_was_unloaded_itself_does_not_come_back(root: Path) -> None:
    async def work() -> None:
        parts(root)
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("both")
        yard.control.unload("both")
        yard.control.unload("first")
        await yard.control.load("first")

        assert yard.repository.names() == ["first", "second"]

    run(work())


def test_dependents_go_along_unless_somebody_asked_for_them_or_needs_them(root: Path) -> None:
    async def work() -> None:
        parts(root)
        put(root, "third")
        put(root, "other", ensemble(step("third")), file="")
        put(root, "all", ensemble(step("first", target="x"), step("second", "x", "y"), step("third", "y")), file="")
        yard = Yard(root)
        await yard.control.start()
        for name in ("first", "all", "other"):
            await yard.control.load(name)

        yard.control.unload("all", unload_dependents=True)

        assert yard.repository.names() == ["first", "other", "third"]

    run(work())


@pytest.mark.parametrize(
    ("steps", "reason"),
    [
        (["absent"], "ensemble e contains models that are not available or ambiguous: absent"),
        (["e"], "circular dependency between ensembles: e -> ... -> e -> e"),
        (["round"], "circular dependency between ensembles: e -> ... -> round -> e"),
        (["broken"], "ensemble e contains models that are not available or ambiguous: broken .*no way"),
        (["small"], "ensemble e allows maximum batch size 8, but it contains model small which only allows"),
    ],
)
def test_an_ensemble_that_cannot_work_is_not_loaded(root: Path, steps: list[str], reason: str) -> None:
    async def work() -> None:
        put(root, "e", ensemble(*(step(name) for name in steps)), file="")
        put(root, "round", ensemble(step("e")), file="")
        put(root, "broken")
        write(root, "broken", "1", "fail no way")
        put(root, "small", PLAIN)
        yard = Yard(root)
        await yard.control.start()

        with pytest.raises(InvalidInput, match=f"(?s)^load failed for model 'e': .*{reason}"):
            await yard.control.load("e")
        assert "e" not in yard.repository.names()

    run(work())


def test_a_step_may_name_a_version(root: Path) -> None:
    async def work() -> None:
        put(root, "first", BATCHED + ALL, "1", "2")
        put(root, "right", ensemble(step("first", version=1)), file="")
        put(root, "wrong", ensemble(step("first", version=3)), file="")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("right")

        with pytest.raises(InvalidInput, match="'wrong' depends on 'first' whose required version 3 is not loaded"):
            await yard.control.load("wrong")

    run(work())


def test_an_ensemble_of_a_decoupled_model_is_decoupled(root: Path) -> None:
    async def work() -> None:
        parts(root)
        put(root, "second", BATCHED + "model_transaction_policy { decoupled: true }")
        yard = Yard(root, mode="none")
        await yard.control.start()

        interface = yard.repository.find("both").config.interface
        assert interface is not None
        assert interface.is_decoupled

    run(work())


def test_a_member_finishes_after_the_ensembles_that_need_it(root: Path) -> None:
    async def work() -> None:
        parts(root)
        write(root, "first", "1", "")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("both")
        first, both = yard.repository.find("first"), yard.repository.find("both")
        asked = ask()
        both.scheduler.offer(asked, 0.0)  # it is under way, and its steps are not asked yet
        yard.control.unload("first")
        await yard.settle()

        assert yard.repository.names() == ["second"]
        assert lives(first, both) == [Life.READY, Life.DRAINING], "a step may still need it"
        both.withdraw(asked)
        await yard.settle()
        assert lives(first, both) == [Life.UNLOADED, Life.UNLOADED]

    run(work())


def test_an_ensemble_that_is_unloaded_with_its_members_finishes_before_them(root: Path) -> None:
    async def work() -> None:
        parts(root)
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("both")
        second, both = yard.repository.find("second"), yard.repository.find("both")
        asked = ask()
        both.scheduler.offer(asked, 0.0)
        yard.control.unload("both", unload_dependents=True)
        await yard.settle()
        assert yard.repository.names() == []
        assert lives(second) == [Life.READY]
        both.withdraw(asked)
        await yard.settle()
        assert lives(second) == [Life.UNLOADED]

    run(work())


def test_a_step_is_held_against_the_version_it_names(root: Path) -> None:
    async def work() -> None:
        put(root, "first", BATCHED.replace("max_batch_size: 8", "max_batch_size: 4") + ALL, "1", "2")
        put(root, "right", ensemble(step("first", version=2), size=4), file="")
        put(root, "wrong", ensemble(step("first", version=2), size=8), file="")
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("right")

        with pytest.raises(InvalidInput) as refused:
            await yard.control.load("wrong")
        words = "contains model first which only allows maximum batch size to be 4"
        assert str(refused.value) == (
            f"load failed for model 'wrong': ensemble wrong allows maximum batch size 8, but it {words}\n"
        )
        assert ("wrong",) in await yard.index()

    run(work())


def test_an_ensemble_that_its_new_member_does_not_fit_is_away_until_it_fits_again(root: Path) -> None:
    async def work() -> None:
        parts(root)
        yard = Yard(root)
        await yard.control.start()
        await yard.control.load("both")
        put(root, "first", BATCHED.replace("dims: [ 4 ]", "dims: [ 5 ]"))
        await yard.control.load("first")
        await yard.settle()
        assert yard.repository.names() == ["first", "second"]
        assert ("both", "1", "UNAVAILABLE", "unloaded") in await yard.index()
        put(root, "first")
        await yard.control.load("first")

        assert yard.repository.names() == ["both", "first", "second"]

    run(work())


def test_answers_of_an_ensemble_with_many_are_not_kept(root: Path) -> None:
    async def work() -> None:
        parts(root)
        put(root, "second", BATCHED + "model_transaction_policy { decoupled: true }")
        kept = ensemble(step("first", target="mid"), step("second", source="mid")) + "response_cache { enable: true }"
        put(root, "both", kept, file="")
        yard = Yard(root)
        await yard.control.start()

        with pytest.raises(InvalidInput, match="Response Cache does not currently support model both with 'decoupled'"):
            await yard.control.load("both")

    run(work())


def test_a_graph_that_goes_round_is_not_even_read(root: Path) -> None:
    async def work() -> None:
        put(root, "first")
        text = ensemble(step("first", "x", "y"), step("first", "y", "x"), step("first", "IN", "OUT"))
        put(root, "round", text, file="")
        yard = Yard(root)
        await yard.control.start()

        with pytest.raises(ServingError, match=r"failed to poll from model repository: .* goes round in a circle"):
            await yard.control.load("round")

    run(work())


def test_two_ensembles_that_need_each_other_do_not_wait_for_each_other(root: Path) -> None:
    async def work() -> None:
        put(root, "e", ensemble(step("f")), file="")
        put(root, "f", ensemble(step("e")), file="")
        yard = Yard(root)
        await yard.control.start()
        results = await asyncio.gather(yard.control.load("e"), yard.control.load("f"), return_exceptions=True)

        assert all("circular" in str(result) for result in results)

    run(work())
