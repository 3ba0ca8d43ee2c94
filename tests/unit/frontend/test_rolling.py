"""Rollouts through the management API: what clients may ask for, and what they are told."""

import asyncio

import pytest

from shoal.config.model import Interface, ModelConfig, TensorSpec
from shoal.core.model import Life
from shoal.errors import LoadFailed
from shoal.frontend.kserve.desk import Desk as KserveDesk
from shoal.frontend.kserve.memory import Regions
from shoal.payload import Result
from tests.unit.frontend.api_fakes import Answer, Desk, Pool, failing


def desk_with(compat: str = "") -> Desk:
    desk = Desk(compat, drain_within=1.0)
    desk.add("m", "1.0", workers=2)
    return desk


def status(answer: Answer) -> str:
    assert answer.status == 200, answer.body
    return str(answer.json["status"])


@pytest.mark.parametrize("compat", ["", "torchserve"])
def test_a_registration_may_take_the_place_of_what_serves(compat: str) -> None:
    desk = desk_with(compat)
    old = desk.repository.find("m")

    answer = desk.manage("/models?url=n.py&model_name=m&version=2.0&replace=true", "POST")

    assert status(answer) == 'Model "m" Version: 2.0 took the place of 1.0 with 2 workers'
    assert desk.repository.find("m").version == "2.0"
    assert [model.version for model in desk.repository.versions("m")] == ["2.0"]
    assert old.life is Life.UNLOADED
    assert desk.intake.discarded == ["m 1.0"]
    assert desk.manage("/models/m", "GET").json[0]["rollout"]["state"] == "serving"


def test_the_same_version_may_take_its_own_place_with_as_many_workers_as_are_said() -> None:
    desk = desk_with()
    old = desk.repository.find("m")

    answer = desk.manage("/models?url=n.py&model_name=m&replace=true&initial_workers=3", "POST")

    assert status(answer) == 'Model "m" Version: 1.0 took the place of 1.0 with 3 workers'
    assert desk.repository.find("m") is not old


def test_a_name_that_is_new_is_registered() -> None:
    answer = desk_with().manage("/models?url=n.py&model_name=n&replace=true", "POST")

    assert status(answer) == 'Model "n" Version: 1.0 registered with 1 workers'


def test_one_that_does_not_load_leaves_what_serves_and_both_answer_and_describe_say_why() -> None:
    desk = desk_with()
    old = desk.repository.find("m")
    desk.on_built = failing(LoadFailed("no weights", "line 7"))

    answer = desk.manage("/models?url=n.py&model_name=m&version=2.0&replace=true", "POST")

    assert answer.status == 500
    assert "no weights" in answer.json["message"]
    assert desk.repository.find("m") is old
    assert old.life is Life.READY
    assert desk.intake.discarded == ["m 2.0"]
    told = desk.manage("/models/m", "GET").json[0]["rollout"]
    assert (told["version"], told["state"], told["error"], told["traceback"]) == (
        *("2.0", "failed", "no weights", "line 7"),
    )


def test_a_rollout_need_not_be_waited_for() -> None:
    async def story() -> None:
        desk = Desk(drain_within=1.0)
        await desk.actions.register({"url": "m.py"})
        assert await desk.actions.register({"url": "m.py", "replace": "true", "synchronous": "false"}) == (
            202,
            "Processing worker updates...",
        )
        old = desk.repository.find("m")
        while old is desk.repository.find("m"):  # noqa: ASYNC110
            await asyncio.sleep(0.001)
        desk.on_built = failing(LoadFailed("no"))
        await desk.actions.register({"url": "m.py", "replace": "true", "synchronous": "false", "version": "2.0"})
        while "m 2.0" not in desk.intake.discarded:  # noqa: ASYNC110
            await asyncio.sleep(0.001)

    asyncio.run(asyncio.wait_for(story(), 10))


def test_a_registration_may_have_a_share_which_requests_follow() -> None:
    async def story() -> None:
        desk = Desk(drain_within=1.0)
        await desk.actions.register({"url": "m.py"})
        said = await desk.actions.register({"url": "m.py", "version": "2.0", "canary": "25", "canary_sticky": "false"})
        assert said == (200, 'Model "m" Version: 2.0 has 25 % of the requests, 1.0 the others')

        for _ in range(8):
            desk.ask("/predictions/m", body=b"x")
        desk.ask("/predictions/m/1.0", body=b"x")

        assert len(desk.benches["m", "2.0"].batcher.queue) == 2
        assert len(desk.benches["m", "1.0"].batcher.queue) == 7
        facts = (await desk.actions.describe("m", "all", customized=False))[1]["canary"]
        assert (facts["weight"], facts["version"]) == (25.0, "2.0")

        assert await desk.actions.share("m", "2.0", {"weight": "100"}) == (
            *(200, 'Model "m" Version: 2.0 has 100 % of the requests'),
        )
        desk.ask("/predictions/m", body=b"x")
        assert len(desk.benches["m", "2.0"].batcher.queue) == 3
        assert (await desk.actions.share("m", "2.0", {"weight": "0.0"}))[1].endswith("1.0 has all of them")
        for _ in range(3):
            desk.ask("/predictions/m", body=b"x")
        assert len(desk.benches["m", "2.0"].batcher.queue) == 3

    asyncio.run(story())


@pytest.mark.parametrize(
    ("query", "status", "words"),
    [
        ("replace=true&canary=5", 400, "exclude each other"),
        ("canary=0", 400, "above 0 and at most 100"),
        ("canary=x", 400, "Expected `float`"),
        ("canary=5&canary_wieght=1", 400, "did you mean 'weight'?"),
        ("canary=5&canary_max_errors=500", 400, "percentage points"),
        ("canary=5&model_name=n", 400, "has no version to share with"),
        ("canary=5&version=1.0", 409, "already registered"),
    ],
)
def test_what_cannot_be_done_is_refused_and_nothing_stays(query: str, status: int, words: str) -> None:
    desk = desk_with()

    answer = desk.manage(f"/models?url=n.py&model_name=m&{query}", "POST")

    assert answer.status == status
    assert words in answer.json["message"]
    assert [model.version for model in desk.repository] == ["1.0"]
    assert len(desk.intake.asked) == len(desk.intake.discarded)


@pytest.mark.parametrize(
    ("target", "status", "words"),
    [
        ("/models/m/1.0/canary?weight=5", 409, "is its default"),
        ("/models/m/9/canary?weight=5", 404, "does not exist"),
        ("/models/n/1.0/canary?weight=5", 404, "not found"),
        ("/models/m/1.0/canary?weight=-1", 400, "above 0"),
        ("/models/m/1.0/canary?weight=5&window=0", 400, "window"),
    ],
)
def test_a_share_that_cannot_be_is_refused(target: str, status: int, words: str) -> None:
    answer = desk_with().manage(target, "PUT")

    assert answer.status == status
    assert words in answer.json["message"]


def test_a_second_rollout_of_a_name_is_told_that_there_is_one() -> None:
    async def story() -> None:
        desk = Desk(drain_within=1.0)
        await desk.actions.register({"url": "m.py"})
        gate = asyncio.Event()

        def wait(pool: Pool) -> None:
            pool.gate = gate

        desk.on_built = wait
        first = asyncio.create_task(desk.actions.register({"url": "m.py", "replace": "true"}))
        await asyncio.sleep(0.01)
        answer = await desk.managing("/models?url=n.py&model_name=m&replace=true", "POST")
        assert answer.status == 409
        assert "being rolled out" in answer.json["message"]
        gate.set()
        assert (await first)[0] == 200

    asyncio.run(story())


def test_a_version_on_trial_that_fails_does_not_make_the_server_unhealthy() -> None:
    async def story() -> None:
        desk = Desk(drain_within=1.0)
        await desk.actions.register({"url": "m.py"})
        await desk.actions.register({"url": "m.py", "version": "2.0", "canary": "25"})
        desk.repository.find("m", "2.0").fail("out of luck")
        assert desk.ask("/ping", method="GET").status == 200
        desk.repository.find("m", "1.0").fail("out of luck")
        assert desk.ask("/ping", method="GET").status == 500

    asyncio.run(story())


def test_mms_knows_nothing_of_it() -> None:
    desk = Desk("mms")
    desk.add("m")

    assert desk.manage("/models?url=n.py&model_name=m&replace=true", "POST").status == 409
    assert desk.manage("/models/m/1.0/canary?weight=5", "PUT").status == 404
    assert "rollout" not in desk.manage("/models/m", "GET").json


def test_an_answer_of_the_old_version_that_was_waited_for_still_comes() -> None:
    desk = Desk(drain_within=1.0)
    desk.add("m")
    answer = Answer("/predictions/m", body=b"x")
    desk.inference.predict(answer.exchange)
    request = desk.asked()

    async def story() -> None:
        rolling = asyncio.create_task(desk.actions.register({"url": "m.py", "version": "2.0", "replace": "true"}))
        await asyncio.sleep(0.01)
        assert request.batch is not None
        request.batch.deliver(0, Result(b"from the old one"), True, 1.0)
        await rolling

    asyncio.run(story())
    assert answer.body == b"from the old one"


def test_versions_that_take_tensors_take_turns_too() -> None:
    async def story() -> None:
        desk = Desk(drain_within=1.0)
        kserve = KserveDesk(desk.repository, desk.clock, Regions(is_on=False, lend=lambda size: None, largest=1))
        tensor = TensorSpec(name="T", datatype="FP32", dims=[1])
        interface = Interface(inputs=[tensor], outputs=[tensor])
        for version in ("1", "2"):
            await desk.repository.register(ModelConfig(name="t", version=version, path="t.py", interface=interface))
        assert kserve.find("t").model.version == "2"
        await desk.actions.share("t", "2", {"weight": "50"})

        assert [kserve.find("t").model.version for _ in range(4)] == ["1", "2", "1", "2"]
        assert kserve.find("t", "1").model.version == "1"
        assert not kserve.is_lasting("t", "")
        await desk.actions.share("t", "2", {"weight": "0"})
        assert kserve.find("t").model.version == "1"
        assert kserve.find("t", "2").model.version == "2"
        await desk.actions.set_default("t", "2")
        assert kserve.find("t").model.version == "2"

    asyncio.run(story())


def test_nor_does_it_for_those_who_ask_in_kserves_words() -> None:
    async def story() -> None:
        desk = Desk(drain_within=1.0)
        kserve = KserveDesk(desk.repository, desk.clock, Regions(is_on=False, lend=lambda size: None, largest=1))
        await desk.actions.register({"url": "m.py"})
        await desk.actions.register({"url": "m.py", "version": "2.0", "canary": "25"})
        desk.repository.find("m", "2.0").fail("out of luck")
        assert kserve.all_ready()
        desk.repository.find("m", "1.0").fail("out of luck")
        assert not kserve.all_ready()

    asyncio.run(story())
