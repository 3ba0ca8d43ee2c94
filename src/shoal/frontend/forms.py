"""Forms: url-encoded and multipart bodies become named parts."""

from collections.abc import Iterable
from typing import Final
from urllib.parse import parse_qsl

from multipart import MultipartError, MultipartSegment, PushMultipartParser, parse_options_header

from shoal.errors import InvalidInput
from shoal.payload import Part

MOST_PARTS: Final = 256


def is_form(content_type: bytes, *, is_lenient: bool = False) -> bool:
    """Whether the body is a form rather than one value; to a lenient reader multipart without a boundary is none."""
    kind = content_type[:33].lower()
    if is_lenient and kind.startswith(b"multipart/") and b"boundary=" not in content_type.lower():
        return False
    return kind.startswith((b"multipart/", b"application/x-www-form-urlencoded"))


def form_parts(content_type: bytes, body: bytes, *, is_lenient: bool = False) -> list[Part]:
    """Take a form apart; of parts with one name the last wins. Raises InvalidInput.

    A lenient reader leaves out a last url-encoded field without `=`, as TorchServe does.
    """
    kind, options = parse_options_header(content_type.decode("latin-1"))
    is_multipart = kind.startswith("multipart/")
    if is_lenient and not is_multipart:
        before, _, last = body.rpartition(b"&")
        body = body if b"=" in last else before
    parts = _multipart(options.get("boundary", ""), body) if is_multipart else _fields(body, is_lenient)
    return last_of_each(parts)


def query_parts(query: bytes) -> list[Part]:
    """Take the parameters of a query; of those with one name the last wins. Raises InvalidInput."""
    return last_of_each(_fields(query, is_lenient=True, where="query"))


def last_of_each(parts: Iterable[Part]) -> list[Part]:
    """Keep the last part of each name."""
    return list({part.name: part for part in parts}.values())


def _fields(body: bytes, is_lenient: bool, where: str = "body") -> list[Part]:
    try:
        pairs = parse_qsl(
            body.decode("utf-8", "surrogateescape") if is_lenient else body.decode("ascii"),
            keep_blank_values=True,
            max_num_fields=MOST_PARTS,
            strict_parsing=bool(body) and not is_lenient,
            errors="surrogateescape",
        )
    except ValueError as error:
        raise InvalidInput(f"the {where} is not a url-encoded form: {error}") from None
    named = [(_bytes(name).decode("utf-8", "replace"), _bytes(value)) for name, value in pairs]
    return [Part(name, "", value) for name, value in named]


def _bytes(text: str) -> bytes:
    return text.encode("utf-8", "surrogateescape")


def _multipart(boundary: str, body: bytes) -> list[Part]:
    if not boundary:
        raise InvalidInput("the multipart body has no boundary in its Content-Type")
    parts: list[Part] = []
    name, kind, pieces = "", "", bytearray()
    try:
        parser = PushMultipartParser(
            boundary, content_length=len(body), max_header_count=16, max_segment_count=MOST_PARTS
        )
        with parser:
            for event in (*parser.parse(body), *parser.parse(b"")):
                if isinstance(event, MultipartSegment):
                    name, pieces = event.name or "", bytearray()
                    kind = (event.content_type or "application/octet-stream") if event.filename is not None else ""
                elif event:
                    pieces += event
                elif event is None:
                    parts.append(Part(name, kind, bytes(pieces)))
    except (MultipartError, ValueError) as error:
        raise InvalidInput(f"the multipart body is broken: {error}") from None
    if not parts:
        raise InvalidInput("the multipart body has no parts")
    return parts
