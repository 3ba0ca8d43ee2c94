import asyncio
from collections.abc import Callable, Iterator, Sequence

import pytest

from shoal.frontend.client import Client
from shoal.frontend.fragments import Fragments
from shoal.frontend.rpc import Code
from shoal.fronts.calls import Calls
from shoal.fronts.frames import CALL, CALL_GONE, CALL_TAKEN, END, MESSAGE, MESSAGE_END, STEP, count_of
from shoal.fronts.messages import CallHead, Finish, decode_call, encode
from shoal.payload import Buffer
from tests.unit.fronts.wires import Wire


class FakeCall:
    """A call of a client that keeps what it is sent."""

    method, peer, timeout = "/a.B/C", "1.2.3.4:5", 2.0
    metadata: Sequence[tuple[bytes, bytes]] = ((b"k", b"v"),)

    def __init__(self) -> None:
        self.client = Client(9)
        self.writable = True
        self.sent: list[bytes] = []
        self.ends: list[tuple[Code, str, Sequence[tuple[bytes, bytes]]]] = []
        self.crashes = 0
        self.on_message: Callable[[bytes], None]
        self.on_pieces: Callable[[Fragments], None] | None = None
        self.on_end: Callable[[], None]
        self.on_gone: Callable[[], None]
        self.on_drained: Callable[[], None]

    def send(self, message: bytes, *more: Buffer) -> None:
        self.sent.append(message)

    def finish(self, code: Code = Code.OK, message: str = "", trailers: Sequence[tuple[bytes, bytes]] = ()) -> None:
        if any(name == b"bad" for name, _ in trailers):
            raise ValueError("a name that cannot travel")
        self.ends.append((code, message, list(trailers)))

    def crash(self) -> None:
        self.crashes += 1


class Front:
    def __init__(self) -> None:
        self.wire = Wire()
        self.met: list[int] = []
        self.calls = Calls(self.wire, self.met.append)
        self.call = FakeCall()
        self.calls.begin(2, self.call)


@pytest.fixture
def front() -> Iterator[Front]:
    async def make() -> Front:
        return Front()

    yield asyncio.run(make())


def test_a_unary_call_is_two_frames(front: Front) -> None:
    front.call.on_message(b"x")
    front.call.on_end()
    (kind, number, payload), last = front.wire.turn()
    assert (kind, number) == (CALL, 1)
    assert decode_call(payload) == CallHead(2, 9, "1.2.3.4:5", "", "/a.B/C", ((b"k", b"v"),), 2.0)
    assert last == (MESSAGE_END, 1, b"x")
    assert front.met == [9]


def test_a_stream_of_messages_ends_by_a_frame_of_its_own(front: Front) -> None:
    front.call.on_message(b"x")
    first = front.wire.turn()
    front.call.on_end()
    assert first[1:] == [(MESSAGE, 1, b"x")]
    assert front.wire.turn() == [(END, 1, b"")]


def test_answers_and_their_ends_reach_the_client(front: Front) -> None:
    front.calls.send(1, b"a")
    front.calls.send_last(1, b"b")
    front.calls.send(1, b"late")
    front.calls.finish(1, encode(Finish(5, "late", [])))
    assert front.call.sent == [b"a", b"b"]
    assert front.call.ends == [(Code.OK, "", [])]


def test_a_status_reaches_the_client_and_one_that_cannot_travel_is_a_crash(front: Front) -> None:
    other = FakeCall()
    front.calls.begin(2, other)
    front.calls.finish(1, encode(Finish(5, "no", [(b"a", b"b")])))
    front.calls.finish(2, encode(Finish(0, "", [(b"bad", b"")])))
    assert front.call.ends == [(Code.NOT_FOUND, "no", [(b"a", b"b")])]
    assert other.crashes == 1


def test_whoever_leaves_is_told_of_unless_its_call_is_over(front: Front) -> None:
    other = FakeCall()
    front.calls.begin(2, other)
    front.calls.send_last(2, b"")
    front.wire.turn()
    front.call.on_gone()
    front.call.on_gone()
    other.on_gone()
    assert front.wire.turn() == [(CALL_GONE, 1, b"")]


def test_the_core_is_told_of_what_a_client_took(front: Front) -> None:
    front.wire.turn()
    front.call.writable = False
    front.calls.send(1, bytes(STEP))
    assert front.wire.turn() == []
    front.call.on_drained()
    front.call.on_drained()
    ((kind, number, payload),) = front.wire.turn()
    assert (kind, number, count_of(payload)) == (CALL_TAKEN, 1, STEP)
