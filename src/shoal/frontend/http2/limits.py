"""What a client may ask of an HTTP/2 connection."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True)
class Http2Limits:
    """The limits of one listener. Sizes are bytes, times are seconds.

    Budgets come back at a rate per second, up to their size: a client may burst, and may not go on.
    """

    max_connections: int = 20_000
    max_streams: int = 1024  # calls at the same time on one connection
    max_message: int = 32 * 2**20  # of a request, after decompression too
    max_unfinished: int = 64 * 2**20  # messages still coming in, of one connection together
    max_unsent: int = 64 * 2**20  # answers its client does not take; above, it may begin no call
    max_send_buffer: int = 64 * 1024  # answers of one call waiting, above which it is not writable
    max_header_list: int = 16 * 1024  # a head, decoded, as RFC 9113 counts it
    max_header_block: int = 32 * 1024  # a head on the wire, over all its frames
    header_table: int = 4096
    frame_size: int = 64 * 1024
    stream_window: int = 2**20
    connection_window: int = 4 * 2**20
    head_timeout: float = 10.0  # the preface, and a head that comes in several frames
    message_timeout: float = 30.0  # the longest silence inside a message or a frame
    write_timeout: float = 60.0  # the client does not take what it asked for
    idle_timeout: float = 300.0  # no call at all
    ping_after: float = 60.0  # silence while calls are open, after which the client is asked whether it is there
    ping_timeout: float = 20.0
    max_age: float = 0.0  # after which a connection is asked to leave; 0: never
    max_age_grace: float = 0.0  # that its calls get then; 0: as long as they take
    reset_budget: int = 1000  # calls the client begins and cancels, or breaks
    reset_rate: float = 200.0
    idle_budget: int = 1000  # frames that carry nothing: pings, settings, priorities, empty data, unknown kinds
    idle_rate: float = 100.0

    def __post_init__(self) -> None:
        if not 2**14 <= self.frame_size < 2**24:
            raise ValueError(f"frame_size is {self.frame_size}; HTTP/2 allows 16384 to 16777215")
        for name in ("stream_window", "connection_window"):
            if not max(2**16, 2 * self.frame_size) <= getattr(self, name) < 2**31:
                raise ValueError(f"{name} is {getattr(self, name)}; it is at least two frames and below 2 GiB")

    @property
    def sweep_period(self) -> float:
        """How often the times are compared: once a second, more often when a limit is short."""
        times = (self.head_timeout, self.message_timeout, self.write_timeout, self.idle_timeout, self.ping_timeout)
        return min(1.0, min(times) / 4)
