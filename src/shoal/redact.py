"""Redact: keys, passwords and signatures do not reach a log, whoever put them into what is logged."""

import re

HIDDEN = "***"
_WORDS = ("sig", "secret", "passw", "token", "credential", "key", "bearer", "basic", "@", "%40")
# `X-Amz-Signature=...` in a query, plain or percent-encoded inside another, and `"api_key": "..."`
_NAMED = re.compile(
    r"(?i)(signature|secret|passwd|password|token|credential|api[_-]?key|access[_-]?key|sig)(?:id)?"
    r"(=[\"']?|%3D|%253D|[\"']?\s*:\s*[\"'])([^\s&\"'<>;%]|%(?!26|2526|22|27|20))+"
)
_SHOWN = re.compile(r"(?i)\b(bearer|basic)(\s+|%20|\+)([\w~+/.=-]{6,})")
_USER = re.compile(r"(?i)(://|%3A%2F%2F)([^\s/@\"'<>%]+(?::|%3A)[^\s/@\"'<>]*)(@|%40)")


def redact(text: str) -> str:
    """Put asterisks in the place of what only its owner should read."""
    low = text.lower()
    for word in _WORDS:  # most lines have none of these, and a search for each costs less than one expression
        if word in low:
            break
    else:
        return text
    text = _NAMED.sub(rf"\1\2{HIDDEN}", text)
    text = _SHOWN.sub(rf"\1\2{HIDDEN}", text)
    return _USER.sub(rf"\1{HIDDEN}\3", text)
