"""Where Shoal answers otherwise than tritonserver on purpose. Each entry says why, and must still be true."""

from typing import Any

from tests.upstream.compare import Mismatch, mismatches
from tests.upstream.differences import Difference

LABEL = "every answer with a body says what it is, errors as JSON; those without one say nothing"
MISTAKE = "what the client got wrong is 400 and not 500: the server is well"
READER = "another reader of JSON finds the same mistake and says it in its own words, with the place"
SAID = "the message says what is right, beyond what was wrong"
NAMES = "the message names the input as the client does, in the client's order"
CRASH = "the request is refused instead of being guessed at"
MEMORY = "objects are read by calls, not mapped: an offset need not be a multiple of a page"
BEYOND = "later releases say so: 400, and what is beyond the end"
FAILED = "an answer of a Python model that is an error counts as a failure"
EACH = "the answers of decoupled models are counted one by one, as the protocol has it"
FREED = "tritonserver reads the code of the error after it has forgotten it"
ANEW = "a load loads anew; tritonserver leaves a model alone whose files it finds unchanged"
SENT = "a model that was sent along with its load is listed like others"
FORM = (  # requests over plain HTTP whose form is wrong
    *("no json", "json of another kind", "no inputs", "inputs that are no list", "an input without *"),
    *("a shape *", "broken numbers for whole ones", "numbers below nothing", "an id that is a number"),
    *("parameters that are a list", "a sequence that is a truth", "a sequence below nothing"),
    *("a start that is a number", "a priority that is a word", "a timeout below nothing", "an output without a name"),
    *("classes that are a word", "* by no json", "generate of no json", "generate of an object"),
    *("trace at a rate that is a number", "load with an unknown parameter", "load with settings that are a number"),
)

DIFFERENCES: tuple[Difference, ...] = (
    Difference("*/http/*", "0.headers.content-type", LABEL, ("text/plain", "application/json")),
    Difference("*/http/*", "0.headers.content-type", LABEL, ("text/plain", "(absent)")),
    Difference("*/http/*", "0.status", MISTAKE, (500, 400)),
    *[Difference(f"*/http/{name}", "0.body.error", READER) for name in FORM],
    Difference("main/http*/log by a number that is none", "0.*", MISTAKE),
    Difference("main/http/a parameter that is *", "0.body.error", "numbers with a point are taken, so they are named"),
    Difference("main/http/a head that is no number", "0.body.error", CRASH),
    Difference("main/http/an output twice", "0.*", CRASH),
    Difference("main/http/gzip that is none", "0.*", CRASH),
    Difference("main/*/no rows", "0.error", SAID),
    Difference("main/http/one tensor of half an element", "0.body.error", NAMES),
    Difference("main/*/an input too many", "0.error", NAMES),
    Difference("main/*/rows that disagree", "0.error", NAMES),
    Difference("main/grpc*/a version that is none", "0.error", "no word of the C++ library in the message"),
    Difference("main/grpc/* that is no number*", "0.error", "no word of the C++ library in the message"),
    Difference("main/grpc*/classes below one", "0.error", SAID),
    Difference("main/grpc*/trace so many", "0.error", "one text for both protocols, which differ by a blank"),
    Difference("main/http*/log in a form that is none", "0.error", "the setting has no dashes: it is no flag here"),
    Difference("main/http/the root", "0.body.*", "what is not below /v2 is answered by the server's own routes"),
    Difference("main/http/generate* that fails*", "0.status", FREED, (400, 503)),
    Difference("main/*/a piece of the object", "0", MEMORY),
    Difference("main/*/numbers from a piece", "0.*", MEMORY),
    Difference("main/*/more than the object has", "0.*", BEYOND),
    Difference("main/*/behind the object", "0.*", BEYOND),
    Difference("main/*/statistics of behave", "0.model_stats.0.*", FAILED),
    Difference("main/*/statistics of many", "0.model_stats.0.[!r]*", FAILED),
    Difference("main/*/statistics of many", "0.model_stats.0.response_stats*", EACH),
    Difference("explicit/*/statistics after it was loaded again", "0.model_stats.0.*", ANEW),
    Difference("explicit/*/the index *", "0*", SENT),
    Difference("explicit/http/unload with a word", "0.*", CRASH),
    Difference("explicit/http/load with a file that is no base64", "0.body.error", CRASH),
    Difference("explicit/grpc/load with an unknown parameter over grpc", "0.error", SAID),
)


def compare(expected: Any, got: Any) -> list[Mismatch]:
    """Everything in which two answers to a case differ; a message may go on where the other ends."""
    return [one for one in mismatches([expected], [got]) if not _goes_on(one) and not _are_no_numbers(one)]


def unexpected(case: str, found: list[Mismatch]) -> list[Mismatch]:
    """The mismatches that no entry explains."""
    return [one for one in found if not any(entry.covers(case, one) for entry in DIFFERENCES)]


def _goes_on(one: Mismatch) -> bool:
    texts = isinstance(one.expected, str) and isinstance(one.got, str)
    return texts and one.path.endswith(("error", "error_message", "reason")) and one.expected in one.got


def _are_no_numbers(one: Mismatch) -> bool:
    return bool(one.expected != one.expected and one.got != one.got)
