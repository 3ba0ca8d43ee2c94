"""Access: groups of calls that need a header, and headers that become parameters of a request."""

import re
from collections.abc import Callable, Iterable, Mapping, Sequence
from hmac import compare_digest

from shoal.config.triton import Restriction
from shoal.errors import ConfigError, InvalidInput, Unauthorised
from shoal.frontend.kserve.asked import Asked
from shoal.frontend.kserve.controls import Controls

Headers = Iterable[tuple[bytes, bytes]]
GRPC_PREFIX = "triton-grpc-protocol-"  # what the metadata of a call that needs a key begins with
HTTP_WORDS = "This API is restricted, expecting header"
GRPC_WORDS = "This protocol is restricted, expecting header"
EXACT = "(?-i)"  # begins a pattern that has a case
OWN = frozenset(
    {"sequence_id", "sequence_start", "sequence_end", "priority", "timeout", "headers", "binary_data_output"}
)


class Access:
    """What one protocol's headers may do."""

    __slots__ = ("_keys", "_pattern", "_words")

    def __init__(
        self, keys: Mapping[str, tuple[str, str]], pattern: re.Pattern[str] | None = None, words: str = HTTP_WORDS
    ) -> None:
        self._keys = {group: (name.lower().encode(), value.encode()) for group, (name, value) in keys.items()}
        self._pattern = pattern
        self._words = words

    @property
    def is_restricted(self) -> bool:
        """Whether any call needs a key."""
        return bool(self._keys)

    def check(self, group: str, headers: Headers) -> None:
        """Raise Unauthorised where a call of this group needs a header that is not there."""
        key = self._keys.get(group)
        if key is None:
            return
        name, value = key
        if not any(found.lower() == name and compare_digest(given, value) for found, given in headers):
            raise Unauthorised(f"{self._words} '{name.decode()}'")

    def forward(self, asked: Asked, headers: Headers) -> None:
        """Let the headers that match become parameters; what is raised leaves nothing lent."""
        if self._pattern is None:
            return
        found: dict[str, str] = {}
        for name, value in headers:
            word = name.decode("latin-1")
            if self._pattern.search(word) is not None:
                found[word] = value.decode("utf-8", "replace")
        taken = [name for name in found if name.lower() in OWN or name.lower().startswith("triton_")]
        if taken:
            asked.release()
            raise InvalidInput(f"header '{taken[0]}' cannot become a parameter: the name is reserved")
        if found:
            told = asked.controls
            asked.controls = Controls(
                {**told.parameters, **found},
                told.sequence,
                told.priority,
                told.timeout,
                told.is_binary,
                told.wants_final,
            )


class KeyedAccess(Access):
    """Every call but those of health needs the server's own key; `check_key` is told what was shown."""

    __slots__ = ("_check_key",)

    def __init__(self, check_key: Callable[[bytes | None], None]) -> None:
        super().__init__({})
        self._check_key = check_key

    @property
    def is_restricted(self) -> bool:
        """Whether any call needs a key."""
        return True

    def check(self, group: str, headers: Headers) -> None:
        """Raise Unauthorised for a call without the key."""
        if group != "health":
            self._check_key(next((value for name, value in headers if name.lower() == b"authorization"), None))


OPEN = Access({})


def http_access(restrictions: Sequence[Restriction], pattern: str) -> Access:
    """Make that of HTTP."""
    return Access(_keys(restrictions, ""), _compiled(pattern, "--http-header-forward-pattern"))


def grpc_access(restrictions: Sequence[Restriction], pattern: str) -> Access:
    """Make that of gRPC, whose keys have names of their own."""
    return Access(_keys(restrictions, GRPC_PREFIX), _compiled(pattern, "--grpc-header-forward-pattern"), GRPC_WORDS)


def _keys(restrictions: Sequence[Restriction], prefix: str) -> dict[str, tuple[str, str]]:
    keys: dict[str, tuple[str, str]] = {}
    for apis, header, value in restrictions:
        for api in sorted(apis):
            if api in keys:
                raise ConfigError(f"the API '{api}' is restricted twice; it can need one header only")
            keys[api] = (prefix + header, value)
    return keys


def _compiled(pattern: str, flag: str) -> re.Pattern[str] | None:
    if not pattern:
        return None
    try:
        if pattern.startswith(EXACT):
            return re.compile(pattern.removeprefix(EXACT))
        return re.compile(pattern, re.IGNORECASE)
    except re.error as error:
        raise ConfigError(f"{flag} {pattern!r} is no regular expression: {error}") from None
