"""Requests as the application sees them."""

import logging
import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.frontend.exchange import Exchange
from shoal.frontend.http import HttpLimits
from tests.unit.frontend.http_fakes import GET, POST, Client, bodies, chunked, ok, post


def test_a_small_request_arrives_with_its_parts() -> None:
    client = Client()
    client.send(post(b"abc", b"Content-TYPE: text/plain", b"X-Request-Id: r-1", b"X-Other:  v "))

    (exchange,) = client.seen
    assert (exchange.method, exchange.target, exchange.body) == ("POST", b"/predictions/m?x=1", b"abc")
    assert (exchange.path, exchange.query) == (b"/predictions/m", b"x=1")
    assert (exchange.content_type, exchange.request_id) == (b"text/plain", b"r-1")
    assert exchange.headers[1] == (b"Content-TYPE", b"text/plain")
    assert exchange.header(b"x-other") == b"v"
    assert exchange.header(b"x-none") is None
    assert exchange.peer == "10.0.0.7:1234"


def test_every_connection_has_its_own_number() -> None:
    one, two = Client(), Client()
    for client in (one, two):
        client.send(GET + b"\r\n")
    assert one.seen[0].client != two.seen[0].client


@pytest.mark.parametrize("bad", [b"a b", b"x" * 129, b"\xe9t\xe9", b""])
def test_a_request_id_that_is_not_sane_is_dropped(bad: bytes) -> None:
    client = Client()
    client.send(GET + b"X-Request-Id: " + bad + b"\r\n\r\n")
    assert client.seen[0].request_id == b""


def test_a_request_id_of_the_longest_size_is_kept() -> None:
    client = Client()
    client.send(GET + b"x-request-id: " + b"x" * 128 + b"\r\n\r\n")
    assert client.seen[0].request_id == b"x" * 128


@pytest.mark.parametrize(
    ("target", "path", "query"),
    [
        (b"http://h:80/p/q?a=b", b"/p/q", b"a=b"),
        (b"http://h", b"/", b""),
        (b"http://h?a", b"/", b"a"),
        (b"/p?a?b", b"/p", b"a?b"),
        (b"/p?u=http://x/y", b"/p", b"u=http://x/y"),
    ],
)
def test_absolute_targets_have_the_path_of_their_plain_form(target: bytes, path: bytes, query: bytes) -> None:
    client = Client()
    client.send(b"GET " + target + b" HTTP/1.1\r\nHost: h\r\n\r\n")
    exchange = client.seen[0]
    assert (exchange.target, exchange.path, exchange.query) == (target, path, query)


def test_the_asterisk_target_stays_what_it_is() -> None:
    client = Client()
    client.send(b"OPTIONS * HTTP/1.1\r\nHost: h\r\n\r\n")
    assert client.seen[0].path == b"*"


def test_a_body_over_the_inline_limit_comes_in_a_lent_block() -> None:
    body = bytes(range(256)) * 256
    client = Client(ok)
    client.send(post(body) + GET + b"\r\n")

    assert bodies(client.seen) == [body, b""]
    assert client.seen[0].body is client.loans[0]
    assert client.loans[0].released == 0
    assert client.answer.count(b"200 OK") == 2


def test_a_body_at_the_inline_limit_is_plain_bytes() -> None:
    client = Client()
    client.send(post(b"x" * HttpLimits().inline_body))
    assert client.loans == []
    assert isinstance(client.seen[0].body, bytes)


def test_without_lent_memory_a_large_body_is_plain_bytes() -> None:
    client = Client(ok, has_memory=False)
    client.send(post(b"x" * 100_000) + chunked(b"y" * 50_000))
    assert [e.body for e in client.seen] == [b"x" * 100_000, b"y" * 50_000]


def test_the_rest_of_a_large_body_is_received_in_place() -> None:
    client = Client()
    request = post(b"x" * 100_000)
    client.send(request[:200])
    assert len(client.connection.get_buffer(-1)) == len(request) - 200
    client.send(request[200:])
    assert bodies(client.seen) == [b"x" * 100_000]


def test_chunks_are_joined_and_a_large_sum_is_lent() -> None:
    client = Client(ok)
    client.send(chunked(b"ab", b"c\r\n\r\nd") + chunked(b"x" * 10_000, b"y" * 10_000))
    assert bodies(client.seen) == [b"abc\r\n\r\nd", b"x" * 10_000 + b"y" * 10_000]
    assert client.seen[0].body == b"abc\r\n\r\nd"
    assert client.seen[1].body is client.loans[0]


def test_a_chunked_body_much_larger_than_a_head_is_taken() -> None:
    client = Client()
    client.send(chunked(b"x" * 300_000, b"y"))
    assert bodies(client.seen) == [b"x" * 300_000 + b"y"]


def test_trailers_do_not_pose_as_headers() -> None:
    client = Client()
    client.send(POST + b"Transfer-Encoding: chunked\r\n\r\n1\r\na\r\n0\r\nContent-Type: evil\r\nHost: b\r\n\r\n")
    assert client.seen[0].content_type == b""
    assert client.seen[0].header(b"host") == b"a"


def test_empty_lines_before_a_request_are_skipped() -> None:
    client = Client(ok)
    client.send(b"\r\n\r\n" + GET + b"\r\n" + b"\r\n" + GET + b"\r\n")
    assert len(client.seen) == 2


def test_an_upgrade_is_not_taken_and_the_request_is_an_ordinary_one() -> None:
    upgrade = b"Connection: Upgrade, HTTP2-Settings\r\nUpgrade: h2c\r\nHTTP2-Settings: AAA\r\n"
    client = Client(ok)
    client.send(GET + upgrade + b"\r\n")
    client.send(POST + upgrade + b"Content-Length: 4\r\n\r\nGET " + GET + b"\r\n")
    client.send(POST + upgrade + b"Transfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n" + GET + b"\r\n")
    assert bodies(client.seen) == [b"", b"GET ", b"", b"abc", b""]
    assert [e.method for e in client.seen] == ["GET", "POST", "GET", "POST", "GET"]
    assert client.seen[3].target == b"/predictions/m?x=1"
    assert b"101" not in client.answer


@pytest.mark.parametrize("size", [4, 40_000])
def test_an_expectant_client_is_told_to_go_on(size: int) -> None:
    client = Client()
    client.send(POST + b"Expect: 100-continue\r\nContent-Length: %d\r\n\r\n" % size)
    assert client.answer == b"HTTP/1.1 100 Continue\r\n\r\n"
    client.send(b"x" * size)
    assert bodies(client.seen) == [b"x" * size]


def test_an_expectant_client_without_a_body_is_not() -> None:
    client = Client()
    client.send(GET + b"Expect: 100-continue\r\n\r\n")
    assert client.answer == b""
    assert len(client.seen) == 1


def test_an_old_client_expects_nothing() -> None:
    client = Client()
    client.send(b"POST / HTTP/1.0\r\nExpect: 100-continue\r\nContent-Length: 1\r\n\r\nx")
    assert client.answer == b""
    assert bodies(client.seen) == [b"x"]


def test_an_application_that_raises_answers_500_and_the_connection_lives(caplog: pytest.LogCaptureFixture) -> None:
    def app(exchange: Exchange) -> None:
        if exchange.path == b"/":
            exchange.respond(200)
        else:
            raise LookupError("the secret of the failure")

    client = Client(app)
    client.send(post(b"") + GET + b"\r\n")
    assert client.answer.startswith(b"HTTP/1.1 500 ")
    assert b'"type": "InternalServerException"' in client.answer
    assert b"secret" not in client.answer
    assert client.answer.count(b"HTTP/1.1 200 OK") == 1
    assert not client.transport.closed
    (record,) = caplog.records
    assert (record.name, record.levelno) == ("shoal.http", logging.ERROR)
    assert record.exc_info is not None


def test_an_application_that_raises_in_the_middle_of_an_answer_cuts_it(caplog: pytest.LogCaptureFixture) -> None:
    def app(exchange: Exchange) -> None:
        exchange.start(200)
        exchange.write(b"half")
        raise LookupError

    client = Client(app)
    client.send(GET + b"\r\n")
    assert client.transport.aborted
    assert b"500" not in client.answer
    assert len(caplog.records) == 1


def test_an_application_that_raises_after_its_answer_is_only_logged(caplog: pytest.LogCaptureFixture) -> None:
    def app(exchange: Exchange) -> None:
        exchange.respond(200)
        raise LookupError

    client = Client(app)
    client.send(GET + b"\r\n")
    assert client.status == 200
    assert not client.transport.aborted
    assert len(caplog.records) == 1


MESSAGES = st.sampled_from(
    [
        GET + b"\r\n",
        post(b"abc"),
        post(b""),
        post(b"\r\n\r\n" * 3),
        post(bytes(range(256)) * 2, b"X-Request-Id: 7", b"Content-Type: a/b"),
        chunked(b"ab", b"\r\n\r\n", b"c"),
        chunked(b"z" * 300),
        POST + b"Transfer-Encoding: chunked\r\n\r\n1;x=y\r\na\r\n0\r\nT: v\r\n\r\n",
        POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nContent-Length: 3\r\n\r\nabc",
        POST + b"Connection: upgrade\r\nUpgrade: h2c\r\nTransfer-Encoding: chunked\r\n\r\n3\r\nabc\r\n0\r\n\r\n",
        b"\r\n",
    ]
)
LAST = st.sampled_from([b"", b"GET / HTTP/1.0\r\n\r\n", GET + b"Bad : x\r\n\r\n", post(b"x" * 2001), GET * 40])


@given(st.lists(MESSAGES, max_size=6), LAST, st.lists(st.integers(0, 4000), max_size=25), st.booleans())
def test_a_stream_cut_anywhere_gives_the_same_exchanges(
    messages: list[bytes], last: bytes, cuts: list[int], is_late: bool
) -> None:
    stream = b"".join(messages) + last
    whole, answers = run(stream, [], is_late=False)
    pieces, pieced_answers = run(stream, sorted(cuts), is_late)
    assert pieces == whole
    assert pieced_answers == answers


@pytest.mark.parametrize("message", [GET + b"\r\n", chunked(b"ab"), post(b"x" * 200)], ids=["head", "chunked", "lent"])
@pytest.mark.parametrize("back", [1, 2, 3])
def test_a_cut_in_the_last_blank_line_does_not_let_the_next_request_slip_in(message: bytes, back: int) -> None:
    end = message.rindex(b"\r\n\r\n") + 4
    stream = message + post(b"2") + GET + b"\r\n"
    cut = run(stream, [end - back], is_late=False)
    assert len(cut[0]) == 3
    assert cut == run(stream, [], is_late=False)


@given(st.lists(MESSAGES, max_size=3), LAST)
def test_a_stream_byte_by_byte_gives_the_same_exchanges(messages: list[bytes], last: bytes) -> None:
    stream = b"".join(messages) + last
    assert run(stream, list(range(len(stream))), is_late=False) == run(stream, [], is_late=False)


def run(stream: bytes, cuts: list[int], is_late: bool) -> tuple[list[object], bytes]:
    """What the application saw and the client got; answered at once, or only after all was sent."""
    limits = HttpLimits(max_head=1000, max_body=2000, inline_body=100, max_pipelined=1000)
    waiting: list[Exchange] = []
    client = Client(waiting.append if is_late else ok, limits)
    for start, stop in zip([0, *cuts], [*cuts, len(stream)], strict=True):
        client.send(stream[start:stop])
        while not client.transport.is_reading_now and waiting:
            waiting.pop().respond(200, b"ok")
            client.turn()
    while waiting:
        waiting.pop().respond(200, b"ok")
        client.turn()
    seen = [(e.method, e.target, e.headers, e.content_type, e.request_id) for e in client.seen]
    return [*zip(seen, bodies(client.seen), strict=True)], undated(client.answer)


def undated(answer: bytes) -> bytes:
    return re.sub(rb"Date: [^\r]*\r\n", b"", answer)


def test_a_head_that_repeats_itself_brings_every_body_of_its_own() -> None:
    client = Client(ok)
    head = b"POST /m HTTP/1.1\r\nHost: a\r\nContent-Type: text/plain\r\nX-Request-Id: i\r\nContent-Length: 2\r\n\r\n"

    for body in (b"ab", b"cd", b"\r\n", b"ef"):
        client.send(head + body)

    assert bodies(client.seen) == [b"ab", b"cd", b"\r\n", b"ef"]
    assert {(e.method, e.target, e.content_type, e.request_id) for e in client.seen} == {
        ("POST", b"/m", b"text/plain", b"i")
    }


def test_heads_that_differ_in_one_byte_are_not_taken_for_each_other() -> None:
    client = Client(ok)

    for number in range(40):
        client.send(b"POST /m%d HTTP/1.1\r\nHost: a\r\nContent-Length: 1\r\n\r\nx" % (number % 3))

    assert [e.target for e in client.seen] == [b"/m%d" % (number % 3) for number in range(40)]


def test_what_is_left_in_the_buffer_does_not_complete_a_head_or_a_body() -> None:
    client = Client(ok)
    whole = b"POST /m HTTP/1.1\r\nHost: a\r\nContent-Length: 3\r\n\r\nabc"
    client.send(whole)
    client.send(whole)

    client.send(whole[:-1])  # the last byte of the request before still lies in the shared buffer

    assert len(client.seen) == 2
    client.send(b"z")
    assert bodies(client.seen) == [b"abc", b"abc", b"abz"]


LENGTHS = [0, 1, 9, 10, 99, 100, 101, 150, 1000, 1999, 2000]


def repeated(digits: bytes, body: bytes) -> bytes:
    """A request whose head is that of all others but for its length."""
    return b"POST /m HTTP/1.1\r\nHost: a\r\nContent-LENGTH: %b\r\nX-Last: b\r\n\r\n%b" % (digits, body)


@given(st.lists(st.sampled_from(LENGTHS), min_size=2, max_size=8), st.data(), st.booleans())
def test_heads_that_differ_in_their_length_alone_bring_bodies_of_their_own(
    lengths: list[int], data: st.DataObject, is_late: bool
) -> None:
    """However large they are, and wherever the stream is cut."""
    sent = [(b"%d" % length, bytes([97 + number]) * length) for number, length in enumerate(lengths)]
    stream = b"".join(repeated(*each) for each in sent)
    cuts = data.draw(st.lists(st.integers(0, len(stream)), max_size=5).map(sorted))

    seen, answer = run(stream, cuts, is_late)

    assert seen == [
        (("POST", b"/m", [(b"Host", b"a"), (b"Content-LENGTH", digits), (b"X-Last", b"b")], b"", b""), body)
        for digits, body in sent
    ]
    assert answer.count(b"HTTP/1.1 200 OK") == len(lengths)


@pytest.mark.parametrize("length", [4, 402])
def test_what_is_left_in_the_buffer_does_not_complete_a_head_of_another_length(length: int) -> None:
    client = Client(ok, HttpLimits(inline_body=100))
    before = b"x" * (length - 1)
    client.send(repeated(b"1", b"x"))  # this head may be shared, and those after it are the connection's own
    for _ in range(2):
        client.send(repeated(b"%d" % len(before), before))

    head = repeated(b"%d" % length, b"")
    client.send(head[:-1])  # the last byte of the head before still lies in the shared buffer
    client.send(head[-1:] + b"y" * length)

    assert bodies(client.seen) == [b"x", before, before, b"y" * length]


@pytest.mark.parametrize("before", [b"3", b"200"], ids=["small", "large"])
@pytest.mark.parametrize(
    "digits", [b"", b"03", b"+3", b"-3", b" 3", b"3 ", b"3,3", b"0x3", b"2001", b"9" * 30, b"3\r\nA: b"]
)
def test_a_length_that_is_unusual_is_judged_as_if_no_head_were_known(before: bytes, digits: bytes) -> None:
    limits = HttpLimits(max_head=1000, max_body=2000, inline_body=100)
    odd = repeated(digits, b"abc")
    fresh, knowing = Client(ok, limits), Client(ok, limits)
    fresh.send(odd)
    knowing.send(repeated(b"1", b"x"))  # this head may be shared, and those after it are the connection's own
    for _ in range(2):
        knowing.send(repeated(before, b"x" * int(before)))
    start = len(knowing.answer)
    knowing.send(odd)

    assert [(e.headers, e.body) for e in knowing.seen[3:]] == [(e.headers, e.body) for e in fresh.seen]
    assert undated(knowing.answer[start:]) == undated(fresh.answer)


def test_a_large_body_of_a_known_head_comes_in_pieces_and_may_never_be_whole() -> None:
    limits = HttpLimits(inline_body=100)
    client = Client(ok, limits)
    whole = repeated(b"200", b"x" * 200)
    client.send(whole)
    for piece in (whole[:70], whole[70:100], whole[100:-1]):
        client.send(piece)
        assert len(client.seen) == 1
    client.send(b"y")
    assert bodies(client.seen) == [b"x" * 200, b"x" * 199 + b"y"]

    client.send(whole[:120])
    client.connection.connection_lost(None)
    assert len(client.seen) == 2
    assert [loan.released for loan in client.loans][-1] == 1
