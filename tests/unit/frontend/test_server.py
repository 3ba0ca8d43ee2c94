from typing import Any

import pytest

from shoal.config.server import ServerConfig
from shoal.frontend.exchange import Exchange
from shoal.frontend.server import OnAnswered, Place, Server, places_of
from shoal.payload import Result
from tests.unit.frontend.api_fakes import Answer, Desk
from tests.unit.frontend.http_fakes import Client, Loan, ok, post


def server_of(
    desk: Desk, on_answered: OnAnswered | None = None, more: Any = None, **settings: Any
) -> tuple[Server, Any]:
    config = ServerConfig(compat=desk.config.compat, **settings)
    server = Server(
        config,
        desk.inference,
        desk.management,
        lambda names: b"page " + ",".join(names).encode(),
        desk.dialect,
        desk.clock,
        lend=lambda size: None,
        tls=None,
        more=more,
        on_answered=on_answered,
    )
    listeners: Any = server._by_name
    return server, {api: listener.app for api, listener in listeners.items()}


def ask(app: Any, target: str, method: str = "GET", body: Any = b"") -> Answer:
    answer = Answer(target, method, body)
    app(answer.exchange)
    return answer


def test_each_api_has_its_own_address() -> None:
    assert places_of(ServerConfig()) == {
        Place("127.0.0.1", 8080, is_tls=True): ["inference"],
        Place("127.0.0.1", 8081, is_tls=True): ["management"],
        Place("127.0.0.1", 8082, is_tls=True): ["metrics"],
    }


def test_apis_with_one_address_share_it_and_free_ports_are_never_shared() -> None:
    shared = places_of(ServerConfig(port=9, management_port=9, metrics_port=0))
    free = places_of(ServerConfig(port=0, management_port=0, metrics_port=0))

    assert list(shared.values()) == [["inference", "management"], ["metrics"]]
    assert list(free.values()) == [["inference"], ["management"], ["metrics"]]


def test_metrics_may_have_a_host_of_their_own() -> None:
    places = places_of(ServerConfig(host="::1", management_host="::1", metrics_host="127.0.0.1"))

    assert [place.host for place in places] == ["::1", "::1", "127.0.0.1"]


def test_an_api_may_have_a_socket_beside_its_port_or_instead_of_it() -> None:
    places = places_of(ServerConfig(unix_socket="/a", management_unix_socket="/a", metrics_unix_socket="/b", port=-1))

    assert {place.path or place.port: apis for place, apis in places.items()} == {
        8081: ["management"],
        8082: ["metrics"],
        "/a": ["inference", "management"],
        "/b": ["metrics"],
    }
    assert not any(place.is_tls for place in places if place.path)


def test_only_the_ports_that_are_named_speak_tls() -> None:
    places = places_of(ServerConfig(tls_on=("management",)))

    assert [place.is_tls for place in places] == [False, True, False]


@pytest.mark.parametrize(
    ("api", "target", "status"),
    [
        ("inference", "/ping", 200),
        ("inference", "/models", 404),
        ("inference", "/metrics", 404),
        ("inference", "/v1/models/m", 404),
        ("management", "/ping", 200),
        ("management", "/metrics", 404),
        ("management", "/predictions/m", 404),
        ("management", "/x", 404),
        ("metrics", "/metrics", 200),
        ("metrics", "/metrics/", 200),
        ("metrics", "/ping", 404),
        ("metrics", "/", 405),
    ],
)
def test_each_listener_has_its_own_routes(api: str, target: str, status: int) -> None:
    desk = Desk("torchserve")
    desk.add("m")
    _, apps = server_of(desk)

    assert ask(apps[api], target).status == status


def test_a_shared_listener_has_every_route() -> None:
    desk = Desk("torchserve")
    desk.add("m")
    _, apps = server_of(desk, port=9, management_port=9)
    app = apps["inference"]

    assert app is apps["management"]
    assert ask(app, "/metrics").body == b"page "
    assert ask(app, "/v1/models/m/x").status == 404
    assert set(ask(app, "/", "OPTIONS").json["paths"]) >= {"/ping", "/models", "/metrics"}
    assert ask(app, "/models", "PUT").headers["allow"] == "GET, POST"
    waiting = Answer("/models/m/invoke", "POST", b"x")
    app(waiting.exchange)
    desk.asked().batch.deliver(0, Result(b"y"), True, 1.0)  # type: ignore[union-attr]  # it runs
    assert waiting.body == b"y"


def test_sharing_with_metrics_does_not_open_management() -> None:
    _, apps = server_of(Desk(), port=9, metrics_port=9)

    assert ask(apps["inference"], "/models").status == 404
    assert ask(apps["inference"], "/metrics").status == 200


def test_metrics_can_be_asked_for_by_name_or_be_switched_off() -> None:
    _, apps = server_of(Desk("torchserve"))
    answer = ask(apps["metrics"], "/metrics?name[]=a&name%5B%5D=b&other=c")

    assert answer.body == b"page a,b"
    assert answer.headers["content-type"] == "text/plain; version=0.0.4; charset=utf-8"
    assert ask(apps["metrics"], "/metrics", "POST").status == 200
    assert ask(server_of(Desk())[1]["metrics"], "/metrics", "POST").status == 405
    assert ask(server_of(Desk(), enable_metrics_api=False)[1]["metrics"], "/metrics").status == 404


def test_other_parts_may_add_routes() -> None:
    def workflows(exchange: Exchange) -> bool:
        if exchange.path != b"/wfpredict/w":
            return False
        exchange.respond(200, b"flow")
        return True

    _, apps = server_of(Desk(), more={"inference": [workflows]})

    assert ask(apps["inference"], "/wfpredict/w").body == b"flow"
    assert ask(apps["management"], "/wfpredict/w").status == 404


def test_every_answer_can_be_heard_of() -> None:
    desk = Desk("torchserve")
    desk.add("m")
    heard: list[tuple[bytes, int, float]] = []
    _, apps = server_of(desk, lambda exchange, status, ms: heard.append((exchange.target, status, ms)))
    ask(apps["inference"], "/x")
    ask(apps["inference"], "/predictions/m", "POST", b"x")
    desk.clock.time = 0.25
    desk.asked().batch.deliver(0, Result(b"y"), False, 1.0)  # type: ignore[union-attr]  # it runs

    assert heard == [(b"/x", 404, 0.0), (b"/predictions/m", 200, 250.0)]


def test_answers_are_counted_by_class() -> None:
    server, _ = server_of(Desk())
    server._listeners[0].hub.answers[2] += 3
    server._listeners[2].hub.answers[2] += 1
    server._listeners[1].hub.answers[4] += 1

    assert server.answers == [0, 0, 4, 0, 1, 0, 0, 0, 0, 0]


def test_whole_and_streamed_answers_and_refusals_are_counted() -> None:
    def stream(exchange: Exchange) -> None:
        exchange.start(203)
        exchange.end()

    whole, streamed, refused = Client(ok), Client(stream), Client(ok)
    whole.send(post(b"x") + post(b"y"))
    whole.turn()
    streamed.send(post(b"x"))
    refused.send(b"GET / HTTP/1.1\r\n\r\n")  # no Host

    assert whole.hub.answers[2] == 2
    assert streamed.hub.answers[2] == 1
    assert refused.hub.answers[4] == 1


def test_the_root_is_a_route_upstream_and_nothing_here_without_a_page() -> None:
    for compat, status in (("torchserve", 405), ("", 404)):
        _, apps = server_of(Desk(compat))
        assert ask(apps["inference"], "/").status == status
        assert ask(apps["inference"], "/", "OPTIONS").status == 200
        assert ask(apps["inference"], "/api-description", "POST").status == 200


def test_lent_memory_of_a_request_to_nobody_comes_back() -> None:
    loan = Loan(3)
    _, apps = server_of(Desk())
    ask(apps["inference"], "/x", "POST", loan)

    assert loan.released == 1
