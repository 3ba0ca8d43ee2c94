"""What an HTTP client hears where no application answers it: its connection refused the request, or a defect did."""

import json
import logging
from collections.abc import Callable
from typing import Final

from shoal.frontend.exchange import Exchange
from shoal.frontend.status import JSON

ERROR_TYPES: Final = {
    400: "BadRequestException",
    408: "RequestTimeoutException",
    413: "RequestEntityTooLargeException",
    414: "RequestURITooLongException",
    417: "ExpectationFailedException",
    431: "RequestHeaderFieldsTooLargeException",
    500: "InternalServerException",
    501: "NotImplementedException",
    503: "ServiceUnavailableException",
    505: "HTTPVersionNotSupportedException",
}

log = logging.getLogger("shoal.http")


def refusal(status: int, message: str) -> tuple[bytes, bytes]:
    """Header lines and body for a request that the connection itself refuses."""
    return JSON, json.dumps({"code": status, "type": ERROR_TYPES[status], "message": message}).encode()


def answer_for_defect(exchange: Exchange, cut: Callable[[], None]) -> None:
    """The application raised: answer in its place, or cut where half an answer is out and would look whole."""
    log.exception("the application failed on %s %r", exchange.method, exchange.target)
    if not exchange.is_answered:
        head, body = refusal(500, "the server failed on this request; its log says why")
        exchange.respond(500, body, head)
    elif exchange.is_streaming:
        cut()


def tell(callback: Callable[[], None] | None) -> None:
    """Call back into the application; what it raises is its own."""
    if callback is not None:
        try:
            callback()
        except Exception:
            log.exception("a callback of the application failed")
