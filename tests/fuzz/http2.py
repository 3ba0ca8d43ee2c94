"""HTTP/2, HPACK and gRPC framing: frames and bytes to a real connection without a socket."""

import base64
from collections.abc import Callable, Hashable
from random import Random

from shoal.frontend.http2 import huffman
from shoal.frontend.http2.frames import GOAWAY, PREFACE, RST_STREAM, SETTINGS, Fault
from shoal.frontend.http2.hpack import Decoder, encode
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.hub import Hub
from shoal.frontend.rpc import Call
from tests.fuzz.target import Finding, Witness, expect
from tests.unit.frontend.http2.fakes import HEAD, Client, data, frame, head, message, unary

LIMITS = Http2Limits(max_streams=3, max_message=1000, max_unfinished=1500, idle_budget=30, reset_budget=30)
OPEN = PREFACE + frame(SETTINGS)
SEEDS = (
    OPEN + unary(1, b"hello"),
    OPEN + unary(1, b"a") + unary(3, b"b", (b"grpc-timeout", b"1S")) + unary(5, b"c", (b"x-bin", b"AAAA")),
    OPEN
    + head(1)
    + data(1, message(b"a") + message(b"b"))
    + data(1, message(b"c")[:3])
    + data(1, message(b"c")[3:], True),
    OPEN
    + head(1, (b"grpc-encoding", b"gzip"))
    + data(1, message(b"a" * 100), True)
    + frame(RST_STREAM, 0, 1, bytes(4)),
    OPEN + frame(1, 0, 1, encode(HEAD)[:20]) + frame(9, 4, 1, encode(HEAD)[20:]) + data(1, message(b"x"), True),
    OPEN
    + frame(6, 0, 0, b"12345678")
    + frame(8, 0, 0, b"\0\0\1\0")
    + frame(SETTINGS, 0, 0, b"\0\4\0\0\0\5")
    + unary(1, b"x"),
    OPEN + frame(1, 0x2D, 1, b"\5\0\0\0\0\1" + encode(HEAD) + bytes(5)) + frame(7, 0, 0, bytes(8)),
    OPEN + head(1, is_end=True) + head(3, path=b"/t.T/None") + frame(2, 0, 3, b"\0\0\0\1\1") + frame(99, 0, 0, b"?"),
)
WORDS = (
    *(frame(SETTINGS), frame(SETTINGS, 1), frame(4, 0, 0, b"\0\4\x7f\xff\xff\xff"), frame(4, 0, 0, b"\0\1\0\0\0\0")),
    *(
        frame(6, 0, 0, bytes(8)),
        frame(6, 1, 0, bytes(8)),
        frame(8, 0, 1, b"\x7f\xff\xff\xff"),
        frame(8, 0, 0, b"\0\0\0\1"),
    ),
    *(
        frame(3, 0, 1, bytes(4)),
        frame(7, 0, 0, bytes(8)),
        frame(0, 1, 1),
        frame(0, 0, 1),
        frame(9, 4, 1),
        frame(5, 4, 1),
    ),
    *(head(1), head(3), head(5, is_end=True), head(7), unary(9, b"z"), data(1, message(b"y")), data(3, b"\0\0\0\0\5")),
    *(
        b"\0\0\0",
        b"\0\0\5",
        b"\1",
        b"\4",
        b"\5",
        b"\xff\xff",
        b"\x3f\xe1\x1f",
        b"\x20",
        b"\x40",
        b"\x82",
        b"\xbe",
        b"\xff\x80",
    ),
)


class Http2:
    """One connection for each input."""

    name = "http2"
    share = 180
    seeds = SEEDS
    words = WORDS

    def __init__(self) -> None:
        self._witness = Witness("shoal.http2")
        self._later: list[Callable[[], None]] = []
        self._hub = Hub(now=1000.0, soon=self._later.append)

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Feed it in pieces and end it; every call ends once and nothing is kept."""
        service = Service()
        self._later.clear()
        client = Client(service, LIMITS, is_open=False, hub=self._hub)
        client.later = self._later
        cuts = sorted(random.randrange(len(data) + 1) for _ in range(random.choice((0, 0, 1, 3))))
        for begin, end in zip([0, *cuts], [*cuts, len(data)], strict=True):
            if begin < end and client.is_alive:
                client.send(data[begin:end])
                client.turn()
        frames = client.frames() if data.startswith(PREFACE) else []
        kinds = tuple(sorted({found.kind for found in frames}))
        if any(found.kind == GOAWAY and found.payload[4:8] != bytes(4) for found in frames):
            expect(not client.is_alive, "a farewell for a fault leaves the connection open")
        client.clock.move(5)
        for _ in range(8):
            client.hub.sweep(client.hub.now + 100)
        client.turn()
        expect(not client.is_alive, "a silent client may stay for ever")
        client.connection.connection_lost(None)
        self._witness.check()
        ended = len(client.gone) + len(service.finished)
        expect(ended == len(client.calls), f"{len(client.calls)} calls began and {ended} ended")
        expect(service.late == 0, "a call heard a message after its end")
        expect(client.connection._calls == {}, "a call is kept")
        expect(client.connection._queued == client.connection._unfinished == 0, "bytes are still counted")
        expect(client.hub.budget.used == 0, "memory of a message is still owed")
        return kinds, len(client.calls), len(service.finished)


class Service:
    """Answers each message at once, at length."""

    def __init__(self) -> None:
        self.finished: set[int] = set()
        self.late = 0
        self._calls = 0

    def __call__(self, call: Call) -> None:
        number, self._calls = self._calls, self._calls + 1

        def hear(text: bytes) -> None:
            self.late += number in self.finished
            call.send(text * 50)

        def end() -> None:
            self.late += number in self.finished
            self.finished.add(number)
            call.finish()

        call.on_message = hear
        call.on_end = end


class Hpack:
    """Header blocks to a decoder that lives on from block to block, as on a connection."""

    name = "hpack"
    share = 120
    seeds = (
        encode(HEAD),
        bytes.fromhex("828684410f7777772e6578616d706c652e636f6d"),
        bytes.fromhex("828684418cf1e3c2e5f23a6ba0ab90f4ff"),
        bytes.fromhex("828684be58086e6f2d6361636865"),
        bytes.fromhex("400a637573746f6d2d6b65790d637573746f6d2d686561646572"),
        b"\x3f\xe1\x1f\x82" + encode([(b"a", b"b" * 200)]),
    )
    words = (
        b"\x20",
        b"\x3f\xe1\x1f",
        b"\x40",
        b"\x00",
        b"\x10",
        b"\x82",
        b"\xbe",
        b"\xbf",
        b"\xff\x00",
        b"\x7f",
        b"\x8c\xf1",
    )

    def __init__(self) -> None:
        self._decoder = Decoder(4096, 16 * 1024)
        self._uses = 0

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Decode it; the table never outgrows its limit."""
        self._uses += 1
        if self._uses % 20 == 0:
            self._decoder = Decoder(4096, 16 * 1024)
        try:
            fields = self._decoder.decode(data)
        except Fault as fault:
            self._decoder = Decoder(4096, 16 * 1024)
            return str(fault)
        decoder = self._decoder
        expect(
            decoder._size <= decoder._limit <= 4096, f"a table of {decoder._size} bytes, {decoder._limit} are allowed"
        )
        expect(decoder._size == sum(len(a) + len(b) + 32 for a, b in decoder._entries), "the table is not as it says")
        if fields is None:
            return None
        expect(sum(len(a) + len(b) + 32 for a, b in fields) <= 16 * 1024, "a head larger than allowed")
        if any(b"\r" in part or b"\n" in part or b"\0" in part for field in fields for part in field):
            raise Finding(f"a line end in {fields}")
        return len(fields), decoder.changes > 0


class Huffman:
    """Strings in Huffman's code."""

    name = "huffman"
    share = 20
    seeds = (bytes.fromhex("f1e3c2e5f23a6ba0ab90f4ff"), base64.b64decode("nSmt"), b"\xff\xff\xff\xfc", b"\0" * 8)
    words = (b"\xff\xff\xff\xff", b"\xfe", b"\x7f")

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Decode it: text no longer than the code allows, or refused."""
        try:
            text = huffman.decode(data)
        except huffman.BadHuffman as error:
            return str(error)
        expect(len(text) <= len(data) * 8 // 5, "more letters than there are codes")
        return len(text) > len(data)
