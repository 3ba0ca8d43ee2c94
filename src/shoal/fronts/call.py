"""The core's end of a gRPC call that a front process has."""

from collections.abc import Callable, Sequence

from shoal.frontend.client import Client
from shoal.frontend.http2.served import ServedCall, run
from shoal.frontend.rpc import Code, Service
from shoal.fronts.channel import Channel
from shoal.fronts.frames import FINISH, SEND, SEND_OK, WINDOW
from shoal.fronts.messages import CallHead, Field, Finish, encode
from shoal.payload import Buffer


class RemoteCall(ServedCall):
    """One call, as `rpc.Call` says. Its deadline is kept by the front process, which tells when nobody waits."""

    __slots__ = ("_channel", "_forget", "_has_sent", "_number", "_under_way")

    def __init__(
        self, channel: Channel, number: int, head: CallHead, client: Client, forget: Callable[[int], object]
    ) -> None:
        super().__init__(head, client, head.peer)
        self._channel = channel
        self._number = number
        self._forget = forget
        self._has_sent = False
        self._under_way = 0  # bytes that the client has not taken

    # The service's side

    @property
    def writable(self) -> bool:
        """Whether more may be sent now."""
        return not (self.is_over or self._under_way > WINDOW or self._channel.blocked)

    def send(self, message: bytes, *more: Buffer) -> None:
        """Send one message, which may come in several pieces; nothing once the call is over."""
        if not self.is_over:
            self._has_sent = True
            self._under_way += len(message) + (sum(map(len, more)) if more else 0)
            self._channel.put(SEND, self._number, message, *more)

    def finish(self, code: Code = Code.OK, message: str = "", trailers: Sequence[Field] = ()) -> None:
        """End the call; nothing if it is over."""
        if self.is_over:
            return
        if code == 0 and self._has_sent and not message and not trailers and self._channel.is_last(self._number, SEND):
            self._channel.end(self._number, SEND, SEND_OK)
        else:
            self._channel.put(FINISH, self._number, encode(Finish(int(code), message, list(trailers))))
        self._over()

    # The front process's side

    def begin(self, service: Service) -> None:
        """Hand the call to its service."""
        self._let(service, self)

    def hear(self, message: bytes) -> None:
        """A message of the client."""
        self._let(self.on_message, message)

    def hear_end(self) -> None:
        """The client will send no more."""
        self._let(self.on_end)

    def taken(self, size: int) -> None:
        """The client took so many bytes."""
        was_writable = self.writable
        self._under_way = max(0, self._under_way - size)
        if not was_writable:
            self.drained()

    def drained(self) -> None:
        """Somebody caught up: tell the service where more may be sent now."""
        if self.writable:
            run(self.on_drained)

    def lost(self) -> None:
        """Nobody waits any more."""
        if self.is_over:
            return
        on_gone = self.on_gone
        self._over()
        run(on_gone)

    def _let(self, callback: Callable[..., None], *given: object) -> None:
        try:
            callback(*given)
        except Exception:  # a defect of the service, whatever it is: its call ends, the channel of all others goes on
            self.crash()

    def _over(self) -> None:
        self.deafen()
        self._forget(self._number)
