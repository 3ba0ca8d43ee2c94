import asyncio

import pytest

from shoal.core.model import Life
from shoal.errors import LoadFailed
from shoal.payload import Result
from tests.unit.frontend.api_fakes import Desk, Pool, failing, worker


def ping(desk: Desk) -> tuple[int, str]:
    answer = desk.ask("/ping", method="GET")
    return answer.status, answer.json["status"]


@pytest.mark.parametrize("compat", ["", "torchserve", "mms"])
def test_a_server_without_models_or_with_idle_ones_is_healthy(compat: str) -> None:
    desk = Desk(compat)
    assert ping(desk) == (200, "Healthy")
    desk.add("m", workers=0)
    assert ping(desk) == (200, "Healthy")
    desk.add("n", workers=2)
    assert ping(desk) == (200, "Healthy")


@pytest.mark.parametrize(
    ("fields", "is_healthy"),
    [
        ({"state": "ready"}, True),
        ({"state": "starting"}, True),
        ({"state": "waiting", "failing": 300.0}, True),
        ({"state": "waiting", "failing": 300.1}, False),
        ({"state": "starting", "failing": 301.0}, False),
        ({"state": "stopped"}, False),
    ],
)
def test_a_worker_counts_in_torchserve_until_it_is_given_up(fields: dict[str, object], is_healthy: bool) -> None:
    desk = Desk("torchserve")
    desk.add("m", retry_for=300.0, workers=2)
    desk.pools["m", "1.0"].facts = [worker(0), worker(1, **fields)]

    assert ping(desk) == ((200, "Healthy") if is_healthy else (500, "Unhealthy"))


def test_only_the_default_version_counts_in_torchserve() -> None:
    desk = Desk("torchserve")
    desk.add("m", "1.0")
    desk.add("m", "2.0")
    desk.pools["m", "2.0"].facts = []
    assert ping(desk)[0] == 200
    desk.repository.set_default("m", "2.0")
    assert ping(desk) == (500, "Unhealthy")


def test_a_model_that_is_loading_or_being_scaled_counts_as_healthy() -> None:
    desk = Desk("torchserve")

    async def story() -> None:
        gate = asyncio.Event()

        def hold(pool: Pool) -> None:
            pool.gate = gate

        desk.on_built = hold
        assert (await desk.managing("/models?url=x&synchronous=false", "POST")).status == 202
        assert ping(desk) == (200, "Healthy")
        gate.set()
        await asyncio.sleep(0.01)
        assert desk.repository.find("m").life is Life.READY
        gate.clear()
        await desk.managing("/models/m?min_worker=3", "PUT")
        await asyncio.sleep(0.01)
        assert desk.repository.find("m").min_workers == 3
        assert ping(desk) == (200, "Healthy")
        gate.set()
        await asyncio.sleep(0.01)

    asyncio.run(story())


def test_a_model_that_could_not_be_loaded_is_unhealthy() -> None:
    desk = Desk("torchserve")
    desk.on_built = failing(LoadFailed("no"))

    async def story() -> None:
        await desk.managing("/models?url=x&synchronous=false", "POST")
        await asyncio.sleep(0.01)

    asyncio.run(story())
    assert ping(desk) == (500, "Unhealthy")


@pytest.mark.parametrize(
    ("states", "word"),
    [
        (["ready", "ready"], "Healthy"),
        (["ready", "waiting"], "Partial Healthy"),
        (["waiting", "stopped"], "Unhealthy"),
        ([], "Unhealthy"),
    ],
)
def test_mms_has_three_words_and_one_status(states: list[str], word: str) -> None:
    desk = Desk("mms")
    desk.add("m", workers=2)
    desk.pools["m", "1.0"].facts = [worker(number, state=state) for number, state in enumerate(states)]

    assert ping(desk) == (200, word)


def test_our_own_rule_asks_whether_a_request_would_be_served() -> None:
    desk = Desk()
    desk.add("m")
    desk.benches["m", "1.0"].fleet.size = 0

    assert ping(desk) == (500, "Unhealthy")


@pytest.mark.parametrize(
    ("compat", "said"),
    [("", (500, "Unhealthy")), ("torchserve", (500, "Unhealthy")), ("mms", (200, "Unhealthy"))],
)
def test_a_server_that_is_being_stopped_says_so_while_it_still_answers(compat: str, said: tuple[int, str]) -> None:
    desk = Desk(compat)
    desk.add("m")
    assert ping(desk) == (200, "Healthy")

    desk.repository.is_closing = True

    assert ping(desk) == said
    assert desk.ask("/predictions/m", Result(b"still here")).body == b"still here"
