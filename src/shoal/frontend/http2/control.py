"""The frames that are about the connection, not about a call: settings, pings, windows, resets, farewells."""

from struct import Struct
from typing import Final

from shoal.frontend.http2.budget import Budget
from shoal.frontend.http2.call import Http2Call
from shoal.frontend.http2.flow import Outgoing
from shoal.frontend.http2.frames import (
    ACK,
    DEFAULT_FRAME,
    DEFAULT_WINDOW,
    ENABLE_PUSH,
    HEADER_TABLE_SIZE,
    INITIAL_WINDOW_SIZE,
    LARGEST,
    MAX_FRAME_SIZE,
    SETTINGS_ACK,
    ErrorCode,
    Fault,
    ping,
    rst_stream,
)
from shoal.frontend.http2.hpack import Decoder
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.http2.served import run
from shoal.frontend.hub import Hub

MAX_SETTINGS: Final = 64  # in one frame
MAX_SENT: Final = 256 * 1024  # bytes of one frame of ours, whatever the client takes: others wait behind it
DEFAULT_TABLE: Final = 4096
FAREWELL: Final = b"farewell"  # the ping whose answer says that no call is under way to a draining server
ARE_YOU_THERE: Final = b"presence"

_setting_at: Final = Struct(">HI").unpack_from
_number_at: Final = Struct(">I").unpack_from


class Control(Outgoing):
    """The connection's own frames, as they come in."""

    __slots__ = (
        *("_decoder", "_has_farewell", "_has_resized", "_idle_budget", "_initial_window"),
        *("_is_leaving", "_last", "_reset_budget"),
    )

    def __init__(self, limits: Http2Limits, hub: Hub) -> None:
        super().__init__(limits, hub)
        self._decoder = Decoder(limits.header_table, limits.max_header_list)
        self._initial_window = DEFAULT_WINDOW  # what the client gives each stream to send
        self._has_resized = False
        self._last = 0  # the newest stream
        self._has_farewell = False  # the client was asked to begin no call here
        self._is_leaving = False  # no call begins here any more; the connection ends with the last one
        self._reset_budget = Budget(limits.reset_budget, limits.reset_rate, hub.now)
        self._idle_budget = Budget(limits.idle_budget, limits.idle_rate, hub.now)

    def _on_settings(self, data: bytes, at: int, end: int, flags: int, stream: int) -> None:
        _check(stream == 0, "SETTINGS belong to no stream")
        if flags & ACK:
            _check_size(at == end, "an answered SETTINGS is empty")
            return
        _check_size((end - at) % 6 == 0, "a setting is six bytes")
        if end - at > 6 * MAX_SETTINGS:
            raise Fault(ErrorCode.ENHANCE_YOUR_CALM, f"more than {MAX_SETTINGS} settings in one frame")
        self._spend_idle()
        for place in range(at, end, 6):
            self._set(*_setting_at(data, place))
        self.put(SETTINGS_ACK)
        self.pump()

    def _set(self, name: int, value: int) -> None:
        if name == INITIAL_WINDOW_SIZE:
            if value > LARGEST:
                raise Fault(ErrorCode.FLOW_CONTROL_ERROR, f"an initial window of {value} is above {LARGEST}")
            change, self._initial_window = value - self._initial_window, value
            for call in self._calls.values():
                call._window += change
                if call._window > LARGEST:
                    raise Fault(ErrorCode.FLOW_CONTROL_ERROR, f"the window of a stream is above {LARGEST}")
                self._set_ready(call)
        elif name == MAX_FRAME_SIZE:
            _check(DEFAULT_FRAME <= value < 2**24, f"a largest frame of {value} is not 16384 to 16777215")
            self.frame_size = min(value, MAX_SENT)
        elif name == ENABLE_PUSH:
            _check(value <= 1, f"ENABLE_PUSH is {value}; 0 and 1 are known")
        elif name == HEADER_TABLE_SIZE and value < DEFAULT_TABLE and not self._has_resized:
            self._has_resized = self.must_resize = True

    def _on_ping(self, data: bytes, at: int, end: int, flags: int, stream: int) -> None:
        _check(stream == 0, "PING belongs to no stream")
        _check_size(end - at == 8, "a PING is eight bytes")
        self._spend_idle()
        if not flags & ACK:
            self.put(ping(data[at:end], True))
        elif self._has_farewell and data[at:end] == FAREWELL:
            self._leave()

    def _on_goaway(self, data: bytes, at: int, end: int, flags: int, stream: int) -> None:
        _check(stream == 0, "GOAWAY belongs to no stream")
        _check_size(end - at >= 8, "a GOAWAY is eight bytes or more")
        self._spend_idle()
        self._leave()

    def _on_window_update(self, data: bytes, at: int, end: int, flags: int, stream: int) -> None:
        _check_size(end - at == 4, "a WINDOW_UPDATE is four bytes")
        increment = _number_at(data, at)[0] & LARGEST
        if not stream:
            _check(increment > 0, "a WINDOW_UPDATE widens by nothing")
            self.window += increment
            if self.window > LARGEST:
                raise Fault(ErrorCode.FLOW_CONTROL_ERROR, f"the connection's window is above {LARGEST}")
            self.pump()
            return
        call = self._calls.get(stream)
        if call is None:
            _check(stream <= self._last, "a WINDOW_UPDATE for a stream that never was")
            return
        call._window += increment
        if not increment:
            self._break(stream, ErrorCode.PROTOCOL_ERROR)
        elif call._window > LARGEST:
            self._break(stream, ErrorCode.FLOW_CONTROL_ERROR)
        elif call._unsent:
            self._set_ready(call)
            self.pump()

    def _on_rst_stream(self, data: bytes, at: int, end: int, flags: int, stream: int) -> None:
        _check_size(end - at == 4, "a RST_STREAM is four bytes")
        _check(0 < stream <= self._last, "a RST_STREAM for a stream that never was")
        call = self._calls.get(stream)
        if call is not None:
            call._is_ended = True
            if call._stamp == self.hub.now:  # one that was cancelled as soon as it began
                self._spend_reset()
            self._drop(call)

    def _on_priority(self, data: bytes, at: int, end: int, flags: int, stream: int) -> None:
        _check(stream > 0, "PRIORITY belongs to a stream")
        _check_size(end - at == 5, "a PRIORITY is five bytes")
        self._check_dependency(data, at, stream)
        self._spend_idle()

    def _check_dependency(self, data: bytes, at: int, stream: int) -> None:
        _check(_number_at(data, at)[0] & LARGEST != stream, f"stream {stream} depends on itself")

    def _on_push_promise(self, data: bytes, at: int, end: int, flags: int, stream: int) -> None:
        raise Fault(ErrorCode.PROTOCOL_ERROR, "a client promises nothing")

    def _on_unknown(self, data: bytes, at: int, end: int, flags: int, stream: int) -> None:
        self._spend_idle()

    # Ends

    def _break(self, stream: int, code: ErrorCode) -> None:
        """End a stream whose client broke a rule."""
        self.put(rst_stream(stream, code))
        self._spend_reset()
        call = self._calls.get(stream)
        if call is not None:
            self._drop(call)

    def _drop(self, call: Http2Call) -> None:
        """A call is cancelled: forget it and tell its service."""
        on_gone, was_over = call.on_gone, call.is_over
        call.is_over = True
        if not was_over:
            self.over(call)
        self._off(call)
        if not was_over:
            run(on_gone)

    def over(self, call: Http2Call) -> None:
        """The service is done with a call."""
        raise NotImplementedError

    def _off(self, call: Http2Call) -> None:
        """A call leaves the connection."""
        raise NotImplementedError

    def _leave(self) -> None:
        """Close when the last call is through."""
        raise NotImplementedError

    # Floods

    def _spend_reset(self) -> None:
        if not self._reset_budget.spend(self.hub.now):
            raise Fault(ErrorCode.ENHANCE_YOUR_CALM, "too many calls are begun and broken off")

    def _spend_idle(self) -> None:
        if not self._idle_budget.spend(self.hub.now):
            raise Fault(ErrorCode.ENHANCE_YOUR_CALM, "too many frames carry nothing")


def _check(is_fine: bool, message: str) -> None:
    if not is_fine:
        raise Fault(ErrorCode.PROTOCOL_ERROR, message)


def _check_size(is_fine: bool, message: str) -> None:
    if not is_fine:
        raise Fault(ErrorCode.FRAME_SIZE_ERROR, message)
