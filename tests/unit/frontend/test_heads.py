"""Heads that the connections of a listener share: judged once, and nothing else about a connection is."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.http import HttpLimits
from shoal.frontend.hub import Hub
from shoal.frontend.known import LONGEST, MOST_SHARED
from tests.unit.frontend.http_fakes import Client, bodies, ok, post
from tests.unit.frontend.test_http_requests import undated

LIMITS = HttpLimits(max_head=1000, max_body=2000, inline_body=100)
CONNECTIONS = (b"", b"keep-alive", b"Keep-Alive", b"close", b"keep-alive, upgrade", b"keep-alive\r\nConnection: close")
LINES = (
    b"Authorization: Bearer x",
    b"Cookie: a=b",
    b"X-Request-Id: r",
    b"X-Other: v",
    b"Expect: 100-continue",
    b"Transfer-Encoding: chunked",
    b"Host: b",  # one too many
    b"Broken",
)


def hub() -> Hub:
    return Hub(soon=lambda callback: None, later=lambda delay, callback: None)


@st.composite
def requests(draw: st.DrawFn) -> bytes:
    """One request, good or bad."""
    version, connection = draw(st.sampled_from([b"1.1", b"1.1", b"1.0"])), draw(st.sampled_from(CONNECTIONS))
    lines = draw(st.lists(st.sampled_from(LINES), max_size=2))
    lines += [b"Connection: " + connection] if connection else []
    body = b"x" * draw(st.sampled_from([0, 3, 3, 99, 100, 101, 300]))
    head = b"".join(line + b"\r\n" for line in (b"POST /m HTTP/" + version, b"Host: a", *lines))
    return head + b"Content-Length: %d\r\n\r\n" % len(body) + body


@given(st.lists(st.tuples(st.integers(0, 2), requests(), st.integers(0, 400)), max_size=12))
def test_what_others_sent_before_changes_nothing(sent: list[tuple[int, bytes, int]]) -> None:
    together, alone = hub(), [hub() for _ in range(3)]
    sharing = [Client(ok, LIMITS, hub=together) for _ in range(3)]
    apart = [Client(ok, LIMITS, hub=own) for own in alone]
    for number, request, cut in sent:
        for client in (sharing[number], apart[number]):
            if not client.transport.closed:
                client.send(request[:cut])
                client.send(request[cut:])
    for one, other in zip(sharing, apart, strict=True):
        facts = [
            [(e.method, e.target, e.headers, e.content_type, e.request_id, e.timeout) for e in client.seen]
            for client in (one, other)
        ]
        assert facts[0] == facts[1]
        assert bodies(one.seen) == bodies(other.seen)
        assert undated(one.answer) == undated(other.answer)
        assert one.transport.closed == other.transport.closed


def test_the_first_request_of_another_connection_is_not_parsed_again() -> None:
    shared = hub()
    first, second = Client(ok, hub=shared), Client(ok, hub=shared)
    first.send(post(b"abc"))
    del second.connection._parser

    second.send(post(b"xyz") + post(b"123"))
    second.connection._continue()

    assert bodies(second.seen) == [b"xyz", b"123"]
    assert second.seen[0].client != first.seen[0].client


def test_one_connection_that_changes_its_length_leaves_those_of_others() -> None:
    shared = hub()
    first, second = Client(ok, hub=shared), Client(ok, hub=shared)
    for body in (b"abc", b"abcd", b"abcde", b"abc"):
        first.send(post(body))
    second.send(post(b"xyz"))

    assert bodies(first.seen) == [b"abc", b"abcd", b"abcde", b"abc"]
    assert bodies(second.seen) == [b"xyz"]
    assert len(shared.heads) == 1


@pytest.mark.parametrize(
    "line", [b"Authorization: Bearer x", b"COOKIE: a=b", b"X-Request-Id: r", b"X: " + b"x" * LONGEST]
)
def test_a_head_with_a_secret_or_an_id_or_too_long_stays_with_its_connection(line: bytes) -> None:
    client = Client(ok)
    client.send(post(b"abc", line))
    client.send(post(b"xyz", line))

    assert bodies(client.seen) == [b"abc", b"xyz"]
    assert len(client.hub.heads) == 0


@pytest.mark.parametrize(("value", "is_known"), [(b"keep-alive", True), (b"Keep-Alive", True), (b"close", False)])
def test_a_client_that_says_what_is_usual_is_known_too(value: bytes, is_known: bool) -> None:
    client = Client(ok)
    client.send(post(b"abc", b"Connection: " + value))

    assert (client.connection._known is not None) == is_known


def test_no_more_heads_are_kept_than_a_few_hundred() -> None:
    shared = hub()
    for number in range(2 * MOST_SHARED + 3):
        Client(ok, hub=shared).send(post(b"abc", b"X-Number: %d" % number))

    assert 0 < len(shared.heads) <= MOST_SHARED
