"""Calls on a connection: how they come in, what their services hear, what goes back."""

import gzip
import logging
import math

import pytest

from shoal.frontend.budget import Budget
from shoal.frontend.http2.frames import (
    CONTINUATION,
    DATA,
    END_HEADERS,
    END_STREAM,
    HEADERS,
    PADDED,
    PREFACE,
    RST_STREAM,
    SETTINGS,
    WITH_PRIORITY,
    ErrorCode,
)
from shoal.frontend.http2.hpack import encode, encode_integer
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.hub import Hub
from shoal.frontend.rpc import Call, Code
from tests.unit.frontend.http2.fakes import HEAD, Client, data, echo, frame, head, message, status, unary


def test_a_unary_call_is_answered_in_one_write_after_its_read() -> None:
    client = Client()
    writes = client.transport.writes
    client.send(unary(1, b"hello") + unary(3, b"you"))

    assert client.transport.writes == writes + 1
    answers = client.answers()
    assert answers[1].fields == {
        b":status": b"200",
        b"content-type": b"application/grpc",
        b"grpc-status": b"0",
    }
    assert answers[1].messages == [b"hello"]
    assert answers[3].messages == [b"you"]
    assert answers[1].is_ended and answers[3].is_ended


def test_a_service_sees_what_the_client_said() -> None:
    client = Client()
    client.send(unary(1, b"", (b"key", b"value"), (b"grpc-timeout", b"5S")))

    call = client.calls[0]
    assert (call.method, call.timeout, call.peer) == ("/t.T/Echo", 5.0, "10.0.0.7:1234")
    assert list(call.metadata) == [(b"key", b"value")]
    assert call.client > 0
    assert not call.writable


def test_calls_of_a_connection_share_its_number_and_others_have_another() -> None:
    one, two = Client(), Client()
    one.send(unary(1, b"") + unary(3, b""))
    two.send(unary(1, b""))

    assert one.calls[0].client == one.calls[1].client != two.calls[0].client


def test_input_may_be_cut_at_every_byte() -> None:
    raw = PREFACE + frame(SETTINGS) + unary(1, b"hello", (b"x", b"y")) + head(3) + data(3, message(b"a"))
    raw += frame(77, 0, 0, b"unknown") + data(3, message(b"b"), is_end=True)
    for cut in range(1, len(raw)):
        client = Client(is_open=False)
        client.send(raw[:cut])
        client.send(raw[cut:])
        answers = client.answers()
        assert answers[1].messages == [b"hello"], cut
        assert answers[3].messages == [b"a", b"b"], cut


def test_input_may_come_byte_by_byte() -> None:
    client = Client(is_open=False)
    pieces = []
    for byte in PREFACE + frame(SETTINGS) + unary(1, b"hello" * 100) + unary(3, b"you"):
        client.send(bytes((byte,)))
        pieces.append(len(client.connection._parts))

    answers = client.answers()
    assert answers[1].messages == [b"hello" * 100]
    assert answers[3].messages == [b"you"]
    assert max(pieces) <= 65  # crumbs are joined: each weighs far more than its byte


def test_messages_split_over_frames_and_several_in_one() -> None:
    client = Client()
    raw = message(b"one") + message(b"") + message(b"three" * 10)
    client.send(head(1) + data(1, raw[:4]) + data(1, raw[4:9]) + data(1, raw[9:20]) + data(1, raw[20:], is_end=True))

    assert client.answer().messages == [b"one", b"", b"three" * 10]


def test_the_end_may_come_alone_or_as_trailers() -> None:
    client = Client()
    client.send(head(1) + data(1, message(b"a")) + data(1, b"", is_end=True))
    client.send(head(3) + data(3, message(b"b")) + frame(HEADERS, END_HEADERS | END_STREAM, 3, encode([(b"t", b"u")])))
    client.send(head(5, is_end=True))

    answers = client.answers()
    assert [answers[s].messages for s in (1, 3, 5)] == [[b"a"], [b"b"], []]
    assert all(status(answers[s]) == Code.OK for s in (1, 3, 5))


def test_padding_and_priority_are_taken_off() -> None:
    client = Client()
    block = encode(HEAD)
    flags = END_HEADERS | PADDED | WITH_PRIORITY
    client.send(frame(HEADERS, flags, 1, b"\x03" + b"\x00\x00\x00\x00\x10" + block + b"\0\0\0"))
    client.send(frame(DATA, END_STREAM | PADDED, 1, b"\x02" + message(b"x") + b"\0\0"))

    assert client.answer().messages == [b"x"]


def test_a_head_may_go_on_in_continuations() -> None:
    client = Client()
    block = encode(HEAD)
    client.send(frame(HEADERS, END_STREAM, 1, block[:3]) + frame(CONTINUATION, 0, 1, block[3:20]))
    assert client.calls == []
    client.send(frame(CONTINUATION, END_HEADERS, 1, block[20:]))

    assert status(client.answer()) == Code.OK


def literal(name: bytes, value: bytes) -> bytes:
    return b"\x40" + encode_integer(len(name), 0x7F) + name + encode_integer(len(value), 0x7F) + value


def test_a_repeated_head_means_what_the_table_says_now() -> None:
    client = Client()
    plain = encode(HEAD)
    again = plain + b"\xbe"  # and the newest entry of the table
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, plain + literal(b"k", b"one")))
    for stream in (3, 5):
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, again))
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 7, plain + literal(b"k", b"two")))
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 9, again))

    values = [dict(call.metadata)[b"k"] for call in client.calls]
    assert values == [b"one", b"one", b"one", b"two", b"two"]
    assert client.calls[1].metadata is client.calls[2].metadata  # decoded once


def test_a_head_that_adds_to_the_table_does_so_each_time() -> None:
    client = Client()
    adding = encode(HEAD) + literal(b"k", b"v")
    for stream in (1, 3, 5):
        client.send(frame(HEADERS, END_HEADERS | END_STREAM, stream, adding))
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 7, encode(HEAD) + b"\xc0"))  # the third newest entry

    assert dict(client.calls[3].metadata) == {b"k": b"v"}


def test_many_different_heads_are_not_all_remembered() -> None:
    client = Client()
    for number in range(200):
        client.send(head(2 * number + 1, (b"n", b"%d" % number), is_end=True))

    assert len(client.connection._known) <= 16
    assert [dict(c.metadata)[b"n"] for c in client.calls] == [b"%d" % n for n in range(200)]


def test_a_service_may_answer_before_the_client_ends() -> None:
    def hasty(call: Call) -> None:
        call.finish(Code.NOT_FOUND, "no such thing")

    client = Client(hasty)
    client.send(head(1))
    frames = client.frames()

    assert [f.kind for f in frames] == [HEADERS, RST_STREAM]
    assert frames[1].payload == bytes(4)  # no error: just send no more
    answer = client.answers(frames)[1]
    assert status(answer) == Code.NOT_FOUND and answer.fields[b"grpc-message"] == b"no such thing"
    client.send(data(1, message(b"late")) + frame(HEADERS, END_HEADERS | END_STREAM, 1, encode([(b"t", b"u")])))
    assert client.frames() == [] and client.is_alive
    client.send(unary(3, b"x"))
    assert status(client.answer(3)) == Code.NOT_FOUND


def test_a_service_that_answers_the_last_message_does_not_cut_the_stream() -> None:
    def first(call: Call) -> None:
        def answer(text: bytes) -> None:
            call.send(text)
            call.finish()

        call.on_message = answer

    client = Client(first)
    client.send(unary(1, b"a"))

    assert [f.kind for f in client.frames()] == [HEADERS, DATA, HEADERS]


def test_messages_go_out_while_others_come_in() -> None:
    def talk(call: Call) -> None:
        call.on_message = call.send
        call.on_end = call.finish

    client = Client(talk)
    client.send(head(1) + data(1, message(b"a")))
    assert client.answer().messages == [b"a"]
    client.send(data(1, message(b"b")))
    frames = client.frames()
    assert [(f.kind, f.payload) for f in frames] == [(DATA, message(b"b"))]
    client.send(data(1, b"", is_end=True))
    assert [(f.kind, f.flags & END_STREAM) for f in client.frames()] == [(HEADERS, END_STREAM)]


def test_an_answer_outside_a_read_leaves_with_the_next_turn_of_the_loop() -> None:
    client = Client(lambda call: None)
    client.send(unary(1, b"a") + unary(3, b"b"))
    assert client.frames() == []
    writes = client.transport.writes
    for call in client.calls:
        call.send(b"x")
        call.finish()
    assert client.transport.writes == writes
    assert [a.messages for a in client.answers().values()] == [[b"x"], [b"x"]]
    assert client.transport.writes == writes + 1


def test_after_the_end_nothing_more_is_said() -> None:
    client = Client()
    client.send(unary(1, b"a"))
    client.frames()
    call = client.calls[0]
    call.send(b"more")
    call.finish(Code.INTERNAL)

    assert client.frames() == []
    assert not call.writable
    assert client.gone == []


def test_trailers_carry_metadata() -> None:
    client = Client(lambda call: call.finish(Code.ABORTED, "é%\n", [(b"k-bin", b"\xff"), (b"k", b"v")]))
    client.send(head(1, is_end=True))

    fields = client.answer().fields
    assert fields[b"grpc-message"] == b"%C3%A9%25%0A"
    assert fields[b"k-bin"] == b"/w" and fields[b"k"] == b"v"


def test_large_trailers_are_continued() -> None:
    client = Client(lambda call: call.finish(Code.OK, "", [(b"k", b"v" * 40_000)]))
    client.send(head(1, is_end=True))
    frames = client.frames()

    assert [f.kind for f in frames] == [HEADERS, CONTINUATION, CONTINUATION]
    assert client.answers(frames)[1].fields[b"k"] == b"v" * 40_000


@pytest.mark.parametrize("when", ["call", "message", "end"])
def test_a_service_that_raises_fails_its_call_alone(when: str, caplog: pytest.LogCaptureFixture) -> None:
    def bad(call: Call) -> None:
        if when == "call":
            raise RuntimeError("oops")
        call.on_message = fail if when == "message" else (lambda text: None)
        call.on_end = fail_end if when == "end" else (lambda: None)

    def fail(text: bytes) -> None:
        raise RuntimeError("oops")

    def fail_end() -> None:
        raise RuntimeError("oops")

    client = Client(bad)
    with caplog.at_level(logging.ERROR):
        client.send(unary(1, b"a"))

    answer = client.answer()
    assert status(answer) == Code.UNKNOWN
    assert b"oops" not in answer.fields[b"grpc-message"]
    assert client.gone == client.calls
    assert client.is_alive
    assert "oops" in caplog.text


def test_a_callback_that_raises_at_the_end_harms_nobody(caplog: pytest.LogCaptureFixture) -> None:
    def bad(call: Call) -> None:
        def fail() -> None:
            raise RuntimeError("oops")

        call.on_gone = fail

    client = Client(bad)
    client.send(head(1) + head(3) + frame(RST_STREAM, 0, 1, b"\0\0\0\x08"))
    client.connection.connection_lost(None)

    assert len(caplog.records) == 2


@pytest.mark.parametrize(
    ("more", "payload", "code"),
    [
        ((), message(b"x" * 101), Code.RESOURCE_EXHAUSTED),
        ((), message(b"x", 1), Code.INTERNAL),
        (((b"grpc-encoding", b"gzip"),), message(gzip.compress(b"x" * 1000, mtime=0), 1), Code.RESOURCE_EXHAUSTED),
        ((), message(b"abc")[:6], Code.INTERNAL),  # the stream ends inside it
        ((), b"\0\0", Code.INTERNAL),
    ],
)
def test_a_bad_message_ends_the_call_with_its_reason(
    more: tuple[tuple[bytes, bytes], ...], payload: bytes, code: Code
) -> None:
    client = Client(limits=Http2Limits(max_message=100))
    client.send(head(1, *more) + data(1, payload, is_end=True))

    assert status(client.answer()) == code
    assert client.gone == client.calls
    client.send(unary(3, b"x" * 100))
    assert client.answer(3).messages == [b"x" * 100]


def test_a_compressed_message_is_heard_plain() -> None:
    client = Client()
    client.send(head(1, (b"grpc-encoding", b"gzip")) + data(1, message(gzip.compress(b"abc"), 1), is_end=True))

    assert client.answer().messages == [b"abc"]


def test_unfinished_messages_of_a_connection_are_bounded() -> None:
    client = Client(limits=Http2Limits(max_unfinished=100))
    for stream in (1, 3, 5):
        client.send(head(stream) + data(stream, message(b"x" * 60)[:50]))

    answers = client.answers()
    assert {s: status(a) for s, a in answers.items()} == {5: Code.RESOURCE_EXHAUSTED}
    client.send(data(1, message(b"x" * 60)[50:], is_end=True) + head(7) + data(7, message(b"y" * 60)[:50]))
    assert list(client.answers()) == [1]
    client.send(frame(RST_STREAM, 0, 3, b"\0\0\0\x08") + frame(RST_STREAM, 0, 7, b"\0\0\0\x08"))
    assert client.connection._unfinished == 0


def echo_later(call: Call) -> None:
    """A service that has not answered yet."""
    call.on_message = lambda message: None


def test_large_messages_of_all_connections_share_a_budget() -> None:
    hub = Hub(soon=lambda callback: None)
    hub.budget = Budget(1000)
    first, second = Client(echo_later, hub=hub), Client(echo_later, hub=hub)
    first.send(head(1) + data(1, message(b"x" * 600)[:300]) + data(1, message(b"x" * 600)[300:], is_end=True))
    second.send(head(1) + data(1, message(b"y" * 600)[:450]))

    assert {s: status(a) for s, a in second.answers().items()} == {1: Code.RESOURCE_EXHAUSTED}
    assert hub.budget.used == 600, "the message that waits for its answer"
    first.send(frame(RST_STREAM, 0, 1, b"\0\0\0\x08"))
    assert hub.budget.used == 0
    second.send(head(3) + data(3, message(b"z" * 600)[:450]))
    assert hub.budget.used == 450
    second.connection.connection_lost(None)
    assert hub.budget.used == 0


def test_a_stream_pays_for_its_last_message_only() -> None:
    hub = Hub(soon=lambda callback: None)
    hub.budget = Budget(1100)
    client = Client(echo_later, hub=hub)
    client.send(head(1))
    for _ in range(10):
        client.send(data(1, message(b"x" * 500)[:200]) + data(1, message(b"x" * 500)[200:]))

    assert hub.budget.used == 500
    assert not client.answers()


def test_an_unknown_method_is_unimplemented() -> None:
    client = Client()
    client.send(head(1, path=b"/t.T/Other", is_end=True) + head(3, path=b"/x"))
    frames = client.frames()

    answers = client.answers(frames)
    assert status(answers[1]) == status(answers[3]) == Code.UNIMPLEMENTED
    assert answers[1].fields[b"grpc-message"] == b"there is no method /t.T/Other"
    assert [f.stream for f in frames if f.kind == RST_STREAM] == [3]
    client.send(data(3, message(b"x"), is_end=True))
    assert client.is_alive and client.frames() == []


def test_a_refused_head_is_answered_and_begins_no_call() -> None:
    client = Client()
    fields = [field for field in HEAD if field[0] != b"content-type"]
    client.send(frame(HEADERS, END_HEADERS | END_STREAM, 1, encode(fields)))

    assert client.answer().fields[b":status"] == b"415"
    assert client.calls == []


def test_a_head_too_large_is_refused_and_the_connection_goes_on() -> None:
    client = Client(limits=Http2Limits(max_header_list=500))
    client.send(head(1, (b"k", b"v" * 500), is_end=True) + unary(3, b"a"))

    answers = client.answers()
    assert answers[1].fields[b":status"] == b"431"
    assert answers[3].messages == [b"a"]


def test_a_malformed_head_breaks_its_stream_alone() -> None:
    client = Client()
    client.send(frame(HEADERS, END_HEADERS, 1, encode(HEAD[1:])) + data(1, b"xxxxx") + unary(3, b"a"))
    frames = client.frames()

    assert [(f.stream, f.payload[3]) for f in frames if f.kind == RST_STREAM] == [(1, ErrorCode.PROTOCOL_ERROR)]
    assert client.answers(frames)[3].messages == [b"a"]


def test_a_deadline_ends_the_call_and_tells_both_sides() -> None:
    client = Client(lambda call: None)
    client.send(unary(1, b"a", (b"grpc-timeout", b"100m")))
    client.clock.move(0.09)
    assert client.frames() == []
    client.clock.move(0.02)

    assert status(client.answer()) == Code.DEADLINE_EXCEEDED
    assert client.gone == client.calls
    client.calls[0].finish()
    assert client.frames() == []


def test_a_call_without_time_never_reaches_its_service() -> None:
    client = Client()
    client.send(unary(1, b"a", (b"grpc-timeout", b"0m")))

    assert status(client.answer()) == Code.DEADLINE_EXCEEDED
    assert client.calls == []


def test_calls_that_end_in_time_leave_no_deadline_behind() -> None:
    client = Client()
    for number in range(1000):
        client.send(unary(2 * number + 1, b"a", (b"grpc-timeout", b"1H")))

    assert len(client.deadlines) < 200
    assert client.calls[0].timeout == 3600.0
    client.send(unary(2001, b"a"))
    assert client.calls[-1].timeout == math.inf


def test_a_cancelled_call_is_told_so_once() -> None:
    client = Client(lambda call: None)
    client.send(unary(1, b"a", (b"grpc-timeout", b"1S")) + frame(RST_STREAM, 0, 1, b"\0\0\0\x08"))
    assert client.gone == client.calls
    client.calls[0].send(b"x")
    client.calls[0].finish()
    client.clock.move(2)
    client.connection.connection_lost(None)

    assert client.gone == client.calls
    assert client.frames() == []


def test_a_lost_connection_tells_all_its_calls() -> None:
    client = Client(lambda call: None)
    client.send(unary(1, b"a") + head(3) + data(3, b"\0\0"))
    client.connection.connection_lost(ConnectionResetError())

    assert client.gone == client.calls
    assert len(client.calls) == 2
    assert client.hub.connections == set()
    client.calls[0].send(b"x")
    client.calls[0].finish()
    client.turn()


def test_the_services_callbacks_are_let_go() -> None:
    client = Client(echo)
    client.send(unary(1, b"a"))

    client.calls[0].on_message(b"ignored")
    client.calls[0].on_end()
    client.calls[0].on_gone()
    assert client.gone == []
