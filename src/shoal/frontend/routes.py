"""The inference routes: which model a path means, and what else it says. No request is looked at here."""

from collections.abc import Sequence
from typing import Final, NamedTuple
from urllib.parse import unquote

from shoal.core.model import Model
from shoal.payload import Headers, Part

RESERVED: Final = frozenset({"models", "workflows", "v1", "v2"})  # first segments that are no model's old-style route
EXPLAIN: Final = "explain"  # the group of requests that ask for explanations: they share no batch with others


class Wanted(NamedTuple):
    """What a path asks for."""

    name: str  # empty: the server's only model, or one that the request names elsewhere
    version: str = ""
    explains: bool | None = False  # None: the route does not tell its handler
    extra: str | None = None  # the segments behind the version; None: the route does not tell its handler
    takes_query: bool = False  # query parameters are part of the input


class Route:
    """A path whose model was found: everything a request on it needs, made once."""

    __slots__ = ("adds", "group", "headers", "model", "parts", "version")

    def __init__(self, model: Model, wanted: Wanted, parts: Sequence[Part] = ()) -> None:
        self.model = model
        self.version = wanted.version  # as the client wrote it
        self.group = EXPLAIN if wanted.explains else None
        self.headers = added_headers(wanted, model.config.flavour == "torchserve")
        self.parts = parts  # of the query
        self.adds = bool(self.headers or parts)


def segments_of(path: bytes) -> list[str]:
    """Split a path; slashes at its end, or several in a row, mean nothing."""
    return [unquote(part) for part in path.decode("ascii", "replace").split("/") if part]


def wanted(segments: list[str], *, has_versions: bool, has_explanations: bool) -> Wanted | None:
    """Read the path of an inference; None when it is none."""
    match segments:
        case ["predictions", name, *rest]:
            return _versioned(name, rest, False) if has_versions else Wanted(name, explains=None)
        case ["explanations", name, *rest] if has_explanations:
            return _versioned(name, rest, True)
        case ["v1", "models", last] if has_explanations and ":" in last:
            name, _, verb = last.partition(":")
            return Wanted(name, explains=verb == "explain") if name and verb in ("predict", "explain") else None
        case ["v2", "models", last, "infer" | "explain" as verb] if has_explanations:
            return Wanted(last.partition(":")[0], explains=verb == "explain")
        case ["invocations"]:
            return Wanted("", explains=None, takes_query=True)
        case ["models", name, "invoke"]:
            return Wanted(name, explains=None, takes_query=True)
        case [name, "predict"] if name not in RESERVED:
            return Wanted(name, explains=None, takes_query=True)
        case [name, version, "predict"] if name not in RESERVED and has_versions:
            return Wanted(name, version, explains=None, takes_query=True)
    return None


def added_headers(wanted: Wanted, is_torchserve: bool) -> Headers:
    """Give the headers that the server adds for the handler: all of them for TorchServe's, else those that say much."""
    headers = []
    if wanted.explains is not None and (wanted.explains or is_torchserve):
        headers.append((b"explain", b"True" if wanted.explains else b"False"))
    if wanted.extra is not None and (wanted.extra or is_torchserve):
        headers.append((b"url_path", wanted.extra.encode()))
    return headers


def _versioned(name: str, rest: list[str], explains: bool) -> Wanted:
    return Wanted(name, rest[0] if rest else "", explains=explains, extra="/".join(rest[1:]))
