"""A version takes another's place, or a share of its requests: what becomes of both, of the log and of what is told."""

import asyncio
import logging
from collections.abc import Coroutine
from typing import Any

import pytest

from shoal.config.model import Canary, ModelConfig
from shoal.core.model import Life, Model
from shoal.core.repository import Repository
from shoal.core.rollout import Rollouts, succeeding
from shoal.errors import Conflict, HandlerFailed, LoadFailed, ModelNotFound, Unavailable, VersionNotFound
from tests.support import Bench, FakeClock, FakePool, ask

RULE = Canary(weight=50.0, min_requests=4)


class Client(int):
    address: str


class House:
    """Models on benches, each with one instance, and a clock of the test's."""

    def __init__(self) -> None:
        self.clock = FakeClock()
        self.repository = Repository(self.build)
        self.gone: list[str] = []
        self.benches: dict[Model, Bench] = {}
        self.broken: Exception | None = None
        self.rollouts = Rollouts(self.repository, self.clock, drain_within=600.0, on_gone=self.leave)

    def leave(self, config: ModelConfig) -> None:
        self.gone.append(config.version)

    def build(self, config: ModelConfig) -> Model:
        pool, bench = FakePool(), Bench()
        pool.size = config.workers
        if self.broken is not None:
            pool.on_start = self.fail
        model = Model(config, bench.scheduler, pool, self.clock)
        self.benches[model] = bench
        bench.join()
        return model

    def fail(self) -> None:
        assert self.broken is not None
        raise self.broken

    async def register(self, version: str) -> Model:
        return await self.repository.register(config(version))

    def work(self, model: Model, count: int, *, failed: int = 0, seconds: float = 0.01) -> None:
        """Let a model end requests: answers first, then failures."""
        bench = self.benches[model]
        (instance,) = bench.scheduler._instances.values()
        bench.now = self.clock.time
        bench.offer(*(ask(arrived=bench.now - seconds) for _ in range(count + failed)))
        bench.feed()
        bench.finish(instance, *[b"ok"] * count, error=HandlerFailed("no"))  # type: ignore[arg-type]  # a StubInstance

    def told(self) -> dict[str, Any]:
        return self.rollouts.describe("m")


def config(version: str = "1.0", **values: Any) -> ModelConfig:
    return ModelConfig(name="m", version=version, path="m.py", **values)


def run(work: Coroutine[Any, Any, None]) -> None:
    asyncio.run(work)


def test_a_version_takes_the_place_of_another_which_finishes_and_goes() -> None:
    async def story() -> None:
        house = House()
        old = await house.register("1.0")
        waiting = ask()
        old.submit(waiting)

        new = await house.rollouts.replace(config("2.0"))
        await asyncio.sleep(0)

        assert house.repository.find("m") is new
        assert (new.life, old.life) == (Life.READY, Life.DRAINING)
        assert house.gone == []
        with pytest.raises(Unavailable):
            old.submit(ask())
        bench = house.benches[old]
        (instance,) = bench.scheduler._instances.values()
        bench.feed()
        bench.finish(instance, b"done")  # type: ignore[arg-type]  # a StubInstance
        await asyncio.sleep(0.01)
        assert waiting.ear.bodies == [b"done"]
        assert old.life is Life.UNLOADED
        assert house.gone == ["1.0"]
        assert (house.told()["rollout"]["version"], house.told()["rollout"]["state"]) == ("2.0", "serving")

    run(story())


def test_one_that_cannot_be_loaded_leaves_the_old_one_and_says_why(caplog: pytest.LogCaptureFixture) -> None:
    async def story() -> None:
        house = House()
        old = await house.register("1.0")
        house.broken = LoadFailed("no such layer", "Traceback: here")
        house.clock.time = 3.0
        changes = house.repository.changes

        with pytest.raises(LoadFailed, match="no such layer"):
            await house.rollouts.replace(config("2.0"))

        house.clock.time = 5.0
        assert house.repository.find("m") is old
        assert old.life is Life.READY
        assert house.repository.changes == changes
        assert house.told() == {
            "rollout": {
                "version": "2.0",
                "state": "failed",
                "seconds": 2.0,
                "error": "no such layer",
                "traceback": "Traceback: here",
            }
        }
        house.broken = None
        assert (await house.rollouts.replace(config("2.0"))) is house.repository.find("m")

    with caplog.at_level(logging.ERROR):
        run(story())
    assert "not rolled out, what served goes on serving: no such layer" in caplog.text


def test_two_rollouts_of_a_name_do_not_run_at_once_and_other_names_do_not_mind() -> None:
    async def story() -> None:
        house = House()
        await house.register("1.0")
        first = asyncio.create_task(house.rollouts.replace(config("2.0")))
        await asyncio.sleep(0)

        with pytest.raises(Conflict, match="being rolled out"):
            await house.rollouts.replace(config("3.0"))
        await house.rollouts.replace(ModelConfig(name="n", path="n.py"))
        assert (await first).version == "2.0"
        assert (await house.rollouts.replace(config("3.0"))).version == "3.0"
        assert house.repository.names() == ["m", "n"]

    run(story())


def test_a_successor_has_the_workers_that_its_predecessor_was_scaled_to() -> None:
    async def story() -> None:
        house = House()
        old = await house.repository.register(config("1.0", loaded_at_startup=True))
        await old.scale(3, 5)

        made = succeeding(config("2.0", workers=1), old)

        assert (made.workers, made.max_workers, made.loaded_at_startup, made.version) == (3, 5, True, "2.0")

    run(story())


def test_a_version_on_trial_has_its_share_and_a_named_version_all_of_its_own() -> None:
    async def story() -> None:
        house = House()
        old = await house.register("1.0")

        new = await house.rollouts.load_on_trial(config("2.0"), RULE)

        assert [house.repository.pick("m") for _ in range(6)] == [old, new] * 3
        assert house.repository.pick("m", "1.0") is old
        assert house.repository.find("m") is old
        facts = house.told()["canary"]
        assert (facts["version"], facts["weight"], facts["old"]["version"]) == ("2.0", 50.0, "1.0")
        assert house.told()["rollout"]["state"] == "trial"
        assert house.rollouts.trials().keys() == {"m"}
        await house.rollouts.close(1.0)

    run(story())


def test_a_sticky_share_sends_a_client_the_same_way_each_time() -> None:
    async def story() -> None:
        house = House()
        await house.register("1.0")
        await house.rollouts.load_on_trial(config("2.0"), Canary(weight=50.0, sticky=True))
        ways: dict[str, set[str]] = {}
        for number in range(40):
            client = Client(number)
            client.address = f"10.0.0.{number % 20}"
            ways.setdefault(client.address, set()).add(house.repository.pick("m", "", client).version)

        assert all(len(way) == 1 for way in ways.values())
        assert {version for way in ways.values() for version in way} == {"1.0", "2.0"}
        await house.rollouts.close(1.0)

    run(story())


@pytest.mark.parametrize(
    ("answered", "failed", "seconds", "words"),
    [(4, 4, 0.01, "4 of its 8 requests failed"), (8, 0, 0.5, "nine of ten"), (8, 0, 0.01, ""), (1, 2, 0.01, "")],
)
def test_a_version_that_is_worse_is_taken_back(answered: int, failed: int, seconds: float, words: str) -> None:
    async def story() -> None:
        house = House()
        old = await house.register("1.0")
        new = await house.rollouts.load_on_trial(config("2.0"), RULE)
        house.work(old, 20)
        house.work(new, answered, failed=failed, seconds=seconds)

        house.rollouts.judge()

        is_over = bool(words)
        assert (house.repository.split_of("m") is None) == is_over
        assert house.rollouts.returns == ({"m": 1} if is_over else {})
        if is_over:
            assert house.told()["rollout"]["state"] == "returned"
            assert words in house.told()["rollout"]["error"]
            assert "canary" not in house.told()
            assert house.repository.pick("m") is old
            assert house.repository.find("m", "2.0") is new, "it stays, to be looked at"
            assert new.scheduler.stats.on_batch == old.scheduler.stats.on_batch == []
        else:
            assert house.told()["canary"]["new"]["answered"] == answered
        await house.rollouts.close(1.0)

    run(story())


def test_refused_and_expired_requests_count_as_failures_and_those_from_before_do_not() -> None:
    async def story() -> None:
        house = House()
        await house.register("1.0")
        new = await house.register("2.0")
        new.scheduler.stats.refused = 100
        house.rollouts.share("m", "2.0", RULE)
        house.rollouts.judge()
        assert house.told()["canary"]["new"]["failed"] == 0

        new.scheduler.stats.refused += 2
        new.scheduler.stats.expired += 2
        house.rollouts.judge()

        assert "4 of its 4 requests failed" in house.told()["rollout"]["error"]

    run(story())


def test_a_new_version_that_cannot_answer_gets_nothing_and_one_that_failed_is_taken_back() -> None:
    async def story() -> None:
        house = House()
        old = await house.register("1.0")
        new = await house.rollouts.load_on_trial(config("2.0"), Canary(weight=100.0))
        assert house.repository.pick("m") is new
        bench = house.benches[new]
        (instance,) = bench.scheduler._instances.values()
        bench.kill(instance)  # type: ignore[arg-type]  # a StubInstance
        assert house.repository.pick("m") is old
        house.rollouts.judge()
        assert house.rollouts.returns == {}, "its worker may come back"

        new.fail("out of luck")
        house.rollouts.judge()

        assert house.told()["rollout"]["error"] == "it is failed: out of luck"
        assert house.rollouts.returns == {"m": 1}

    run(story())


def test_a_share_can_be_changed_and_ended_and_choosing_a_default_ends_it() -> None:
    async def story() -> None:
        house = House()
        old = await house.register("1.0")
        new = await house.register("2.0")
        house.rollouts.share("m", "2.0", Canary(weight=100.0))
        assert house.repository.pick("m") is new
        house.rollouts.share("m", "2.0", RULE)
        assert {house.repository.pick("m") for _ in range(2)} == {old, new}
        house.rollouts.share("m", "2.0", None)
        assert house.repository.pick("m") is old
        assert house.rollouts.trials() == house.told() == {}
        house.rollouts.share("m", "2.0", RULE)
        house.repository.take_out(new)
        house.rollouts.judge()
        assert house.told() == {}
        house.repository.put(new)

        house.rollouts.share("m", "2.0", RULE)
        house.repository.set_default("m", "2.0")
        assert house.rollouts.trials() == {}
        house.rollouts.judge()
        assert house.rollouts.returns == {}
        assert house.told()["rollout"]["state"] == "serving"
        assert new.scheduler.stats.on_batch == old.scheduler.stats.on_batch == []
        with pytest.raises(Conflict, match="is its default"):
            house.rollouts.share("m", "2.0", RULE)
        with pytest.raises(VersionNotFound):
            house.rollouts.share("m", "9.0", RULE)
        with pytest.raises(ModelNotFound):
            await house.rollouts.load_on_trial(ModelConfig(name="n", path="n.py"), RULE)
        with pytest.raises(Conflict, match="already registered"):
            await house.rollouts.load_on_trial(config("1.0"), RULE)

    run(story())


def test_trials_are_looked_at_by_themselves() -> None:
    async def story() -> None:
        house = House()
        await house.register("1.0")
        new = await house.rollouts.load_on_trial(config("2.0"), RULE)
        house.work(new, 0, failed=8)

        async with asyncio.timeout(10):
            while not house.rollouts.returns:  # noqa: ASYNC110
                await asyncio.sleep(0.02)

    run(story())


def test_closing_gives_up_what_loads_and_ends_what_was_taken_out() -> None:
    async def story() -> None:
        house = House()
        old = await house.register("1.0")
        stuck = ask()
        old.submit(stuck)
        await house.rollouts.replace(config("2.0"))

        async def never() -> None:
            await asyncio.sleep(60)

        build = house.build

        def slow(made: ModelConfig) -> Model:
            model = build(made)
            model.pool.start = never  # type: ignore[method-assign]  # a pool that takes its time
            return model

        house.repository._build = slow
        loading = asyncio.create_task(house.rollouts.replace(config("3.0")))
        await asyncio.sleep(0.01)

        async with asyncio.timeout(30):
            await house.rollouts.close(0.0)

        with pytest.raises(Unavailable, match="being stopped"):
            await loading
        assert old.life is Life.UNLOADED
        assert stuck.has_ended
        assert house.gone == ["1.0"]
        assert house.repository.find("m").version == "2.0"
        with pytest.raises(Unavailable, match="being stopped"):
            await house.rollouts.replace(config("4.0"))

    run(story())


def test_what_is_remembered_of_names_goes_with_them() -> None:
    async def story() -> None:
        house = House()
        house.broken = LoadFailed("no")
        for number in range(5):
            with pytest.raises(LoadFailed):
                await house.rollouts.replace(ModelConfig(name=f"n{number}", path="m.py"))

        assert len(house.rollouts._attempts) == 1

    run(story())
