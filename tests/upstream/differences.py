"""Where Shoal answers otherwise than upstream on purpose. Each entry says why, and must still be true."""

from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Any

from tests.upstream.compare import Mismatch


@dataclass(frozen=True)
class Difference:
    """Answers that differ: which rows (server/run/row), which values of them, and the reason."""

    rows: str  # a shell pattern, as `values` is
    values: str
    reason: str
    change: tuple[Any, Any] | None = None  # this value for that one; None for any

    def covers(self, row: str, mismatch: Mismatch) -> bool:
        """Whether this is what was meant."""
        is_meant = self.change is None or self.change == (mismatch.expected, mismatch.got)
        return is_meant and fnmatchcase(row, self.rows) and fnmatchcase(mismatch.path, self.values)


OWN_FIELDS = "the description says more: the state, its error and traceback, and what batching and faults did"
ADAPTIVE = "who sets no batch size gets adaptive batching, and the description shows its limits"
CAUSE = "the message goes on and says why, which upstream tells its log alone"
OPEN = "HTTP/1.1 connections stay open unless they are said to close, after an error too: nobody has to connect again"
ONE_CONTEXT = "the context of both servers is one: a model of MMS has settings too, and they are empty"
DOCUMENT = "the description lists the routes that are there"
SEQUENCES = "sequence batching is not there yet: requests of a sequence are served like others"
FIXED = "a defect upstream: no client can depend on it, and the right answer is given instead"

DIFFERENCES: tuple[Difference, ...] = (
    Difference("*", "*.headers.date", "HTTP asks a server with a clock for it; nothing upstream reads it"),
    Difference("*", "*.headers.server-timing", "Shoal says where the time went; a header more harms no client"),
    Difference("*", "*.headers.retry-after", "a client that is turned away with 503 is told when to come back"),
    Difference("*", "*.headers.allow", "HTTP asks for it beside a 405, and OPTIONS is where clients look for it"),
    Difference("*", "*.headers.connection", OPEN),
    Difference("*", "*.closed", OPEN),
    Difference("*", "0.*.[0-9].state", OWN_FIELDS),
    Difference("*", "0.*.[0-9].error", OWN_FIELDS),
    Difference("*", "0.*.[0-9].traceback", OWN_FIELDS),
    Difference("*", "0.*.[0-9].batching", OWN_FIELDS),
    Difference("*", "0.*.[0-9].faults", OWN_FIELDS),
    Difference("*", "0.*.[0-9].secondsInState", OWN_FIELDS),
    Difference("*", "0.*.workers.[0-9].secondsInStatus", OWN_FIELDS),
    Difference("*", "0.*.workers.[0-9].secondsAtBatch", OWN_FIELDS),
    Difference("*", "0.*.workers.[0-9].answered", OWN_FIELDS),
    Difference("*", "0.*.workers.[0-9].restarts", OWN_FIELDS),
    Difference("*", "0.*.workers.[0-9].lastError", OWN_FIELDS),
    Difference("*", "0.*.[0-9].batchSize", ADAPTIVE, (1, 256)),
    Difference("*", "0.*.[0-9].maxBatchDelay", ADAPTIVE, (100, 0)),
    Difference("mms/*", "0.body.state", OWN_FIELDS),
    Difference("mms/*", "0.body.error", OWN_FIELDS),
    Difference("mms/*", "0.body.traceback", OWN_FIELDS),
    Difference("mms/*", "0.body.workers.[0-9].pid", OWN_FIELDS),
    Difference("mms/*", "0.body.batchSize", ADAPTIVE, (1, 256)),
    Difference("mms/*", "0.body.maxBatchDelay", ADAPTIVE, (100, 0)),
    Difference("*/describe *own words", "0.reason", "upstream leaves the phrase out here alone; nobody reads it"),
    Difference("*/the net describes itself", "0.reason", "upstream leaves the phrase out here alone; nobody reads it"),
    Difference("*/a body *too large", "0.headers.*", "a request that is refused for its size has an id as all others"),
    Difference(
        "*/a body *too large", "0.closed", "the rest of a body that is too large is not read: the socket is closed"
    ),
    Difference("torchserve/main/*", "0.*.[0-9].loadedAtStartup", "true of the versions that the server started with"),
    Difference("*/register what fails to load", "0.body.message", CAUSE),
    Difference("*/register what runs out of memory", "0.body.message", CAUSE),
    Difference("*/scale what fails to load", "0.body.message", CAUSE),
    Difference("*/grpc register what fails to load", "0.details", CAUSE),
    Difference("*/register from where nobody listens", "0.body.message", CAUSE),
    Difference("*/register garbage", "0.body.message", CAUSE),
    Difference("*/scale below nothing", "0.body.message", "it names the parameter; upstream shows an index of Java's"),
    Difference("*/no picture", "0.body.message", "the image handlers say which row cannot be decoded, and why"),
    Difference("*/tokens/a new token *", "0.body.message", "it says what a new key needs"),
    Difference("*/register by broken json", "0.*", "a malformed body is the client's mistake: 400, not 500"),
    Difference(
        "*/register from *a scheme*", "0.*", "a URL that is not allowed is refused as one, never looked up by name"
    ),
    Difference("*/metrics/*", "0.body.*.shoal_*", "Shoal's own series stand beside upstream's"),
    Difference("*/metrics when they are logged", "0.body", "Shoal's own series are there in every mode"),
    Difference("*/metrics need no token", "0.body", "Shoal's own series are there in every mode"),
    Difference(
        "*/open inference metadata", "0.body.extensions", "the key that upstream misspells is there in both spellings"
    ),
    Difference("*/grpc list without a limit", "0.messages.*", FIXED),
    Difference("*/grpc register again", "0.*", FIXED),
    Difference("*/grpc describe with words", "0.*", FIXED),
    Difference("*/grpc stream of one", "0.*", FIXED),
    Difference("*/grpc stream that is none", "0.*", FIXED),
    Difference("*/json envelope on a list", "0.*", FIXED),
    Difference("mms/main/json that is none", "0.*", FIXED),
    Difference("mms/main/* a tarball", "0.*", "what MMS's own archiver packs as a tarball can be registered"),
    Difference(
        "mms/main/*what fail* in initialize", "0.*", "a model that cannot be initialised is refused, with the reason"
    ),
    Difference("*/no http", "0.*", "a method that is no method is not implemented, rather than a bad request"),
    Difference("*/json in capitals", "0.body", "content types have no case, so JSON is JSON"),
    Difference("*/the handler sets a known header", "0.headers.cache-control", "what the handler says goes"),
    Difference("*options of*", "0.body.*", DOCUMENT),
    Difference("mms/main/options of a model to manage", "0.*", DOCUMENT),
    Difference("*/description", "0.body.paths.*", DOCUMENT),
    Difference("mms/*/the root by options", "0.body.paths.*", DOCUMENT),
    Difference("mms/*/the description", "0.body.paths.*", DOCUMENT),
    Difference("*/ping is not on the management port", "0.*", "health is told on the management port too"),
    Difference("*/metrics by post", "0.body", "Shoal's own series are there in every mode"),
    Difference("*/grpc predict without a model", "0.details", "the class is named whole, as everywhere else"),
    Difference("*/grpc predict without workers", "0.details", "the class is named whole, as everywhere else"),
    Difference(
        "*/the worker is killed for memory",
        "0.*",
        "the request is tried again first; why a worker died is in its description",
    ),
    Difference("*/an unknown path without a token", "0.*", "what is nowhere is not found, with or without a key"),
    Difference("*/describe a stateful model", "0.body.*", SEQUENCES),
    Difference("*/a sequence too many", "0.*", SEQUENCES),
    Difference("*/grpc sequence", "0.messages.*.sequence_id", "an answer says which sequence it belongs to"),
    Difference(
        "*/metrics/*",
        "0.body.samples.ts_*",
        "requests are counted under the version that answered; the default one is `default`",
    ),
    Difference("*/metrics/*", "0.body.samples.WorkerLoadTime*", "workers have names of their own"),
    Difference("*/a body announced", "0.body", "the handler sees every header that the client sent"),
    Difference("*/an answer too large", "0.*", "the request is told so and nobody's worker is killed"),
    Difference("mms/main/the handler says what it knows of its model", "0.body", ONE_CONTEXT),
    Difference("mms/main/predict from a folder", "0.body", ONE_CONTEXT),
    Difference("*/one letter", "0.*", FIXED),
    Difference("*/grpc letters", "0.*", FIXED),
)


def unexpected(row: str, found: list[Mismatch]) -> list[Mismatch]:
    """The mismatches that no entry explains."""
    return [one for one in found if not any(entry.covers(row, one) for entry in DIFFERENCES)]
