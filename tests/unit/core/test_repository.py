import asyncio

import pytest

from shoal.config.model import ModelConfig
from shoal.core.model import Life, Model
from shoal.core.repository import Repository
from shoal.errors import Conflict, LoadFailed, ModelNotFound, Protected, ServingError, VersionNotFound
from tests.support import Bench, FakeClock, FakePool, ask


class Shelf:
    """A repository of models that load when told."""

    def __init__(self) -> None:
        self.pools: list[FakePool] = []
        self.broken = ""
        self.repository = Repository(self.build)

    def build(self, config: ModelConfig) -> Model:
        pool = FakePool()
        pool.size = 1
        if self.broken:
            pool.on_start = self.fail
        self.pools.append(pool)
        return Model(config, Bench().scheduler, pool, FakeClock())

    def fail(self) -> None:
        raise LoadFailed(self.broken)

    def register(self, name: str, version: str = "1.0") -> Model:
        return asyncio.run(self.repository.register(config(name, version)))

    def unregister(self, name: str, version: str = "") -> bool:
        return asyncio.run(self.repository.unregister(name, version, 1.0))


def config(name: str, version: str = "1.0") -> ModelConfig:
    return ModelConfig(name=name, version=version, path="m.py")


def test_a_name_finds_its_default_and_a_version_itself() -> None:
    shelf = Shelf()
    first, second = shelf.register("m", "1.0"), shelf.register("m", "2.0")

    assert shelf.repository.find("m") is first
    assert shelf.repository.find("m", "2.0") is second
    assert shelf.repository.versions("m") == [first, second]
    assert list(shelf.repository) == [first, second]


def test_names_are_given_in_order() -> None:
    shelf = Shelf()
    for name in ("b", "c", "a"):
        shelf.register(name)

    assert shelf.repository.names() == ["a", "b", "c"]


def test_an_unknown_name_and_an_unknown_version_are_told_apart() -> None:
    shelf = Shelf()
    shelf.register("m")

    with pytest.raises(ModelNotFound, match="Model not found: n"):
        shelf.repository.find("n")
    with pytest.raises(ModelNotFound):
        shelf.repository.versions("n")
    with pytest.raises(VersionNotFound, match=r"Model version: 9\.0 does not exist for model: m"):
        shelf.repository.find("m", "9.0")


def test_a_version_is_registered_once() -> None:
    shelf = Shelf()
    shelf.register("m")
    changes = shelf.repository.changes

    with pytest.raises(Conflict, match="already registered"):
        shelf.register("m")
    assert len(shelf.pools) == 1
    assert shelf.repository.changes == changes


def test_a_registered_model_was_loaded() -> None:
    shelf = Shelf()

    assert shelf.register("m").life is Life.READY
    assert shelf.pools[0].calls == ["start"]


def test_a_model_that_cannot_be_loaded_is_taken_out_again() -> None:
    shelf = Shelf()
    shelf.broken = "no such module"

    with pytest.raises(LoadFailed, match="no such module"):
        shelf.register("m")
    with pytest.raises(ModelNotFound):
        shelf.repository.find("m")
    assert shelf.pools[0].calls[-1].startswith("stop")


def test_a_version_that_cannot_be_loaded_does_not_disturb_the_default() -> None:
    shelf = Shelf()
    first = shelf.register("m", "1.0")
    shelf.broken = "no such module"

    with pytest.raises(LoadFailed):
        shelf.register("m", "2.0")
    assert shelf.repository.find("m") is first
    assert shelf.repository.versions("m") == [first]


def test_an_unregistered_model_is_gone_at_once_and_finishes_what_it_had() -> None:
    shelf = Shelf()
    model = shelf.register("m")
    model.submit(request := ask())

    async def story() -> None:
        leaving = asyncio.create_task(shelf.repository.unregister("m", "", 60.0))
        await asyncio.sleep(0)
        with pytest.raises(ModelNotFound):
            shelf.repository.find("m")
        assert not request.has_ended
        model.withdraw(request)
        await leaving

    asyncio.run(story())
    assert model.life is Life.UNLOADED


def test_the_default_goes_last() -> None:
    shelf = Shelf()
    shelf.register("m", "1.0")
    shelf.register("m", "2.0")

    with pytest.raises(Protected, match="Cannot remove default version"):
        shelf.unregister("m", "1.0")
    with pytest.raises(Conflict):
        shelf.unregister("m")
    assert shelf.unregister("m", "2.0") is True
    shelf.unregister("m")
    assert shelf.repository.names() == []


def test_another_version_can_become_the_default() -> None:
    shelf = Shelf()
    shelf.register("m", "1.0")
    second = shelf.register("m", "2.0")
    shelf.repository.set_default("m", "2.0")

    assert shelf.repository.find("m") is second
    shelf.unregister("m", "1.0")
    assert shelf.repository.versions("m") == [second]
    with pytest.raises(VersionNotFound):
        shelf.repository.set_default("m", "1.0")


def test_a_default_that_could_not_be_loaded_leaves_the_name_to_the_next() -> None:
    shelf = Shelf()
    repository = shelf.repository

    async def story() -> Model:
        first = repository.add(config("m", "1.0"))
        second = repository.add(config("m", "2.0"))
        repository._forget(first)
        return second

    second = asyncio.run(story())
    assert repository.find("m") is second


def test_a_change_is_seen_by_whoever_keeps_what_it_found() -> None:
    shelf = Shelf()
    seen = [shelf.repository.changes]
    for act in (
        lambda: shelf.register("m", "1.0"),
        lambda: shelf.register("m", "2.0"),
        lambda: shelf.repository.set_default("m", "2.0"),
        lambda: shelf.unregister("m", "1.0"),
    ):
        act()
        seen.append(shelf.repository.changes)

    assert seen == sorted(set(seen))


def test_a_model_unregistered_while_it_loads_says_so_to_whoever_registered_it() -> None:
    shelf = Shelf()
    repository = shelf.repository

    async def story() -> None:
        loading = asyncio.Event()
        model = repository.add(config("m"))
        pool = shelf.pools[0]

        async def start() -> None:
            await loading.wait()

        pool.start = start  # type: ignore[method-assign]  # it loads until the test says otherwise
        repository.add = lambda config: model  # type: ignore[method-assign]  # the one that is loading
        registering = asyncio.create_task(repository.register(config("m")))
        await asyncio.sleep(0)
        await repository.unregister("m", "", 1.0)
        loading.set()
        with pytest.raises(ServingError, match="unloaded while it was loading"):
            await registering

    asyncio.run(story())
    assert repository.names() == []


def test_forgetting_a_model_leaves_its_successor_alone() -> None:
    shelf = Shelf()
    old = shelf.register("m")
    shelf.unregister("m")
    new = shelf.register("m")
    shelf.repository._forget(old)

    assert shelf.repository.find("m") is new


def test_draining_finishes_every_model() -> None:
    shelf = Shelf()
    models = [shelf.register(name) for name in ("a", "b")]
    asyncio.run(shelf.repository.drain(1.0))

    assert [model.life for model in models] == [Life.UNLOADED, Life.UNLOADED]


# -- beside what is here ---------------------------------------------------------------------------------------------


def test_a_model_that_is_loaded_beside_the_others_is_not_found_before_it_is_put_in() -> None:
    async def work() -> None:
        shelf = Shelf()
        repository = shelf.repository
        old = await repository.register(config("m"))
        new = await repository.load(config("m"))
        assert repository.find("m") is old
        changes = repository.changes

        assert repository.put(new) is old

        assert repository.changes > changes
        assert repository.find("m") is new
        assert repository.find("m", "1.0") is new
        assert old.life is Life.READY, "it is the caller's to drain"

    asyncio.run(work())


def test_what_is_put_in_next_to_others_leaves_the_default() -> None:
    async def work() -> None:
        repository = Shelf().repository
        first = await repository.load(config("m", "1"))
        second = await repository.load(config("m", "2"))

        assert repository.put(first) is None
        assert repository.put(second) is None
        assert repository.find("m") is first
        assert repository.versions("m") == [first, second]

    asyncio.run(work())


def test_a_model_that_cannot_be_loaded_beside_the_others_ends_and_the_reason_is_raised() -> None:
    async def work() -> None:
        shelf = Shelf()
        shelf.broken = "no way"
        with pytest.raises(LoadFailed, match="no way"):
            await shelf.repository.load(config("m"))
        assert shelf.pools[0].calls[-1].startswith("stop")
        assert shelf.repository.names() == []

    asyncio.run(work())


def test_a_version_that_is_taken_out_is_not_found_but_not_ended() -> None:
    async def work() -> None:
        repository = Shelf().repository
        first, second = [await repository.register(config("m", version)) for version in ("1", "2")]
        repository.take_out(first)
        repository.take_out(first)

        assert repository.find("m") is second
        assert first.life is Life.READY
        repository.take_out(second)
        assert repository.names() == []

    asyncio.run(work())


class Turns:
    """A split that gives one version, then the other."""

    def __init__(self, old: Model, new: Model) -> None:
        self.old, self.new = old, new
        self.clients: list[object] = []

    def pick(self, client: object) -> Model:
        self.clients.append(client)
        return (self.old, self.new)[len(self.clients) % 2]


def test_versions_that_share_a_name_take_turns_and_a_named_version_is_itself() -> None:
    shelf = Shelf()
    old, new = shelf.register("m", "1.0"), shelf.register("m", "2.0")
    turns = Turns(old, new)
    changes = shelf.repository.changes

    shelf.repository.split("m", turns)

    assert shelf.repository.changes > changes
    assert [shelf.repository.pick("m", "", n) for n in range(4)] == [new, old, new, old]
    assert turns.clients == [0, 1, 2, 3]
    assert shelf.repository.find("m") is old
    assert shelf.repository.pick("m", "1.0") is old
    assert shelf.repository.pick("m", "2.0") is new
    assert shelf.repository.split_of("m") is turns
    assert len(turns.clients) == 4
    with pytest.raises(ModelNotFound):
        shelf.repository.pick("n")
    with pytest.raises(ModelNotFound):
        shelf.repository.split("n", None)


def test_a_split_ends_when_a_default_is_chosen_or_one_of_the_two_leaves() -> None:
    def split() -> tuple[Shelf, Model, Model]:
        shelf = Shelf()
        old, new = shelf.register("m", "1.0"), shelf.register("m", "2.0")
        shelf.register("m", "3.0")
        shelf.repository.split("m", Turns(old, new))
        return shelf, old, new

    shelf, _, new = split()
    shelf.repository.set_default("m", "2.0")
    assert shelf.repository.split_of("m") is None
    assert shelf.repository.pick("m") is new

    assert new not in shelf.repository.on_trial

    shelf, old, new = split()
    assert set(shelf.repository.on_trial) == {new}
    shelf.unregister("m", "2.0")
    assert shelf.repository.split_of("m") is None
    assert shelf.repository.pick("m") is old
    assert not shelf.repository.on_trial

    shelf, _, _ = split()
    shelf.unregister("m", "3.0")
    assert shelf.repository.split_of("m") is not None

    shelf, _, _ = split()
    fresh = asyncio.run(shelf.repository.load(config("m", "2.0")))
    shelf.repository.put(fresh)
    assert shelf.repository.split_of("m") is None


@pytest.mark.parametrize("version", ["1.0", "2.0"])
def test_a_loaded_model_takes_over_in_one_step(version: str) -> None:
    shelf = Shelf()
    old, other = shelf.register("m", "1.0"), shelf.register("m", "0.9")
    new = asyncio.run(shelf.repository.load(config("m", version)))
    changes = shelf.repository.changes

    assert shelf.repository.take_over(new) == [old]

    assert shelf.repository.find("m") is new
    assert set(shelf.repository.versions("m")) == {new, other}
    assert shelf.repository.changes > changes
    assert old.life is Life.READY, "it finishes when whoever took it out says so"


def test_a_model_that_takes_over_puts_out_the_default_and_its_own_version() -> None:
    shelf = Shelf()
    default, same = shelf.register("m", "1.0"), shelf.register("m", "2.0")
    new = asyncio.run(shelf.repository.load(config("m", "2.0")))

    assert shelf.repository.take_over(new) == [default, same]
    assert shelf.repository.versions("m") == [new]


def test_a_name_that_is_new_is_taken_over_from_nobody() -> None:
    shelf = Shelf()
    new = asyncio.run(shelf.repository.load(config("m")))

    assert shelf.repository.take_over(new) == []
    assert shelf.repository.find("m") is new
