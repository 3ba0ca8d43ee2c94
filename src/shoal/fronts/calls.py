"""Calls: what a front process has in the place of gRPC services: messages go to the core, answers come back."""

import itertools
from collections.abc import Callable
from functools import partial
from typing import Protocol

from shoal.frontend.rpc import Call, Code
from shoal.fronts import frames
from shoal.fronts.channel import Channel
from shoal.fronts.frames import CALL, MESSAGE, MESSAGE_END, STEP, pack_count
from shoal.fronts.messages import CallHead, decode_finish, encode


class Crashing(Call, Protocol):
    """A call of our own HTTP/2 connection."""

    on_drained: Callable[[], None]

    def crash(self) -> None:
        """End it: what its service said cannot be sent."""
        ...


class Calls:
    """The calls that are with the core, by number."""

    def __init__(self, channel: Channel, meet: Callable[[int], None]) -> None:
        self._channel = channel
        self._meet = meet  # hears whose calls the core is told of
        self._numbers = itertools.count(1)
        self._calls: dict[int, Crashing] = {}
        self._passed: dict[int, int] = {}  # bytes of answers that the core was not told of

    # The connections' side

    def begin(self, place: int, call: Crashing) -> None:
        """Hand a call to the core."""
        number = next(self._numbers)
        self._calls[number] = call
        self._meet(call.client)
        put = self._channel.put
        address = getattr(call.client, "address", "")
        head = CallHead(place, int(call.client), call.peer, address, call.method, tuple(call.metadata), call.timeout)
        put(CALL, number, encode(head))
        call.on_message = partial(put, MESSAGE, number)
        call.on_end = partial(self._end, number)
        call.on_gone = partial(self._gone, number)
        call.on_drained = partial(self._tell, number)

    def _end(self, number: int) -> None:
        if self._channel.is_last(number, MESSAGE):
            self._channel.end(number, MESSAGE, MESSAGE_END)
        else:
            self._channel.put(frames.END, number)

    def _gone(self, number: int) -> None:
        self._passed.pop(number, None)
        if self._calls.pop(number, None) is not None:
            self._channel.put(frames.CALL_GONE, number)

    # The core's side

    def send(self, number: int, message: bytes) -> None:
        """Pass on a message, and tell the core of it when the client can take more."""
        call = self._calls.get(number)
        if call is None:
            return
        passed = self._passed[number] = self._passed.get(number, 0) + len(message)
        call.send(message)
        if passed >= STEP and call.writable:
            self._tell(number)

    def _tell(self, number: int) -> None:
        if passed := self._passed.get(number):
            self._passed[number] = 0
            self._channel.put(frames.CALL_TAKEN, number, pack_count(passed))

    def send_last(self, number: int, message: bytes) -> None:
        """Pass on the last message of a call that ends well."""
        call = self._pop(number)
        if call is not None:
            call.send(message)
            call.finish()

    def finish(self, number: int, payload: bytes) -> None:
        """Pass on how a call ends."""
        call = self._pop(number)
        if call is not None:
            status = decode_finish(payload)
            try:
                call.finish(Code(status.code), status.message, status.trailers)
            except ValueError:
                call.crash()

    def _pop(self, number: int) -> Crashing | None:
        if self._passed:
            self._passed.pop(number, None)
        return self._calls.pop(number, None)
