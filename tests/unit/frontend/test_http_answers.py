"""Answers as the client sees them."""

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.core.batch import Made
from shoal.frontend.exchange import SMALL, Exchange, header_line
from tests.unit.frontend.http_fakes import GET, Client, chunked, ok, post

HEAD = b"HEAD / HTTP/1.1\r\nHost: a\r\n\r\n"
OLD = b"GET / HTTP/1.0\r\n\r\n"
OLD_KEPT = b"GET / HTTP/1.0\r\nConnection: keep-alive\r\n\r\n"


def asked(request: bytes = GET + b"\r\n") -> tuple[Client, Exchange]:
    client = Client()
    client.send(request)
    return client, client.seen[0]


def undated(client: Client) -> bytes:
    answer, count = re.subn(rb"Date: \w{3}, \d\d \w{3} \d{4} \d\d:\d\d:\d\d GMT\r\n", b"", client.answer)
    assert count == client.answer.count(b"HTTP/1.1 ")
    return answer


def test_a_small_answer_is_one_write() -> None:
    client, exchange = asked()
    exchange.respond(200, b'{"a": 1}', b"Content-Type: application/json\r\n")
    body = b'Content-Type: application/json\r\nContent-Length: 8\r\n\r\n{"a": 1}'
    assert undated(client) == b"HTTP/1.1 200 OK\r\n" + body
    assert client.transport.writes == 1
    assert not client.transport.closed


@pytest.mark.parametrize("size", [2047, 2048, 32 * 1024, 32 * 1024 + 1, 200_000])
@pytest.mark.parametrize("kind", [bytes, bytearray, memoryview])
def test_answers_of_any_size_and_kind_are_whole(size: int, kind: type) -> None:
    client, exchange = asked()
    body = b"x" * size
    exchange.respond(200, kind(body))
    assert client.answer.endswith(b"\r\nContent-Length: %d\r\n\r\n" % size + body)


@pytest.mark.parametrize("size", [0, 100, 32 * 1024, 200_000])
def test_an_answer_in_parts_is_whole(size: int) -> None:
    client, exchange = asked()
    exchange.respond_parts(200, [b"{}", memoryview(b"x" * size), b"y"], b"A: b\r\n")
    body = b"{}" + b"x" * size + b"y"
    assert undated(client) == b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
    client.send(GET + b"\r\n")
    assert len(client.seen) == 2


def test_a_small_answer_joins_others_and_is_the_same_when_it_leaves() -> None:
    client, exchange = asked()
    together: list[Made] = []
    exchange.respond(200, b"yes", b"A: b\r\n", together=together)
    assert together == [exchange]
    assert client.answer == b""
    client.send(GET + b"\r\n")
    assert len(client.seen) == 1, "the next request waits for the answer"

    exchange.leave()
    assert undated(client) == b"HTTP/1.1 200 OK\r\nA: b\r\nContent-Length: 3\r\n\r\nyes"
    assert client.transport.writes == 1
    client.turn()
    assert len(client.seen) == 2
    assert not client.transport.closed


@pytest.mark.parametrize("request_", [OLD, GET + b"Connection: close\r\n\r\n"], ids=["HTTP/1.0", "close"])
def test_a_connection_that_ends_with_its_answer_ends_when_that_leaves(request_: bytes) -> None:
    client, exchange = asked(request_)
    together: list[Made] = []
    exchange.respond(200, b"yes", together=together)
    assert not client.transport.closed
    exchange.leave()
    assert client.answer.endswith(b"\r\n\r\nyes")
    assert client.transport.closed


def test_an_answer_whose_client_left_before_it_could_leave_is_nobody_s() -> None:
    client, exchange = asked()
    together: list[Made] = []
    exchange.respond(200, b"yes", together=together)
    client.connection.connection_lost(None)
    exchange.leave()
    assert client.answer == b""


@pytest.mark.parametrize(
    ("request_", "status", "body"),
    [
        (GET + b"\r\n", 200, b"x" * SMALL),
        (GET + b"\r\n", 200, b"x" * 100_000),
        (GET + b"\r\n", 204, b""),
        (HEAD, 200, b"yes"),
    ],
    ids=["not-small", "large", "no-content", "head"],
)
def test_other_answers_leave_at_once(request_: bytes, status: int, body: bytes) -> None:
    client, exchange = asked(request_)
    together: list[Made] = []
    exchange.respond_parts(status, [body], together=together)
    assert together == []
    assert client.status == status
    assert client.answer.endswith(b"\r\n\r\n" + (b"" if request_ is HEAD else body))


def test_large_parts_of_an_answer_are_not_copied() -> None:
    part = memoryview(bytes(100_000))
    kept: list[bytes | bytearray | memoryview] = []
    client, exchange = asked()
    client.connection.send_all = kept.extend
    exchange.respond_parts(200, [b"{}", part])
    assert kept[-1] is part


def test_an_answer_in_parts_to_a_head_request_has_no_body() -> None:
    client, exchange = asked(HEAD)
    exchange.respond_parts(200, [bytes(50_000), bytes(50_000)])
    assert client.answer.endswith(b"Content-Length: 100000\r\n\r\n")


def test_a_view_of_wider_items_is_counted_in_bytes() -> None:
    client, exchange = asked()
    exchange.respond(200, memoryview(b"abcdefgh").cast("I"))
    assert client.answer.endswith(b"Content-Length: 8\r\n\r\nabcdefgh")


def test_memory_behind_a_view_may_be_used_again_on_return() -> None:
    memory = bytearray(b"x" * 100_000)
    kept: list[bytes | bytearray | memoryview] = []
    client, exchange = asked()
    client.connection.send = kept.append
    client.connection.send_all = kept.extend
    exchange.respond(200, memoryview(memory))
    assert all(isinstance(piece, bytes) for piece in kept)


def test_the_application_may_choose_the_reason() -> None:
    client, exchange = asked()
    exchange.respond(599, b"", reason=b"Model\r\nEvil: 1")
    assert client.answer.startswith(b"HTTP/1.1 599 Model  Evil: 1\r\n")


def test_an_unknown_status_needs_no_reason() -> None:
    client, exchange = asked()
    exchange.respond(599)
    assert client.answer.startswith(b"HTTP/1.1 599 \r\n")


@pytest.mark.parametrize("head", [b"X: y", b"X: y\r\n\r\nHTTP/1.1 200 OK\r\n", b"\n"])
def test_a_head_that_would_break_the_framing_is_not_sent(head: bytes) -> None:
    client, exchange = asked()
    with pytest.raises(ValueError, match="header_line"):
        exchange.respond(200, b"", head)
    with pytest.raises(ValueError, match="header_line"):
        exchange.start(200, head)
    assert client.answer == b""
    exchange.respond(500)
    assert client.status == 500


@given(st.text())
def test_no_value_can_leave_its_header_line(value: str) -> None:
    line = header_line("X-Answer", value)
    assert re.fullmatch(rb"X-Answer: [^\x00-\x1f\x7f]*\r\n", line)


def test_a_plain_value_is_kept_as_it_is() -> None:
    assert header_line("X-Répondre".replace("é", "e"), "é, a=b; c") == b"X-Repondre: \xe9, a=b; c\r\n"


@pytest.mark.parametrize("name", ["", "a b", "a:", "a\r\nb", "é", "a\0"])
def test_a_name_that_is_none_is_refused(name: str) -> None:
    with pytest.raises(ValueError, match="is no header name"):
        header_line(name, "v")


def test_a_head_request_gets_the_length_and_no_body() -> None:
    client, exchange = asked(HEAD)
    exchange.respond(200, b"12345")
    assert undated(client) == b"HTTP/1.1 200 OK\r\nContent-Length: 5\r\n\r\n"
    client.send(GET + b"\r\n")
    assert len(client.seen) == 2


@pytest.mark.parametrize("status", [204, 304])
def test_some_answers_have_no_body(status: int) -> None:
    client, exchange = asked()
    exchange.respond(status, b"ignored")
    assert client.answer.endswith(b"\r\n\r\n")
    assert (b"Content-Length" in client.answer) == (status == 304)


def test_a_second_answer_is_a_mistake() -> None:
    client, exchange = asked()
    exchange.respond(200)
    with pytest.raises(RuntimeError):
        exchange.respond(200)
    with pytest.raises(RuntimeError):
        exchange.start(200)
    with pytest.raises(RuntimeError):
        exchange.write(b"x")
    with pytest.raises(RuntimeError):
        exchange.end()
    assert client.transport.writes == 1


def test_writing_before_the_start_is_a_mistake() -> None:
    _, exchange = asked()
    with pytest.raises(RuntimeError):
        exchange.write(b"x")
    with pytest.raises(RuntimeError):
        exchange.end()


def test_a_streamed_answer_is_chunked() -> None:
    client, exchange = asked()
    exchange.start(200, b"X: y\r\n")
    exchange.write(b"hello")
    exchange.write(b"")
    exchange.write(memoryview(b"0123456789abcdef"))
    exchange.end()
    assert undated(client) == (
        b"HTTP/1.1 200 OK\r\nX: y\r\nTransfer-Encoding: chunked\r\n\r\n"
        b"5\r\nhello\r\n10\r\n0123456789abcdef\r\n0\r\n\r\n"
    )
    client.send(GET + b"\r\n")
    assert len(client.seen) == 2


def test_a_streamed_answer_to_an_old_client_ends_with_the_connection() -> None:
    client, exchange = asked(OLD_KEPT)
    exchange.start(200)
    exchange.write(b"hello")
    exchange.end()
    assert undated(client) == b"HTTP/1.1 200 OK\r\nConnection: close\r\n\r\nhello"
    assert client.transport.closed


@pytest.mark.parametrize("status", [200, 204])
def test_a_streamed_answer_without_a_body_has_none(status: int) -> None:
    client, exchange = asked(HEAD if status == 200 else GET + b"\r\n")
    exchange.start(status)
    exchange.write(b"dropped")
    exchange.end()
    assert b"dropped" not in client.answer
    assert client.answer.endswith(b"\r\n\r\n")
    assert not client.answer.endswith(b"0\r\n\r\n")
    assert (b"chunked" in client.answer) == (status == 200)


@pytest.mark.parametrize(
    ("request_bytes", "line", "closes"),
    [
        (GET + b"\r\n", None, False),
        (GET + b"Connection: keep-alive\r\n\r\n", None, False),
        (GET + b"Connection: close\r\n\r\n", b"close", True),
        (GET + b"Connection: keep-alive, CLOSE\r\n\r\n", b"close", True),
        (OLD, b"close", True),
        (OLD_KEPT, b"keep-alive", False),
    ],
)
def test_the_client_decides_whether_the_connection_stays(
    request_bytes: bytes, line: bytes | None, closes: bool
) -> None:
    client, exchange = asked(request_bytes)
    exchange.respond(200)
    found = re.search(rb"Connection: ([a-z-]*)\r\n", client.answer)
    assert (found and found[1]) == line
    assert client.transport.closed == closes


@pytest.mark.parametrize("is_streamed", [False, True])
def test_the_application_may_close_after_its_answer(is_streamed: bool) -> None:
    client, exchange = asked()
    exchange.close_after = True
    if is_streamed:
        exchange.start(200)
        exchange.end()
    else:
        exchange.respond(200)
    assert b"Connection: close\r\n" in client.answer
    assert client.transport.closed


def test_the_application_may_still_decide_to_close_while_it_streams() -> None:
    client, exchange = asked()
    exchange.start(200)
    exchange.close_after = True
    exchange.end()
    assert client.transport.closed


def test_answering_a_client_that_left_does_nothing() -> None:
    client, exchange = asked()
    client.connection.connection_lost(None)
    exchange.respond(200)
    exchange.start(200)
    exchange.write(b"x")
    exchange.end()
    exchange.respond(200)
    assert client.answer == b""
    assert not exchange.writable


def test_pipelined_requests_are_answered_in_order_one_after_the_other() -> None:
    client = Client()
    client.send(post(b"1") + chunked(b"2") + post(b"3" * 20_000) + GET + b"\r\n")
    for number in range(4):
        assert len(client.seen) == number + 1
        client.seen[number].respond(200, b"%d" % number)
        assert len(client.seen) == number + 1, "the next one starts inside the answer of this one"
        client.turn()
    assert re.findall(rb"\r\n\r\n(\d)", client.answer) == [b"0", b"1", b"2", b"3"]


def test_input_after_a_last_request_is_dropped_and_the_answer_survives() -> None:
    client = Client()
    client.send(GET + b"Connection: close\r\n\r\n" + GET + b"\r\n")
    client.seen[0].respond(200)
    assert client.transport.ended
    assert not client.transport.closed
    client.turn()
    assert len(client.seen) == 1


def test_many_answers_at_once_do_not_nest() -> None:
    client = Client(ok)
    client.send((GET + b"\r\n") * 3000)
    assert len(client.seen) == 3000
    assert client.answer.count(b"HTTP/1.1 200 OK") == 3000
