"""The request that is coming in on a connection: what the parser says, what is allowed, and where the body goes.

The parser (llhttp) says what the bytes mean. This file refuses what is ambiguous, too large or not spoken here, by
raising `Refused` inside the parser's callbacks, and fills an `Exchange`. It writes nothing but the interim 100, knows
no transport and no time but the hub's; `http.py` feeds it and acts on the phase it leaves behind.
"""

import re
from collections.abc import Callable, Iterable
from typing import Final, cast

import httptools

from shoal.frontend.client import NOBODY
from shoal.frontend.exchange import Exchange
from shoal.frontend.hub import HttpLimits, Hub
from shoal.frontend.known import LONGEST, Known
from shoal.frontend.noted import CONNECTION, HOST, ID, KEPT, LENGTH, NOTED, OTHERWISE, TIMEOUT, TRANSFER, TYPE, UNSAID
from shoal.frontend.phase import BODY, CHUNKED, HEAD, IDLE, READY, SINK
from shoal.payload import Block, Buffer

Lend = Callable[[int], Block | None]

MAX_TARGET: Final = 16 * 1024
MIN_RATE: Final = 8 * 1024  # bytes per second of a body, on average, after the first body_timeout
CHUNK_FRAMING: Final = 16  # what a chunk's own size line and line ends may take
CONTINUE: Final = b"HTTP/1.1 100 Continue\r\n\r\n"
MAX_STRANGE: Final = 16
METHODS: Final = {m.encode(): m for m in ("GET", "HEAD", "POST", "PUT", "DELETE", "OPTIONS", "PATCH")}

_BLANK_LINE: Final = b"\r\n\r\n"
_PRIMER: Final = b"POST / HTTP/1.1\r\nHost: x\r\nTransfer-Encoding: chunked\r\n\r\n"
SPENT: Final = httptools.HttpRequestParser(object())  # of connections that are gone
_sane_id = re.compile(rb"[\x21-\x7e]{1,128}").fullmatch


class Refused(Exception):
    """The request ends here, with this status."""

    def __init__(self, status: int, message: str) -> None:
        super().__init__(message)
        self.status = status


class Incoming:
    """The receiving half of a connection."""

    __slots__ = (
        "_block",
        "_body_start",
        "_chunks",
        "_client",
        "_collected",
        "_exchange",
        "_expect",
        "_filled",
        "_head_size",
        "_hosts",
        "_is_parsing",
        "_known",
        "_lend",
        "_length",
        "_limits",
        "_missing",
        "_owed",
        "_parser",
        "_peer",
        "_phase",
        "_said",
        "_sink",
        "_strange",
        "_tail",
        "_transfer",
        "_wire",
        "blocked",
        "deadline",
        "hub",
        "send",
        "send_all",
    )

    deadline: float
    blocked: bool
    send: Callable[[bytes], None]
    send_all: Callable[[Iterable[Buffer]], None]

    def __init__(self, limits: HttpLimits, lend: Lend, hub: Hub) -> None:
        self._limits = limits
        self._lend = lend
        self.hub = hub
        self._phase = IDLE
        self._exchange: Exchange | None = None
        self._parser = httptools.HttpRequestParser(self)
        self._client = NOBODY
        self._peer = ""
        self._head_size = 0  # bytes of a head that came in pieces
        self._tail = b""  # the last three bytes of such a piece: a blank line may be cut
        self._hosts = 0
        self._said = UNSAID  # what the headers said about the connection
        self._is_parsing = False  # the parser has seen the head, and waits for the body
        self._length = -1
        self._transfer = self._expect = b""
        self._known: Known | None = None
        self._strange = 0  # heads in a row that were not the one known; after many, none is remembered any more
        self._missing = 0  # bytes of a small body still to come
        self._chunks = self._wire = 0
        self._collected = bytearray()  # a chunked body
        self._sink: memoryview | None = None  # the place of a large body,
        self._filled = 0  # how much of it is there,
        self._block: Block | None = None  # and the lent memory it is in, if any was to be had
        self._body_start = 0.0
        self._owed = 0  # bytes of the hub's budget that this request's body has

    def answered(self, keep: bool) -> None:
        """The answer is complete."""
        raise NotImplementedError

    def abort(self) -> None:
        """Cut the connection."""
        raise NotImplementedError

    # Feeding

    def _stop(self, raw: bytes | bytearray, start: int, size: int) -> int:
        """How far the parser may see: to the next blank line, which ends every head and every chunked body."""
        if self._tail:
            at = (self._tail + raw[start : min(start + 3, size)]).find(_BLANK_LINE)
            if at >= 0:
                stop = start + at + 4 - len(self._tail)
                self._tail = b""
                return stop
        at = raw.find(_BLANK_LINE, start, size)
        if at >= 0:
            self._tail = b""
            return at + 4
        self._tail = (self._tail + raw[max(start, size - 3) : size])[-3:]
        return size

    def _feed(self, piece: memoryview) -> None:
        """Let the parser see a piece that ends no later than its message; raises `Refused`."""
        try:
            self._parser.feed_data(piece)
        except httptools.HttpParserUpgrade:
            self._decline_upgrade()
        except httptools.HttpParserCallbackError as error:
            raise error.__context__ or error from None
        except httptools.HttpParserInvalidMethodError:
            raise Refused(501, f"the method is not one of {', '.join(METHODS.values())}") from None
        except httptools.HttpParserError as error:
            if self._parser.get_method() == b"PRI":
                raise Refused(505, "HTTP/2 is not spoken here; HTTP/1.1 is") from None
            raise Refused(400, f"the request is malformed: {error}") from None

    def _decline_upgrade(self) -> None:
        """The parser stops at an upgrade. We do not switch: the request is an ordinary one, with its body if any."""
        self._parser = httptools.HttpRequestParser(self)
        if self._length > 0:
            self._phase = SINK
        elif self._transfer:
            self._phase = CHUNKED  # the primer puts the new parser where the old one stopped; no callback minds it
            self._parser.feed_data(_PRIMER)

    def _count_head(self, taken: int) -> None:
        if not self._head_size:
            self.deadline = self.hub.now + self._limits.head_timeout
        self._head_size += taken
        if self._head_size >= self._limits.max_head:
            raise Refused(431, f"the request's head is larger than {self._limits.max_head} bytes")

    def _count_wire(self, taken: int) -> None:
        """Bound what a chunked body carries besides its data: extensions and trailers."""
        self._wire += taken
        if self._wire - len(self._collected) - CHUNK_FRAMING * self._chunks > self._limits.max_head:
            raise Refused(431, f"chunk extensions and trailers are larger than {self._limits.max_head} bytes")

    def _stamp_body(self) -> None:
        """A body may be silent for a while, and must keep a minimum average besides."""
        if self._phase == CHUNKED:
            received = len(self._collected)
        else:
            received = self._filled if self._phase == SINK else self._length - self._missing
        self.deadline = min(self.hub.now, self._body_start + received / MIN_RATE) + self._limits.body_timeout

    # Heads that repeat themselves

    def _remember(self, head: bytes) -> None:
        """Keep a whole head that was just judged, if it is a plain one."""
        exchange = self._exchange
        assert exchange is not None
        self._strange += 1
        if (
            len(head) <= LONGEST
            and self._said != OTHERWISE
            and exchange._keep
            and not (self._transfer or self._expect or exchange._old or exchange._is_head)
        ):
            known = Known(head, max(0, self._length), exchange)
            self._known = self.hub.heads.share(known) if self._known is None else known

    def _repeat(self, known: Known, body: bytes) -> None:
        """Make the exchange of a request whose head is known."""
        self._strange = 0
        exchange = self._exchange = Exchange(self, self._client, self._peer, known.target)
        exchange.method = known.method
        exchange.headers = known.headers
        exchange.content_type = known.content_type
        exchange.request_id = known.request_id
        exchange.timeout = known.timeout
        exchange._keep = not self.hub.draining
        exchange.body = body
        self._phase = READY

    def _repeat_large(self, known: Known, view: memoryview, start: int, size: int) -> int:
        """The same where the body is large, and perhaps not whole; says how far it goes."""
        self._repeat(known, b"")
        self._length, self._transfer, self._is_parsing = known.length, b"", False
        self._expect_body()
        return self._open_sink(view, start, size)

    # The parser's callbacks

    def on_url(self, url: bytes) -> None:
        """A message begins, or its target goes on."""
        if self._phase == IDLE:
            self._phase = HEAD
            self._exchange = Exchange(self, self._client, self._peer, url)
            self._hosts = 0
            self._is_parsing = True
            self._said = UNSAID
            self._length = -1
            self._transfer = self._expect = b""
        elif self._phase == HEAD and self._exchange is not None:
            url = self._exchange.target = self._exchange.target + url
        if len(url) > MAX_TARGET:
            raise Refused(414, f"the request's target is longer than {MAX_TARGET} bytes")

    def on_header(self, name: bytes, value: bytes) -> None:
        """Keep a header, and note those that matter here."""
        exchange = self._exchange
        if self._phase != HEAD or exchange is None:
            return  # a trailer: nobody asked for it, and it may not pose as a header
        exchange.headers.append((name, value))
        noted = NOTED.get(name.lower())
        if noted is None:
            return
        if noted == HOST:
            self._hosts += 1
        elif noted == LENGTH:
            self._length = int(value)  # digits, and only one such header: the parser saw to it
        elif noted == TYPE:
            exchange.content_type = value.strip()
        elif noted == ID:
            value = value.strip()
            exchange.request_id = value if _sane_id(value) else b""
        elif noted == CONNECTION:
            self._said = max(self._said, KEPT if value.strip().lower() == b"keep-alive" else OTHERWISE)
        elif noted == TIMEOUT:
            exchange.timeout = value.strip()
        elif noted == TRANSFER:
            self._transfer = value.strip().lower()
        else:
            self._expect = value.strip().lower() or b"nothing"

    def on_headers_complete(self) -> None:
        """Judge the head, and decide how the body will come in."""
        exchange = self._exchange
        if self._phase != HEAD or exchange is None:
            return  # the primer
        parser, limits = self._parser, self._limits
        method = METHODS.get(parser.get_method())
        if method is None:
            raise Refused(501, f"the method is not one of {', '.join(METHODS.values())}")
        exchange.method = method
        if method == "HEAD":
            exchange._is_head = True
        keep = parser.should_keep_alive()
        # Only HTTP/1.1 keeps a connection unasked; asking the parser for the version costs ten times as much.
        if self._said or not keep or self._hosts != 1:
            self._judge_version(exchange, parser.get_http_version())
        if len(exchange.headers) > limits.max_headers:
            raise Refused(431, f"the request has more than {limits.max_headers} headers")
        exchange._keep = keep and not self.hub.draining
        self._phase = BODY
        if self._length > 0 or self._transfer:
            self._expect_body()
        if self._expect:
            self._judge_expectation(exchange)

    def on_chunk_header(self) -> None:
        """Another chunk; its framing is allowed for."""
        self._chunks += 1

    def on_body(self, data: bytes) -> None:
        """A piece of a body that is small, or whose length is not known."""
        exchange = self._exchange
        assert exchange is not None
        if self._phase == BODY:
            exchange.body = data if not exchange.body else cast(bytes, exchange.body) + data
            return
        self._collected += data
        size = len(self._collected)
        if size > self._limits.max_body:
            raise Refused(413, f"the body is larger than the {self._limits.max_body} bytes allowed")
        if size > self._limits.inline_body + self._owed:
            self._owe(max(size, 2 * self._owed) - self._owed)  # in steps as large as what is there

    def on_message_complete(self) -> None:
        """The request is whole; it is dispatched when the parser has returned."""
        if self._phase == CHUNKED and self._exchange is not None:
            self._exchange.body = self._gather()
        self._phase = READY

    # Judgements

    def _judge_version(self, exchange: Exchange, version: str) -> None:
        if version not in ("1.0", "1.1"):
            raise Refused(505, f"HTTP/{version} is not spoken here; HTTP/1.1 and HTTP/1.0 are")
        exchange._old = version == "1.0"
        if self._hosts > 1 or (self._hosts == 0 and not exchange._old):
            raise Refused(400, f"a request has exactly one Host header; this one has {self._hosts}")
        if exchange._old and self._transfer:
            raise Refused(400, "HTTP/1.0 has no Transfer-Encoding")

    def _expect_body(self) -> None:
        length, limits = self._length, self._limits
        if length > limits.max_body:
            raise Refused(413, f"the body of {length} bytes is larger than the {limits.max_body} allowed")
        if self._transfer and self._transfer != b"chunked":
            raise Refused(501, "the only Transfer-Encoding understood here is chunked")
        self._body_start = self.hub.now
        self._missing = length
        self._filled = self._chunks = self._wire = 0
        if self._transfer:
            self._phase = CHUNKED
        elif length > limits.inline_body:
            self._phase = SINK

    def _judge_expectation(self, exchange: Exchange) -> None:
        if exchange._old:
            return
        if self._expect != b"100-continue":
            raise Refused(417, "the only expectation understood here is 100-continue")
        if self._length > 0 or self._transfer:
            self.send(CONTINUE)

    # Large bodies

    def _open_sink(self, view: memoryview, start: int, size: int) -> int:
        """Make the place of a large body, with what has come in already, maybe all; says how far that was."""
        length = self._length
        self._block = self._lend(length) if length > self._limits.inline_body else None
        if self._block is None:
            self._owe(length)
        self._sink = memoryview(bytearray(length)) if self._block is None else self._block.view[:length]
        stop = min(size, start + length)
        self._filled = stop - start
        self._sink[: self._filled] = view[start:stop]
        if self._filled == length:
            self._close_sink()
            self._phase = READY
        return stop

    def _close_sink(self) -> None:
        """The large body is there: hand it over."""
        assert self._exchange is not None and self._sink is not None
        self._exchange.body = bytes(self._sink) if self._block is None else self._block
        self._sink = self._block = None
        if self._is_parsing:
            self._parser = httptools.HttpRequestParser(self)  # the old one still waits for this body

    def _gather(self) -> bytes | Block:
        """A chunked body in one piece."""
        collected, self._collected = self._collected, bytearray()
        block = self._lend(len(collected)) if len(collected) > self._limits.inline_body else None
        if block is None:
            return bytes(collected)
        block.view[: len(collected)] = collected
        self._repay()
        return block

    def _owe(self, size: int) -> None:
        """Take memory for a body that is not in the shared one; raises `Refused` where there is none."""
        if not self.hub.budget.take(size):
            raise Refused(503, "request bodies take as much memory as they may; try again")
        self._owed += size

    def _repay(self) -> None:
        """The body is not kept here any more."""
        self.hub.budget.give_back(self._owed)
        self._owed = 0

    def _drop_body(self) -> None:
        """The body will never be whole."""
        if self._owed:
            self._repay()
        self._sink = None
        self._collected = bytearray()
        if self._block is not None:
            self._block.release()
            self._block = None
