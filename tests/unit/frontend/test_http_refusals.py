"""What a connection refuses, and that its neighbour in the table of rules is taken."""

import json

import pytest

from shoal.frontend.http import HttpLimits
from tests.unit.frontend.http_fakes import GET, POST, Client, chunked, ok, post

CHUNKED = POST + b"Transfer-Encoding: chunked\r\n\r\n"
LIMITS = HttpLimits(max_body=1000, max_head=20_000, max_headers=5, inline_body=100)

REFUSED = {
    "both framings": (400, POST + b"Content-Length: 3\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "both framings, other order": (400, POST + b"Transfer-Encoding: chunked\r\nContent-Length: 3\r\n\r\n0\r\n\r\n"),
    "two lengths": (400, POST + b"Content-Length: 3\r\nContent-Length: 4\r\n\r\nabcd"),
    "two equal lengths": (400, POST + b"Content-Length: 3\r\nContent-Length: 3\r\n\r\nabc"),
    "a list of lengths": (400, POST + b"Content-Length: 3, 3\r\n\r\nabc"),
    "a signed length": (400, POST + b"Content-Length: +3\r\n\r\nabc"),
    "a negative length": (400, POST + b"Content-Length: -3\r\n\r\nabc"),
    "a length with an underscore": (400, POST + b"Content-Length: 1_0\r\n\r\nabc"),
    "a hexadecimal length": (400, POST + b"Content-Length: 0x3\r\n\r\nabc"),
    "an empty length": (400, POST + b"Content-Length:\r\n\r\n"),
    "an absurd length": (400, POST + b"Content-Length: 99999999999999999999999\r\n\r\n"),
    "gzip framing": (501, POST + b"Transfer-Encoding: gzip\r\n\r\n"),
    "gzip and chunked": (501, POST + b"Transfer-Encoding: gzip, chunked\r\n\r\n0\r\n\r\n"),
    "identity framing": (501, POST + b"Transfer-Encoding: identity\r\n\r\n"),
    "nearly chunked": (501, POST + b"Transfer-Encoding: xchunked\r\n\r\n"),
    "empty framing": (400, POST + b"Transfer-Encoding:\r\n\r\n"),
    "chunked twice": (400, POST + b"Transfer-Encoding: chunked\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "chunked in HTTP/1.0": (400, b"POST / HTTP/1.0\r\nTransfer-Encoding: chunked\r\n\r\n0\r\n\r\n"),
    "a chunk size that is none": (400, CHUNKED + b"zz\r\nabc\r\n"),
    "a chunk size with 0x": (400, CHUNKED + b"0x3\r\nabc\r\n"),
    "a negative chunk size": (400, CHUNKED + b"-3\r\nabc\r\n"),
    "a chunk size over 64 bits": (400, CHUNKED + b"fffffffffffffffff\r\nabc\r\n"),
    "a chunk longer than said": (400, CHUNKED + b"3\r\nabcd\r\n"),
    "a chunk with bare line feeds": (400, CHUNKED + b"3\nabc\n0\n\n"),
    "a blank after a chunk size": (400, CHUNKED + b"3 \r\nabc\r\n"),
    "chunks over the limit": (413, chunked(b"x" * 600, b"x" * 401)),
    "a length over the limit": (413, POST + b"Content-Length: 1001\r\n\r\n"),
    "an expected length over the limit": (413, POST + b"Expect: 100-continue\r\nContent-Length: 1001\r\n\r\n"),
    "another expectation": (417, POST + b"Expect: tea\r\nContent-Length: 1\r\n\r\n"),
    "no expectation in particular": (417, POST + b"Expect: \r\nContent-Length: 1\r\n\r\n"),
    "endless chunk extensions": (431, CHUNKED + b"1;" + b"x" * 20_100),
    "endless trailers": (431, CHUNKED + b"0\r\nX: " + b"x" * 20_100),
    "a folded header": (400, GET + b"X: a\r\n b\r\n\r\n"),
    "a bare line feed in a header": (400, GET + b"X: a\nY: b\r\n\r\n"),
    "bare line feeds only": (400, b"GET / HTTP/1.1\nHost: a\n\n"),
    "a bare carriage return": (400, GET + b"X: a\rY: b\r\n\r\n"),
    "a doubled carriage return": (400, GET + b"X: a\r\r\n\r\n"),
    "NUL in a header": (400, GET + b"X: a\0b\r\n\r\n"),
    "a control in a header": (400, GET + b"X: a\x01b\r\n\r\n"),
    "DEL in a header": (400, GET + b"X: a\x7fb\r\n\r\n"),
    "a blank before the colon": (400, GET + b"X : a\r\n\r\n"),
    "a blank before the first header": (400, b"GET / HTTP/1.1\r\n Host: a\r\n\r\n"),
    "a header without a colon": (400, GET + b"abc\r\n\r\n"),
    "a header without a name": (400, GET + b": abc\r\n\r\n"),
    "a control in the target": (400, b"GET /\x01 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a blank in the target": (400, b"GET /a b HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a relative target": (400, b"GET foo HTTP/1.1\r\nHost: a\r\n\r\n"),
    "no Host": (400, b"GET / HTTP/1.1\r\n\r\n"),
    "two Hosts": (400, GET + b"host: a\r\n\r\n"),
    "two Hosts in HTTP/1.0": (400, b"GET / HTTP/1.0\r\nHost: a\r\nHost: b\r\n\r\n"),
    "no Host with a word on the connection": (400, b"GET / HTTP/1.1\r\nConnection: keep-alive\r\n\r\n"),
    "HTTP/0.9": (505, b"GET /\r\n\r\n"),
    "HTTP/0.9 in words": (505, b"GET / HTTP/0.9\r\nHost: a\r\n\r\n"),
    "HTTP/2.0 in words": (505, b"GET / HTTP/2.0\r\nHost: a\r\n\r\n"),
    "HTTP/2.0 kept alive": (505, b"GET / HTTP/2.0\r\nHost: a\r\nConnection: keep-alive\r\n\r\n"),
    "HTTP/2.0 kept alive by the proxy": (505, b"GET / HTTP/2.0\r\nHost: a\r\nProxy-Connection: keep-alive\r\n\r\n"),
    "the HTTP/2 preface": (505, b"PRI * HTTP/2.0\r\n\r\nSM\r\n\r\n"),
    "an unknown version": (400, b"GET / HTTP/1.7\r\nHost: a\r\n\r\n"),
    "a TLS hello": (501, b"\x16\x03\x01\x02\x00\x01\x00\x01\xfc"),
    "CONNECT": (501, b"CONNECT a:1 HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a method of another protocol": (501, b"PROPFIND / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a method nobody knows": (501, b"BREW / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a method in lower case": (501, b"get / HTTP/1.1\r\nHost: a\r\n\r\n"),
    "too many headers": (431, GET + b"X: y\r\n" * 5 + b"\r\n"),
    "a head too large": (431, GET + b"X: " + b"y" * 20_000 + b"\r\n\r\n"),
    "a head that never ends": (431, GET + b"X: " + b"y" * 20_100),
    "a target too long": (414, b"GET /" + b"x" * 16_384 + b" HTTP/1.1\r\nHost: a\r\n\r\n"),
    "a target longer than a head": (414, b"GET /" + b"x" * 30_000),
}

TAKEN = {
    "chunked in capitals": POST + b"TRANSFER-ENCODING: Chunked\r\n\r\n0\r\n\r\n",
    "a chunk extension": CHUNKED + b"1;a=b\r\nx\r\n0\r\n\r\n",
    "chunks at the limit": chunked(b"x" * 600, b"x" * 400),
    "many tiny chunks": chunked(*[b"x"] * 1000),
    "a length at the limit": post(b"x" * 1000),
    "a length of nothing": post(b""),
    "HTTP/1.0 without a Host": b"GET / HTTP/1.0\r\n\r\n",
    "HTTP/1.0 with a Host": b"GET / HTTP/1.0\r\nHost: a\r\n\r\n",
    "a tab in a header": GET + b"X: a\tb\r\n\r\n",
    "bytes above ASCII in a header": GET + b"X: \xe9\r\n\r\n",
    "an empty header": GET + b"X:\r\n\r\n",
    "as many headers as allowed": GET + b"X: y\r\n" * 4 + b"\r\n",
    "a head as large as allowed": GET + b"X: " + b"y" * (20_000 - len(GET) - 7) + b"\r\n\r\n",
    "a target as long as allowed": b"GET /" + b"x" * 16_383 + b" HTTP/1.1\r\nHost: a\r\n\r\n",
    "an expectation": post(b"x", b"Expect: 100-Continue"),
    "trailers": CHUNKED + b"0\r\nX: y\r\n\r\n",
}


@pytest.mark.parametrize(("status", "request_bytes"), REFUSED.values(), ids=REFUSED)
@pytest.mark.parametrize("step", [1, 1 << 20], ids=["byte by byte", "whole"])
def test_it_is_refused_with_a_reason_and_the_connection_ends(status: int, request_bytes: bytes, step: int) -> None:
    client = Client(ok, LIMITS)
    for at in range(0, len(request_bytes), step):
        client.send(request_bytes[at : at + step])

    assert client.seen == []
    head, _, body = client.answer.partition(b"\r\n\r\n")
    assert client.status == status
    assert b"\r\nConnection: close\r\n" in head
    assert b"\r\nContent-Length: %d" % len(body) in head
    error = json.loads(body)
    assert error["code"] == status
    assert error["type"].endswith("Exception")
    assert error["message"]
    assert client.transport.ended
    client.send(GET + b"\r\n")
    assert client.seen == []


@pytest.mark.parametrize("request_bytes", TAKEN.values(), ids=TAKEN)
@pytest.mark.parametrize("step", [1, 1 << 20], ids=["byte by byte", "whole"])
def test_it_is_taken(request_bytes: bytes, step: int) -> None:
    client = Client(ok, LIMITS)
    for at in range(0, len(request_bytes), step):
        client.send(request_bytes[at : at + step])
    assert len(client.seen) == 1
    assert b" 200 OK\r\n" in client.answer
    assert not client.transport.ended


def test_a_body_over_the_limit_is_refused_before_it_is_read_and_names_the_limit() -> None:
    client = Client(ok, LIMITS)
    client.send(POST + b"Expect: 100-continue\r\nContent-Length: 5000\r\n\r\n")
    assert client.status == 413
    assert b"100 Continue" not in client.answer
    assert b"1000" in client.answer
    assert client.loans == []


def test_a_refusal_comes_after_the_answers_that_are_due() -> None:
    client = Client(limits=LIMITS)
    client.send(GET + b"\r\n" + GET + b"Bad : x\r\n\r\n")
    assert client.answer == b""
    client.seen[0].respond(200, b"first")
    client.turn()
    assert client.status == 200
    assert client.answer.count(b"HTTP/1.1 400 ") == 1


def test_the_input_after_a_refusal_is_read_and_dropped_for_a_while() -> None:
    client = Client(ok, LIMITS)
    client.send(POST + b"Content-Length: 5000\r\n\r\n" + b"x" * 4000)
    client.send(b"x" * 1000 + GET + b"\r\n")
    assert client.seen == []
    assert not client.transport.closed
    assert not client.connection.eof_received()

    client.hub.sweep(4.9)
    assert not client.transport.closed
    client.hub.sweep(5.0)
    assert client.transport.closed


def test_a_client_that_never_stops_after_a_refusal_is_closed() -> None:
    client = Client(ok, LIMITS)
    client.send(POST + b"Content-Length: 5000\r\n\r\n")
    place = len(client.connection.get_buffer(-1))
    for _ in range(64 * 2**20 // place):
        client.connection.buffer_updated(place)
    assert not client.transport.closed
    client.connection.buffer_updated(1)
    assert client.transport.closed
