import asyncio
import json
from collections.abc import Callable
from typing import Any

import pytest

from shoal.errors import Unavailable
from shoal.frontend.dashboard import watch
from shoal.frontend.dashboard.routes import Dashboard
from shoal.frontend.dashboard.viewers import MOST_VIEWERS
from shoal.frontend.tokens import Tokens
from tests.support import ask
from tests.unit.frontend.api_fakes import Answer, Desk, join, run, worker


def dashboard_of(desk: Desk, **settings: Any) -> Dashboard:
    dashboard = Dashboard(desk.repository, desk.actions, desk.dialect, desk.clock, **{"is_local": False, **settings})
    dashboard.start()
    return dashboard


def desk_with(*names: str) -> Desk:
    desk = Desk()
    for name in names:
        desk.add(name)
    return desk


def watching(dashboard: Dashboard, query: str = "", **headers: str) -> Answer:
    answer = Answer(f"/dashboard/events{query}", "GET", headers=headers)
    assert dashboard.take(answer.exchange)
    return answer


def events(answer: Answer) -> list[tuple[str, Any]]:
    """Take the stream apart."""
    assert answer.headers["content-type"] == "text/event-stream"
    assert answer.headers["cache-control"] == "no-store"
    found, rest = [], answer.body
    while rest:
        size, _, rest = rest.partition(b"\r\n")
        block, rest = rest[: int(size, 16)], rest[int(size, 16) + 2 :]
        if block:
            event, data, *end = block.decode().split("\n")
            assert end == ["", ""]
            found.append((event.removeprefix("event: "), json.loads(data.removeprefix("data: "))))
    return found


def told(answer: Answer, event: str) -> list[Any]:
    return [data for name, data in events(answer) if name == event]


async def until(check: Callable[[], bool]) -> None:
    for _ in range(10_000):
        if check():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it never happened")


async def ordering(dashboard: Dashboard, verb: str, body: Any, **kw: Any) -> Answer:
    answer = Answer(f"/dashboard/orders/{verb}", body=body, **{"content_type": "application/json", **kw})
    assert dashboard.take(answer.exchange)
    await asyncio.gather(*dashboard._tasks)
    return answer


def order(dashboard: Dashboard, verb: str, **fields: Any) -> Answer:
    return run(ordering(dashboard, verb, json.dumps(fields).encode()))


def test_a_page_is_told_of_the_server_its_models_and_the_first_of_them() -> None:
    desk = desk_with("b", "a")
    dashboard = dashboard_of(desk, about={"version": "9.9"})

    async def story() -> None:
        answer = watching(dashboard)
        names = [name for name, _ in events(answer)]
        assert names == ["hello", "models", "model", "batches"]
        assert told(answer, "hello") == [{"version": "9.9", "period": watch.PERIOD}]
        assert [line["name"] for line in told(answer, "models")[0]["models"]] == ["a", "b"]
        assert told(answer, "model")[0]["name"] == "a"
        await dashboard.stop()

    run(story())


def test_the_page_looks_at_the_model_it_names_and_at_another_when_that_is_gone() -> None:
    desk = desk_with("a", "b")
    dashboard = dashboard_of(desk)

    async def story() -> None:
        answer = watching(dashboard, "?model=b&version=1.0")
        nobody = watching(dashboard, "?model=b&version=9")
        assert told(answer, "model")[0]["name"] == "b"
        assert told(nobody, "model")[0]["name"] == "a"
        await desk.actions.unregister("b", "")
        dashboard.viewers.watch.follow(1.0)
        dashboard.viewers._beat(1.0, True)
        assert told(answer, "model")[-1]["name"] == "a"
        await dashboard.stop()

    run(story())


def test_errors_of_models_and_workers_are_told_and_cut_where_they_are_endless() -> None:
    desk = desk_with("m")
    desk.pools["m", "1.0"].facts = [worker(0, state="starting", last_error="x" * 5000, traceback="y" * 20_000)]
    dashboard = dashboard_of(desk)

    async def story() -> None:
        answer = watching(dashboard)
        (line,) = told(answer, "models")[0]["models"]
        assert line["trouble"].startswith("x" * 2000 + " ... (3000 characters more)")
        assert (line["ready"], line["workers"]) == (0, 1)
        (facts,) = told(answer, "model")[0]["workers"]
        assert len(facts["error"]) < 2100 and len(facts["traceback"]) < 8100
        await dashboard.stop()

    run(story())


def test_batches_are_recorded_while_somebody_watches_and_not_otherwise(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(watch, "PERIOD", 0.001)
    desk = desk_with("m")
    instance, bench = join(desk), desk.benches["m", "1.0"]
    stats = desk.repository.find("m").scheduler.stats
    dashboard = dashboard_of(desk)

    async def story() -> None:
        assert stats.on_batch == []
        answer = watching(dashboard)
        assert len(stats.on_batch) == 1
        bench.offer(ask())
        bench.feed(0.5)
        bench.now = 1.0
        bench.finish(instance, b"x")
        await until(lambda: any(batches["ended"] for batches in told(answer, "batches")))
        ended = [batch for batches in told(answer, "batches") for batch in batches["ended"]]
        assert [batch[:5] for batch in ended] == [[1, "a", "scripted", 0.5, 1.0]]  # once
        await until(lambda: bool(told(answer, "model")[-1]["cells"]))
        assert told(answer, "model")[-1]["sizes"] == {"1": 1}
        assert answer.exchange.on_gone is not None
        answer.exchange.on_gone()  # the page was closed
        assert len(dashboard.viewers) == 0
        sent = len(answer.link.sent)
        await asyncio.sleep(0.01)
        assert len(stats.on_batch) == 1  # it may be a reload
        assert len(answer.link.sent) == sent
        desk.clock.time += watch.LINGER + 1
        await until(lambda: not dashboard.viewers.watch.is_on)
        assert stats.on_batch == []

    run(story())


def test_models_that_come_and_go_are_followed() -> None:
    desk = desk_with("a")
    dashboard = dashboard_of(desk)

    async def story() -> None:
        watching(dashboard)
        old = desk.repository.find("a")
        await desk.actions.register({"url": "x", "model_name": "b"})
        await desk.actions.unregister("a", "")
        dashboard.viewers.watch.follow(1.0)
        assert [model.name for model in dashboard.viewers.watch.tracks] == ["b"]
        assert old.scheduler.stats.on_batch == []
        assert len(desk.repository.find("b").scheduler.stats.on_batch) == 1
        await dashboard.stop()

    run(story())


def test_who_does_not_read_misses_beats_and_hears_how_many_batches() -> None:
    desk = desk_with("m")
    instance, bench = join(desk), desk.benches["m", "1.0"]
    dashboard = dashboard_of(desk)

    async def story() -> None:
        answer = watching(dashboard)
        answer.link.blocked = True
        sent = len(answer.link.sent)
        for _ in range(300):
            bench.offer(ask())
            bench.feed()
            bench.finish(instance, b"x")
            dashboard.viewers._beat(0.0, True)
        assert len(answer.link.sent) == sent
        answer.link.blocked = False
        dashboard.viewers._beat(0.0, False)
        last = told(answer, "batches")[-1]
        assert (len(last["ended"]), last["missed"]) == (256, 44)
        late = watching(dashboard)  # begins with what there is room for, and has missed nothing
        assert [(len(data["ended"]), data["missed"]) for data in told(late, "batches")] == [(256, 0)]
        await dashboard.stop()

    run(story())


def test_every_batch_and_every_cell_is_told_once() -> None:
    desk = desk_with("m")
    instance, bench = join(desk), desk.benches["m", "1.0"]
    dashboard = dashboard_of(desk)

    async def story() -> None:
        answer = watching(dashboard)
        (track,) = dashboard.viewers.watch.tracks.values()
        for second in range(1, 4):
            bench.offer(ask())
            bench.feed()
            bench.finish(instance, b"x")
            track.look(float(second))
            dashboard.viewers._beat(float(second), True)
            dashboard.viewers._beat(float(second), True)
        assert [batch[0] for batches in told(answer, "batches") for batch in batches["ended"]] == [1, 2, 3]
        assert [cell[0] for model in told(answer, "model") for cell in model["cells"]] == [1.0, 2.0, 3.0]
        await dashboard.stop()

    run(story())


def test_only_so_many_may_watch() -> None:
    desk = desk_with("m")
    dashboard = dashboard_of(desk)

    async def story() -> None:
        for _ in range(MOST_VIEWERS):
            assert watching(dashboard).status == 200
        assert watching(dashboard).error[0] == 503
        await dashboard.stop()

    run(story())


def test_the_end_of_the_server_is_told_and_leaves_nothing() -> None:
    desk = desk_with("m")
    dashboard = dashboard_of(desk)

    async def story() -> None:
        answer = watching(dashboard)
        await dashboard.stop()
        assert events(answer)[-1] == ("bye", {"reason": "the server is stopping"})
        assert answer.link.keep is False  # the connection closes
        assert len(dashboard.viewers) == 0
        assert desk.repository.find("m").scheduler.stats.on_batch == []

    run(story())


class Keys:
    """Keys whose time can pass."""

    def __init__(self, path: Any) -> None:
        self.now = 0.0
        self.tokens = Tokens(str(path / "keys.json"), 60.0, lambda: self.now)
        self.tokens.start()
        self.known = json.loads((path / "keys.json").read_text())


def test_data_and_actions_need_the_management_key_and_the_page_does_not(tmp_path: Any) -> None:
    keys = Keys(tmp_path)
    desk = desk_with("m")
    dashboard = dashboard_of(desk, tokens=keys.tokens)
    right = f"Bearer {keys.known['management']['key']}"
    others = ("", "Bearer wrong", f"Bearer {keys.known['inference']['key']}", f"Bearer {keys.known['API']['key']}")

    async def story() -> None:
        for wrong in others:
            assert watching(dashboard, Authorization=wrong).error[:2] == (401, "InvalidKeyException")
            refused = await ordering(dashboard, "unload", b'{"model": "m"}', headers={"Authorization": wrong})
            assert refused.status == 401
        assert len(desk.repository.names()) == 1
        assert watching(dashboard, Authorization=right).status == 200
        done = await ordering(dashboard, "unload", b'{"model": "m"}', headers={"Authorization": right})
        assert done.json == {"status": 'Model "m" unregistered'}
        await dashboard.stop()

    run(story())
    page = Answer("/dashboard", "GET")
    assert dashboard.take(page.exchange) and page.status == 200


def test_a_stream_ends_with_its_key(tmp_path: Any) -> None:
    keys = Keys(tmp_path)
    dashboard = dashboard_of(desk_with("m"), tokens=keys.tokens)

    async def story() -> None:
        answer = watching(dashboard, Authorization=f"Bearer {keys.known['management']['key']}")
        dashboard.viewers._beat(0.0, True)
        assert told(answer, "bye") == []
        keys.now = 61.0
        dashboard.viewers._beat(0.0, True)
        assert "Token" in told(answer, "bye")[0]["reason"]
        assert len(dashboard.viewers) == 0
        await dashboard.stop()

    run(story())


@pytest.mark.parametrize(
    ("host", "origin", "status"),
    [
        ("127.0.0.1:8081", "", 200),
        ("localhost:8081", "http://localhost:8081", 200),
        ("127.0.0.1:8081", "http://evil.example", 403),
        ("evil.example:8081", "", 403),
        ("evil.example:8081", "http://evil.example:8081", 403),
    ],
)
def test_another_site_sees_nothing_and_does_nothing(host: str, origin: str, status: int) -> None:
    desk = desk_with("m")
    dashboard = dashboard_of(desk, is_local=True)

    async def story() -> None:
        for target, method in (("/dashboard/events", "GET"), ("/dashboard/orders/unload", "POST")):
            answer = Answer(target, method, b'{"model": "m"}', content_type="application/json")
            answer.exchange.headers = [(b"Host", host.encode()), (b"Origin", origin.encode())][: 1 + bool(origin)]
            dashboard.take(answer.exchange)
            await asyncio.gather(*dashboard._tasks)
            assert answer.status == status
        assert bool(desk.repository.names()) is (status == 403)
        await dashboard.stop()

    run(story())


def test_models_are_scaled_drained_loaded_made_default_and_unloaded() -> None:
    desk = desk_with("m")
    dashboard = dashboard_of(desk)

    assert order(dashboard, "scale", model="m", workers=3).json == {"status": "Workers scaled to 3 for model: m"}
    assert desk.repository.find("m").pool.size == 3
    assert order(dashboard, "drain", model="m", version="1.0").status == 200
    assert desk.repository.find("m").pool.size == 0
    assert order(dashboard, "drain", model="m").error[0] == 503  # it is drained
    assert order(dashboard, "scale", model="m", workers=1).status == 200
    assert desk.repository.find("m").life.value == "ready"
    assert order(dashboard, "load", url="n.mar", model="n", workers=2).status == 200
    asked = desk.intake.asked[-1]
    assert asked == {"url": "n.mar", "model_name": "n", "initial_workers": "2", "synchronous": "true"}
    assert order(dashboard, "default", model="n", version="1.0").status == 200
    assert order(dashboard, "unload", model="n").status == 200
    assert desk.repository.names() == ["m"]


def test_orders_that_make_no_sense_are_refused_in_words() -> None:
    dashboard = dashboard_of(desk_with("m"))

    assert order(dashboard, "scale", model="nobody").error == (404, "ModelNotFoundException", "Model not found: nobody")
    assert order(dashboard, "explode", model="m").status == 404
    assert "unknown field" in order(dashboard, "scale", model="m", force=True).error[2]
    assert order(dashboard, "scale", model="m", workers=-1).error[0] == 400
    assert run(ordering(dashboard, "scale", b"{", content_type="application/json")).error[0] == 400
    form = run(ordering(dashboard, "unload", b'{"model": "m"}', content_type="text/plain"))
    assert "application/json" in form.error[2]


def test_a_query_that_cannot_be_read_is_refused() -> None:
    answer = watching(dashboard_of(desk_with("m")), "?" + "a=1&" * 20)

    assert answer.error[0] == 400


def test_each_route_has_one_method() -> None:
    dashboard = dashboard_of(desk_with("m"))
    for target, method, allowed in (
        ("/dashboard/events", "POST", "GET"),
        ("/dashboard/orders/scale", "GET", "POST"),
        ("/dashboard", "POST", "GET, HEAD"),
    ):
        answer = Answer(target, method)
        assert dashboard.take(answer.exchange)
        assert (answer.status, answer.headers["allow"]) == (405, allowed)


def test_the_page_and_its_files_are_guarded_and_nobody_elses_are_here() -> None:
    dashboard = dashboard_of(desk_with())
    for target in ("/dashboard", "/pages/dashboard.js", "/pages/dashboard.css", "/pages/shoal.css", "/pages/shoal.js"):
        answer = Answer(target, "GET")
        assert dashboard.take(answer.exchange), target
        assert answer.status == 200 and len(answer.body) > 100
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy and "unsafe" not in policy and "frame-ancestors 'none'" in policy
    for target in ("/", "/pages/demo.js", "/pages/dashboard.html", "/pages/../admin.py", "/dashboard/x"):
        assert not dashboard.take(Answer(target, "GET").exchange), target


class Shelf:
    """A model repository that notes what it is asked for."""

    mode = "explicit"

    def __init__(self) -> None:
        self.asked: list[str] = []

    async def index(self, *, ready: bool = False) -> list[Any]:
        return []

    async def load(self, name: str, parameters: Any = None) -> None:
        self.asked.append(f"load {name}")

    def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        if name == "m":
            raise Unavailable("explicit model load / unload is not allowed")
        self.asked.append(f"unload {name}")


def test_models_of_a_repository_are_loaded_and_unloaded_by_its_own_rules() -> None:
    desk, shelf = desk_with("m"), Shelf()
    dashboard = dashboard_of(desk, control=shelf)

    assert order(dashboard, "load", url="resnet").json == {"status": 'Model "resnet" loaded'}
    assert order(dashboard, "unload", model="resnet").json == {"status": 'Model "resnet" unloaded'}
    assert order(dashboard, "unload", model="m").error[0] == 503
    assert shelf.asked == ["load resnet", "unload resnet"]
    assert desk.intake.asked == [] and desk.repository.names() == ["m"]
