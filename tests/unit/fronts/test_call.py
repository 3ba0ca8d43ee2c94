import asyncio
from collections.abc import Iterator

import pytest

from shoal.frontend.client import Client
from shoal.frontend.rpc import Call, Code
from shoal.fronts.call import RemoteCall
from shoal.fronts.frames import FINISH, SEND, SEND_OK, WINDOW
from shoal.fronts.messages import CallHead, Finish, decode_finish
from tests.unit.fronts.wires import Wire

HEAD = CallHead(0, 4, "1.2.3.4:5", "1.2.3.4", "/a.B/C", ((b"k", b"v"),), 2.5)


class Core:
    """A call of a front process, as its service has it."""

    def __init__(self) -> None:
        self.wire = Wire()
        self.forgotten: list[int] = []
        self.call = RemoteCall(self.wire, 3, HEAD, Client(99), self.forgotten.append)


@pytest.fixture
def core() -> Iterator[Core]:
    async def make() -> Core:
        return Core()

    yield asyncio.run(make())


def test_a_service_sees_the_call_whole(core: Core) -> None:
    call: Call = core.call
    assert (call.method, list(call.metadata), call.timeout) == ("/a.B/C", [(b"k", b"v")], 2.5)
    assert (call.peer, call.client) == ("1.2.3.4:5", 99)


def test_one_message_and_a_good_end_are_one_frame(core: Core) -> None:
    core.call.send(b"one ", b"answer")
    core.call.finish()
    core.call.send(b"too late")
    core.call.finish(Code.ABORTED)
    assert core.wire.turn() == [(SEND_OK, 3, b"one answer")]
    assert core.forgotten == [3]


def test_an_end_without_a_message_or_in_a_later_turn_or_with_words_is_its_own_frame(core: Core) -> None:
    core.call.send(b"x")
    core.wire.turn()
    core.call.finish()
    ((kind, _, payload),) = core.wire.turn()
    assert (kind, decode_finish(payload)) == (FINISH, Finish(0, "", []))


def test_a_bad_end_carries_code_words_and_trailers(core: Core) -> None:
    core.call.send(b"x")
    core.call.finish(Code.NOT_FOUND, "no", [(b"a", b"b")])
    first, (kind, _, payload) = core.wire.turn()
    assert first == (SEND, 3, b"x")
    assert (kind, decode_finish(payload)) == (FINISH, Finish(5, "no", [(b"a", b"b")]))


def test_a_stream_is_writable_until_its_window_is_full(core: Core) -> None:
    drained: list[bool] = []
    core.call.on_drained = lambda: drained.append(True)
    core.call.send(bytes(WINDOW), b"x")
    assert not core.call.writable
    core.call.taken(1)
    assert core.call.writable
    assert drained == [True]


def test_a_call_that_nobody_waits_for_is_told_once(core: Core) -> None:
    gone: list[bool] = []
    core.call.on_gone = lambda: gone.append(True)
    core.call.lost()
    core.call.lost()
    core.call.hear(b"late")
    core.call.send(b"late")
    assert gone == [True]
    assert core.wire.turn() == []
    assert core.forgotten == [3]


@pytest.mark.parametrize("where", ["begin", "hear", "hear_end"])
def test_a_service_that_fails_ends_the_call_and_hears_of_it(core: Core, where: str) -> None:
    gone: list[bool] = []

    def service(call: Call) -> None:
        def fail(*_: object) -> None:
            raise RuntimeError("no")

        call.on_message, call.on_end, call.on_gone = fail, fail, lambda: gone.append(True)
        if where == "begin":
            fail()

    core.call.begin(service)
    if where == "hear":
        core.call.hear(b"")
    elif where == "hear_end":
        core.call.hear_end()
    ((kind, _, payload),) = core.wire.turn()
    assert (kind, decode_finish(payload).code) == (FINISH, Code.UNKNOWN)
    assert gone == [True]
