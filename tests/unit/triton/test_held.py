"""A model that was drained or has failed: what the index says, and that it is loaded and unloaded like any other."""

from pathlib import Path

import pytest

from shoal.core.model import Life
from shoal.errors import ModelNotFound, ServingError
from tests.unit.triton.repositories import put
from tests.unit.triton.yard import Yard, run


async def ready(root: Path) -> Yard:
    put(root, "a")
    yard = Yard(root, mode="explicit")
    await yard.control.start()
    await yard.control.load("a")
    return yard


def test_a_drained_model_is_not_available_and_is_nobodys_fault(tmp_path: Path) -> None:
    async def work() -> None:
        yard = await ready(tmp_path)

        await yard.models[0].rest(1.0)

        (line,) = await yard.control.index(ready=False)
        assert (line.state, line.reason) == ("UNAVAILABLE", "drained")
        assert await yard.control.index(ready=True) == []
        assert yard.control.is_ready()

        await yard.models[0].scale(1)
        assert await yard.index() == [("a", "1", "READY")]

    run(work())


@pytest.mark.parametrize("life", [Life.FAILED, Life.DRAINED])
def test_what_does_not_serve_is_unloaded_all_the_same(tmp_path: Path, life: Life) -> None:
    async def work() -> None:
        yard = await ready(tmp_path)
        await not_serving(yard, life)

        yard.control.unload("a")
        await yard.settle()

        assert yard.models[0].life is Life.UNLOADED
        (line,) = await yard.control.index(ready=False)
        assert (line.state, line.reason) == ("UNAVAILABLE", "unloaded")
        with pytest.raises(ModelNotFound):
            yard.repository.find("a")

    run(work())


@pytest.mark.parametrize("life", [Life.FAILED, Life.DRAINED])
def test_a_load_that_fails_leaves_what_does_not_serve_where_it_was(tmp_path: Path, life: Life) -> None:
    async def work() -> None:
        yard = await ready(tmp_path)
        await not_serving(yard, life)
        (tmp_path / "a" / "1" / "model.py").write_text("fail not today")

        with pytest.raises(ServingError, match="not today"):
            await yard.control.load("a")
        (tmp_path / "a" / "1" / "model.py").write_text("")
        await yard.control.load("a")
        await yard.settle()

        assert yard.models[0].life is Life.UNLOADED
        assert await yard.index() == [("a", "1", "READY")]
        assert yard.repository.find("a") is yard.models[-1]

    run(work())


async def not_serving(yard: Yard, life: Life) -> None:
    if life is Life.DRAINED:
        await yard.models[0].rest(1.0)
    else:
        yard.models[0].move(Life.FAILED)
