"""Requests whose right answer is known before they are sent, and the ways they can end."""

import itertools
import random
import time
from dataclasses import dataclass, field
from zlib import crc32

NO_ANSWER = -1  # nothing came within the client's limit
CUT = 0  # the connection ended before the answer was whole
LEFT = -2  # the harness itself left before the answer


@dataclass(frozen=True, slots=True)
class End:
    """How a request ended: HTTP's status (gRPC's codes are told in them too), or one of the three above."""

    status: int
    body: bytes = b""
    has_hint: bool = False  # Retry-After

    @property
    def words(self) -> str:
        return self.body[:200].decode("latin-1")


@dataclass(slots=True)
class Ask:
    """One request: what it says, to whom, by which kind of client."""

    token: str
    kind: str
    model: str
    deed: str = "sum"
    argument: str = "-"
    data: bytes = b""
    version: str = ""  # that it names; empty: the default one
    timeout_ms: int = 0
    began: float = field(default_factory=time.monotonic)
    ended: float = 0.0

    @property
    def head(self) -> bytes:
        return f"{self.token} {self.deed} {self.argument}".encode()

    @property
    def body(self) -> bytes:
        return self.head + b"\n" + self.data

    @property
    def path(self) -> str:
        return f"/predictions/{self.model}" + (f"/{self.version}" if self.version else "")

    def is_right(self, answer: bytes) -> bool:
        """Whether this is the answer to this request, and to no other."""
        match self.deed:
            case "big":
                return answer == f"{self.token} ".encode() * int(self.argument)
            case "stream":
                check = crc32(self.data)
                pieces = (f"{self.token} {number} {check:08x}\n" for number in range(int(self.argument)))
                return answer == "".join(pieces).encode()
        said, _, version = answer.decode("latin-1").rpartition(" ")
        is_version = version == self.version if self.version else version in ("1.0", "2.0")
        return is_version and said == f"{self.token} {crc32(self.data):08x} {len(self.data)}"


class Asking:
    """Makes requests with tokens that never repeat; what they carry follows from the seed."""

    def __init__(self, seed: int, name: str) -> None:
        self.random = random.Random(f"{seed} {name}")
        self._name = name
        self._numbers = itertools.count()

    def ask(self, kind: str, model: str, *, size: int = -1, **more: object) -> Ask:
        """Make one; `size` is of its data."""
        length = self.random.randrange(200) if size < 0 else size
        return Ask(f"{self._name}-{next(self._numbers)}", kind, model, data=self.random.randbytes(length), **more)  # type: ignore[arg-type]  # fields by name
