import asyncio
from typing import Any

import pytest

from shoal.config.model import Batching
from shoal.core.batch import Stages
from shoal.core.model import Life
from shoal.errors import (
    Conflict,
    HandlerFailed,
    InvalidInput,
    LoadFailed,
    LoadOutOfMemory,
    ModelNotFound,
    Protected,
    ServingError,
    VersionNotFound,
)
from shoal.frontend.actions import MOST_WORKERS
from shoal.frontend.status import ModelApiOff, NegativeWorkers, NoDescriber, NoDescription, StillBusy
from shoal.payload import Result
from tests.unit.frontend.api_fakes import Desk, Pool, failing, join, run, worker

LONG = "Use scale workers API to add workers for the model."


def register(desk: Desk, **parameters: str) -> tuple[int, str]:
    return run(desk.actions.register({"url": "m.mar", **parameters}))


@pytest.mark.parametrize(
    ("compat", "workers", "sentence"),
    [
        ("torchserve", 2, 'Model "m" Version: 1.0 registered with 2 initial workers'),
        ("torchserve", 0, f'Model "m" Version: 1.0 registered with 0 initial workers. {LONG}'),
        ("", 1, 'Model "m" Version: 1.0 registered with 1 initial workers'),
        ("mms", 1, "Workers scaled"),
        ("mms", 0, 'Model "m" registered'),
    ],
)
def test_registering_says_what_was_done(compat: str, workers: int, sentence: str) -> None:
    desk = Desk(compat)

    assert register(desk, initial_workers=str(workers)) == (200, sentence)
    assert desk.repository.find("m").pool.size == workers
    assert desk.intake.discarded == []


def test_registering_need_not_wait_for_the_workers() -> None:
    desk = Desk("torchserve")

    async def story() -> None:
        answer = await desk.actions.register({"url": "m", "synchronous": "FALSE"})
        assert answer == (202, "Processing worker updates...")
        life: Life = desk.repository.find("m").life
        assert life is Life.LOADING
        await asyncio.sleep(0.01)
        assert desk.repository.find("m").life is Life.READY

    run(story())
    assert register(Desk("torchserve"), synchronous="false", initial_workers="0")[0] == 200


def test_without_workers_there_is_nothing_to_wait_for() -> None:
    assert register(Desk("torchserve"), synchronous="no", initial_workers="0")[0] == 200


@pytest.mark.parametrize(
    ("compat", "sentence"),
    [
        ("torchserve", "Failed to start workers for model m version: 1.0: no module torhc"),
        ("mms", "Failed to start workers: no module torhc"),
        ("", "no module torhc"),
    ],
)
@pytest.mark.parametrize("kind", [LoadFailed, LoadOutOfMemory])
def test_a_model_that_cannot_be_loaded_leaves_nothing_behind(
    compat: str, sentence: str, kind: type[LoadFailed]
) -> None:
    desk = Desk(compat)
    desk.on_built = failing(kind("no module torhc", "line 1"))

    with pytest.raises(LoadFailed) as failed:
        register(desk)
    assert (type(failed.value), str(failed.value), failed.value.traceback) == (kind, sentence, "line 1")
    assert desk.repository.names() == []
    assert desk.intake.discarded == ["m 1.0"]


def test_a_model_that_fails_later_stays_and_shows_why() -> None:
    desk = Desk("torchserve")
    desk.on_built = failing(LoadFailed("no module torhc", "line 1"))

    async def story() -> dict[str, Any]:
        await desk.actions.register({"url": "m", "synchronous": "false"})
        await asyncio.sleep(0.01)
        return (await desk.actions.describe("m", "", customized=False))[0]

    described = run(story())
    assert (described["state"], described["error"], described["traceback"]) == ("failed", "no module torhc", "line 1")
    assert desk.intake.discarded == []


@pytest.mark.parametrize(
    ("compat", "sentence"),
    [
        ("torchserve", "Model version 1.0 is already registered for model m"),
        ("", "Model version 1.0 is already registered for model m"),
        ("mms", "Model m is already registered."),
    ],
)
def test_a_version_is_registered_once(compat: str, sentence: str) -> None:
    desk = Desk(compat)
    register(desk)

    with pytest.raises(Conflict) as refused:
        register(desk)
    assert str(refused.value) == sentence
    assert len(desk.intake.discarded) == 1
    with pytest.raises(Conflict):
        register(desk, synchronous="false")


@pytest.mark.parametrize(
    ("sent", "seen"),
    [
        ({"batch_size": "x", "response_timeout": "1.5", "startup_timeout": "", "max_batch_delay": "5"},
         {"max_batch_delay": "5"}),
        ({"initial_workers": "-3", "other": "x"}, {"initial_workers": "0", "other": "x"}),
        ({"batch_size": "9" * 50}, {}),
        ({"batch_size": "-1"}, {"batch_size": "-1"}),
    ],
)  # fmt: skip
def test_numbers_that_are_none_mean_the_default_upstream_and_are_passed_on_here(
    sent: dict[str, str], seen: dict[str, str]
) -> None:
    lenient, strict = Desk("torchserve"), Desk()
    register(lenient, **sent)

    assert lenient.intake.asked == [{"url": "m.mar", **seen}]
    if "initial_workers" not in sent:
        register(strict, **sent)
        assert strict.intake.asked == [{"url": "m.mar", **sent}]


@pytest.mark.parametrize(
    ("before", "parameters", "after", "limits"),
    [
        (1, {"min_worker": "3"}, 3, (3, 3)),
        (3, {"min_worker": "1"}, 1, (1, 1)),
        (3, {"min_worker": "1", "max_worker": "5"}, 3, (1, 5)),
        (5, {"min_worker": "1", "max_worker": "2"}, 2, (1, 2)),
        (1, {"min_worker": "2", "max_worker": "9"}, 2, (2, 9)),
        (3, {"min_worker": "0"}, 0, (0, 0)),
        (3, {"min_worker": "0", "max_worker": "2"}, 0, (0, 2)),
        (3, {}, 1, (1, 1)),
        (3, {"number_gpu": "x", "timeout": "7", "min_worker": "2"}, 2, (2, 2)),
    ],
)
def test_scaling_keeps_the_workers_between_its_limits(
    before: int, parameters: dict[str, str], after: int, limits: tuple[int, int]
) -> None:
    desk = Desk("torchserve")
    model = desk.add(workers=before)
    status, sentence = run(desk.actions.scale("m", "", {**parameters, "synchronous": "true"}))

    assert (status, sentence) == (200, f"Workers scaled to {limits[0]} for model: m")
    assert model.pool.size == after
    assert (model.min_workers, model.max_workers) == limits
    (described,) = run(desk.actions.describe("m", "", customized=False))
    assert (described["minWorkers"], described["maxWorkers"]) == limits


def test_scaling_says_the_version_if_one_was_named() -> None:
    desk = Desk("torchserve")
    desk.add()
    answer = run(desk.actions.scale("m", "1.0", {"min_worker": "2", "synchronous": "true"}))
    assert answer == (200, "Workers scaled to 2 for model: m, version: 1.0")
    mms = Desk("mms")
    mms.add()
    assert run(mms.actions.scale("m", "", {"synchronous": "true"})) == (200, "Workers scaled")


def test_in_our_own_words_scaling_says_how_many_there_are() -> None:
    desk = Desk()
    desk.add(workers=3)
    _, sentence = run(desk.actions.scale("m", "", {"min_worker": "1", "max_worker": "5", "synchronous": "true"}))

    assert sentence == "Workers scaled to 3 for model: m"


def test_scaling_does_not_wait_unless_told() -> None:
    desk = Desk("torchserve")
    model = desk.add()

    async def story() -> None:
        assert await desk.actions.scale("m", "", {"min_worker": "2"}) == (202, "Processing worker updates...")
        assert model.pool.size == 1
        await asyncio.sleep(0.01)
        assert model.pool.size == 2

    run(story())


@pytest.mark.parametrize(
    ("parameters", "error", "words"),
    [
        ({"min_worker": "2", "max_worker": "1"}, InvalidInput, "max_worker cannot be less than min_worker."),
        ({"min_worker": "-1"}, NegativeWorkers, "0 or more"),
        ({"min_worker": str(MOST_WORKERS + 1)}, InvalidInput, str(MOST_WORKERS)),
    ],
)
def test_workers_that_cannot_be_are_refused(parameters: dict[str, str], error: type[ServingError], words: str) -> None:
    desk = Desk("torchserve")
    model = desk.add()

    with pytest.raises(error, match=words):
        run(desk.actions.scale("m", "", parameters))
    assert (model.min_workers, model.max_workers) == (1, 1)


def test_a_number_that_is_none_is_refused_in_our_own_words_alone() -> None:
    desk, upstream = Desk(), Desk("torchserve")
    desk.add()
    upstream.add(workers=3)

    with pytest.raises(InvalidInput, match="min_worker is a whole number, got 'x'"):
        run(desk.actions.scale("m", "", {"min_worker": "x"}))
    run(upstream.actions.scale("m", "", {"min_worker": "x", "synchronous": "true"}))
    assert upstream.repository.find("m").pool.size == 1


@pytest.mark.parametrize(
    ("version", "sentence"),
    [
        ("", "Failed to start workers for model m version: null: no"),
        ("1.0", "Failed to start workers for model m version: 1.0: no"),
    ],
)
def test_workers_that_do_not_come_up_are_told_of_and_the_limits_stay(version: str, sentence: str) -> None:
    desk = Desk("torchserve")
    model = desk.add()
    desk.pools["m", "1.0"].failure = LoadFailed("no", "line 1")

    with pytest.raises(LoadFailed) as failed:
        run(desk.actions.scale("m", version, {"min_worker": "2", "synchronous": "true"}))
    assert str(failed.value) == sentence
    assert model.min_workers == 2
    assert (model.error, model.traceback) == ("no", "line 1")
    state: Life = model.life
    assert state is Life.READY  # the worker it has goes on
    desk.pools["m", "1.0"].failure = None
    run(desk.actions.scale("m", version, {"min_worker": "2", "synchronous": "true"}))
    assert model.error == ""


def test_a_model_whose_first_workers_fail_has_failed() -> None:
    desk = Desk("torchserve")
    model = desk.add(workers=0)
    desk.pools["m", "1.0"].failure = LoadFailed("no", "line 1")

    async def story() -> None:
        await desk.actions.scale("m", "", {"min_worker": "1"})
        await asyncio.sleep(0.01)

    run(story())
    assert model.life is Life.FAILED
    assert (model.error, model.traceback) == ("no", "line 1")


def test_another_version_becomes_the_default() -> None:
    desk = Desk("torchserve")
    desk.add("m", "1.0")
    second = desk.add("m", "2.0")
    sentence = 'Default version successfully updated for model "m" to "2.0"'

    assert run(desk.actions.set_default("m", "2.0")) == (200, sentence)
    assert desk.repository.find("m") is second
    with pytest.raises(VersionNotFound, match=r"^Model version 3 does not exist for model m$"):
        run(desk.actions.set_default("m", "3"))
    with pytest.raises(ModelNotFound):
        run(desk.actions.set_default("n", "1.0"))


def test_a_model_is_removed_and_what_was_prepared_for_it_thrown_away() -> None:
    desk = Desk("torchserve")
    desk.add("m", "1.0")
    desk.add("m", "2.0")

    with pytest.raises(Protected, match="Cannot remove default version for model m"):
        run(desk.actions.unregister("m", ""))
    assert desk.intake.discarded == []
    assert run(desk.actions.unregister("m", "2.0")) == (200, 'Model "m" unregistered')
    assert desk.intake.discarded == ["m 2.0"]
    run(desk.actions.unregister("m", ""))
    with pytest.raises(ModelNotFound):
        run(desk.actions.unregister("m", ""))


@pytest.mark.parametrize("compat", ["", "torchserve"])
def test_a_model_that_does_not_finish_in_time_is_gone_all_the_same(compat: str) -> None:
    desk = Desk(compat, drain_within=0.0)
    desk.add()
    desk.ask("/predictions/m")
    if compat:
        with pytest.raises(StillBusy):
            run(desk.actions.unregister("m", ""))
    else:
        assert run(desk.actions.unregister("m", ""))[0] == 200
    assert desk.repository.names() == []
    assert desk.intake.discarded == ["m 1.0"]


def test_where_clients_may_not_change_the_models_nothing_is_prepared() -> None:
    desk = Desk("torchserve", model_api=False)
    desk.add()

    with pytest.raises(ModelApiOff):
        register(desk)
    with pytest.raises(ModelApiOff):
        run(desk.actions.unregister("m", ""))
    assert desk.intake.asked == []
    assert run(desk.actions.scale("m", "", {"min_worker": "2"}))[0] == 202


KEYS = [
    *("modelName", "modelVersion", "modelUrl", "runtime", "minWorkers", "maxWorkers", "batchSize", "maxBatchDelay"),
    *("responseTimeout", "startupTimeout", "maxRetryTimeoutInSec", "clientTimeoutInMills", "parallelType"),
    *("parallelLevel", "deviceType", "continuousBatching", "useJobTicket", "useVenv", "stateful"),
    *("sequenceMaxIdleMSec", "sequenceTimeoutMSec", "maxNumSequence", "maxSequenceJobQueueSize", "loadedAtStartup"),
    *("workers", "jobQueueStatus"),
]


def test_a_description_has_upstreams_keys_in_upstreams_order_and_real_values() -> None:
    usage = "gpuId::0 utilization.gpu [%]::0 %"
    desk = Desk("torchserve", gpu_usage=lambda gpu: f"{usage} {gpu}")
    desk.add(
        url="m.mar",
        workers=2,
        max_workers=4,
        batching=Batching(batch_size=8, max_batch_delay=50),
        request_timeout=1.5,
        queue_size=10,
        devices=["cuda:0", "cuda:3"],
        loaded_at_startup=True,
    )
    desk.pools["m", "1.0"].facts = [
        worker(0, device="cuda:3"),
        worker(1, state="waiting", pid=-1, restarts=2, last_error="it died", traceback="line 1"),
    ]
    desk.ask("/predictions/m")
    (described,) = run(desk.actions.describe("m", "", customized=False))

    keys = [key for key in described if key != "deviceIds"]
    assert keys[: len(KEYS)] == KEYS
    assert list(described).index("deviceIds") == list(described).index("deviceType") + 1
    assert described["deviceIds"] == [0, 3]
    expected = {
        "modelUrl": "m.mar",
        "minWorkers": 2,
        "maxWorkers": 4,
        "maxBatchDelay": 50,
        "responseTimeout": 120,
        "clientTimeoutInMills": 1500,
        "deviceType": "gpu",
        "useJobTicket": False,
        "loadedAtStartup": True,
        "jobQueueStatus": {"remainingCapacity": 9, "pendingRequests": 1},
    }
    assert {key: described[key] for key in expected} == expected
    assert isinstance(described["responseTimeout"], int)
    ready, waiting = described["workers"]
    assert list(ready)[:7] == ["id", "startTime", "status", "memoryUsage", "pid", "gpu", "gpuUsage"]
    assert {key: ready[key] for key in list(ready)[:7]} == {
        "id": "9000",
        "startTime": "2024-01-31T02:05:01.622Z",
        "status": "READY",
        "memoryUsage": 4096,
        "pid": 100,
        "gpu": True,
        "gpuUsage": f"{usage} 3",
    }
    assert (waiting["id"], waiting["status"], waiting["pid"]) == ("9001", "UNLOADING", -1)
    assert (waiting["gpuUsage"], waiting["restarts"]) == ("N/A", 2)
    assert (waiting["lastError"], waiting["traceback"]) == ("it died", "line 1")


def test_a_description_says_whether_requests_need_a_ticket() -> None:
    desk = Desk("torchserve")
    desk.add(job_tickets=True)

    assert run(desk.actions.describe("m", "", customized=False))[0]["useJobTicket"] is True


def test_numbers_of_workers_are_kept_and_never_given_twice() -> None:
    desk = Desk("torchserve")

    def ids() -> list[str]:
        return [row["id"] for row in run(desk.actions.describe("m", "", customized=False))[0]["workers"]]

    desk.add(workers=2)
    assert ids() == ["9000", "9001"] == ids()
    run(desk.actions.unregister("m", ""))
    desk.add(workers=1)
    assert ids() == ["9002"]


def test_mms_describes_one_object_with_fewer_keys() -> None:
    desk = Desk("mms")
    desk.add()
    (described,) = run(desk.actions.describe("m", "", customized=False))

    assert list(described)[:9] == [
        *("modelName", "modelUrl", "runtime", "minWorkers", "maxWorkers", "batchSize", "maxBatchDelay"),
        *("loadedAtStartup", "workers"),
    ]
    assert list(described["workers"][0])[:5] == ["id", "startTime", "status", "gpu", "memoryUsage"]


def test_our_own_description_keeps_the_workers_own_names() -> None:
    desk = Desk()
    desk.add()
    desk.pools["m", "1.0"].facts = [worker(0, state="waiting")]
    (described,) = run(desk.actions.describe("m", "", customized=False))

    assert (described["workers"][0]["id"], described["workers"][0]["status"]) == ("w-0", "WAITING")


def test_all_versions_are_described_and_none_of_them_asked() -> None:
    desk = Desk("torchserve")
    desk.add("m", "1.0")
    desk.add("m", "2.0", workers=0)
    described = run(desk.actions.describe("m", "all", customized=True))

    assert [row["modelVersion"] for row in described] == ["1.0", "2.0"]
    assert "customizedMetadata" not in described[0]


@pytest.mark.parametrize(
    ("body", "metadata"),
    [(b'{"a": 1}', {"a": 1}), (b"[1]", {}), (b"not json", {}), (b'"x"', {}), (b"null", None)],
)
def test_the_handler_may_describe_itself(body: bytes, metadata: object) -> None:
    desk = Desk("torchserve")
    desk.add()
    instance = join(desk)
    bench = desk.benches["m", "1.0"]

    async def story() -> dict[str, Any]:
        describing = asyncio.create_task(desk.actions.describe("m", "", customized=True))
        await asyncio.sleep(0.01)
        desk.ask("/predictions/m")
        bench.feed()
        batch = instance.batches[0]
        assert len(batch) == 1, "it travels alone"
        assert (b"describe", b"True") in batch.requests[0].payload.headers
        bench.finish(instance, body)
        return (await describing)[0]

    described = run(story())
    if metadata is None:
        assert "customizedMetadata" not in described
    else:
        assert described["customizedMetadata"] == metadata
        assert list(described).index("customizedMetadata") == list(described).index("jobQueueStatus") + 1


def test_pieces_of_a_description_are_put_together() -> None:
    desk = Desk("torchserve")
    desk.add()

    async def story() -> dict[str, Any]:
        describing = asyncio.create_task(desk.actions.describe("m", "", customized=True))
        await asyncio.sleep(0.01)
        request = desk.asked()
        assert request.batch is not None
        request.batch.stages = Stages()
        for piece, is_last in ((b'{"a":', False), (b"1}", True)):
            request.batch.deliver(0, Result(piece), is_last, 1.0)
        return (await describing)[0]

    assert run(story())["customizedMetadata"] == {"a": 1}


def test_a_handler_that_does_not_describe_itself_in_time_is_told_of() -> None:
    desk = Desk("torchserve")
    desk.add(response_timeout=3.0)

    async def story(error: ServingError | None) -> None:
        describing = asyncio.create_task(desk.actions.describe("m", "", customized=True))
        await asyncio.sleep(0.01)
        if error is None:
            desk.benches["m", "1.0"].feed(3.0)  # its deadline
        else:
            desk.asked().answer(error, True, 1.0)
        await describing

    with pytest.raises(NoDescription):
        run(story(None))
    with pytest.raises(HandlerFailed, match="own words"):
        run(story(HandlerFailed("own words")))


def test_somebody_who_stops_waiting_for_a_description_takes_the_request_back() -> None:
    desk = Desk("torchserve")
    desk.add()

    async def story() -> None:
        describing = asyncio.create_task(desk.actions.describe("m", "", customized=True))
        await asyncio.sleep(0.01)
        describing.cancel()
        await asyncio.gather(describing, return_exceptions=True)

    run(story())
    assert len(desk.benches["m", "1.0"].batcher.queue) == 0


def test_without_workers_nobody_can_be_asked() -> None:
    desk = Desk("torchserve")
    desk.add(workers=0)

    with pytest.raises(NoDescriber):
        run(desk.actions.describe("m", "", customized=True))


@pytest.mark.parametrize(
    ("limit", "token", "names", "next"),
    [
        (100, 0, "abc", None),
        (2, 0, "ab", "2"),
        (3, 0, "abc", "3"),
        (2, 2, "c", None),
        (1, 2, "c", "3"),
        (2, 3, "", None),
        (100, 50, "", None),
        (0, 0, "", "0"),
        (0, 2, "", "2"),
        (-1, 0, "abc", None),
        (101, 0, "abc", None),
        (2, -5, "ab", "2"),
    ],
)
def test_models_are_listed_page_by_page(limit: int, token: int, names: str, next: str | None) -> None:
    desk = Desk("torchserve")
    for name in "cab":
        desk.add(name, url=f"{name}.mar")
    desk.add("hidden", is_hidden=True)
    page = desk.actions.list_models(limit, token)

    assert page["models"] == [{"modelName": name, "modelUrl": f"{name}.mar"} for name in names]
    assert page.get("nextPageToken") == next
    assert list(page) == (["nextPageToken", "models"] if next else ["models"])


def test_a_list_has_the_default_versions_place() -> None:
    desk = Desk()
    desk.add("m", "1.0", url="one.mar")
    desk.add("m", "2.0", url="two.mar")
    desk.repository.set_default("m", "2.0")

    assert desk.actions.list_models(100, 0) == {"models": [{"modelName": "m", "modelUrl": "two.mar"}]}


def test_readiness_counts_workers_upstream_and_asks_for_loaded_ones_here() -> None:
    for compat, is_ready in (("torchserve", True), ("", False)):
        desk = Desk(compat)
        desk.add()
        desk.benches["m", "1.0"].fleet.size = 0
        assert desk.actions.is_ready("m") is is_ready
        run(desk.actions.scale("m", "", {"min_worker": "0", "synchronous": "true"}))
        assert desk.actions.is_ready("m") is False


def test_a_registration_that_is_given_up_leaves_nothing_behind() -> None:
    desk = Desk("torchserve")

    def hold(pool: Pool) -> None:
        pool.gate = asyncio.Event()

    desk.on_built = hold

    async def story() -> None:
        registering = asyncio.create_task(desk.actions.register({"url": "m"}))
        await asyncio.sleep(0.01)
        registering.cancel()
        await asyncio.gather(registering, return_exceptions=True)

    run(story())
    assert desk.intake.discarded == ["m 1.0"]
    assert desk.repository.names() == []
