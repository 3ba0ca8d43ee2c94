"""The words the tables are written in: a case is one thing a client does, a run is a server and its cases in order.

Tables, clients and this file run inside the environment of each tritonclient: nothing of them imports more than
tritonclient, numpy and the standard library.
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from typing import Any, Literal, Protocol

Transport = Literal["http", "http aio", "grpc", "grpc aio"]
EVERY: tuple[Transport, ...] = ("http", "http aio", "grpc", "grpc aio")
HTTP: tuple[Transport, ...] = ("http", "http aio")
GRPC: tuple[Transport, ...] = ("grpc", "grpc aio")
RELEASES = ("2.73.0", "2.51.0")  # of the clients: the current one, and the server's own


@dataclass(frozen=True)
class Given:
    """One input: values in nested lists, or a place in shared memory."""

    name: str
    values: Any
    datatype: str = "FP32"
    shape: tuple[int, ...] | None = None  # said instead of the values' own
    is_binary: bool = True
    place: tuple[str, int, int] | None = None  # region, size, offset


@dataclass(frozen=True)
class Wanted:
    """One output that is asked for."""

    name: str
    is_binary: bool = True
    classes: int = 0
    place: tuple[str, int, int] | None = None


class Client(Protocol):
    """One of the four clients, and the plain protocols under them. All answers are what JSON can hold."""

    transport: Transport

    def ask(self, method: str, *arguments: Any, **options: Any) -> Any:
        """Call a method of the client by its name."""

    def infer(
        self,
        model: str,
        *tensors: Given,
        wanted: tuple[Wanted, ...] = (),
        reads: bool = True,
        **options: Any,
    ) -> Any:
        """Infer, and give the answer's head and, where they are in it, values."""

    def later(self, model: str, *tensors: Given) -> Any:
        """Infer by the method that does not wait, and then wait."""

    def by_hand(self, model: str, *tensors: Given) -> Any:
        """Infer with a body that the client only writes and reads."""

    def plugged(self, headers: Mapping[str, str], method: str, *arguments: Any) -> Any:
        """Call a method while a plugin adds headers to every request."""

    def unused(self) -> list[str]:
        """The public methods of the client that nothing has called."""

    def crowd(self, asks: "tuple[tuple[float, str, tuple[Given, ...], dict[str, Any]], ...]") -> Any:
        """Infer several at the same time, each so many seconds after the first; the answers in their order."""

    def stream(self, asks: "tuple[Ask, ...]", **options: Any) -> Any:
        """Send requests on one stream and give what comes back, until every request has its last answer."""

    def cancel(self, model: str, tensor: Given, after: float) -> Any:
        """Infer, and cancel that."""

    def http(self, method: str, path: str, body: Any = None, headers: Mapping[str, str] = ...) -> Any:
        """Ask over a plain connection; a body that is no text and no bytes is written as JSON."""

    def rpc(
        self,
        method: str,
        *messages: dict[str, Any],
        metadata: tuple[tuple[str, str], ...] = (),
    ) -> Any:
        """Call a method of the service with messages as JSON writes them."""

    def region(self, name: str, values: Any, datatype: str, size: int) -> str:
        """Make a shared memory object that begins with some values; its key."""

    def peek(self, name: str, datatype: str, count: int, offset: int) -> list[Any]:
        """Read values from a shared memory object."""


@dataclass(frozen=True)
class Ask:
    """One request of a stream."""

    model: str
    tensor: Given
    id: str = ""
    options: dict[str, Any] = field(default_factory=dict)


Act = Callable[[Client], Any]


@dataclass(frozen=True)
class Case:
    """Something a client does, by name, and with which clients."""

    name: str
    act: Act
    on: tuple[Transport, ...] = EVERY


@dataclass(frozen=True)
class Run:
    """One server: its models, its flags, and the cases in order."""

    name: str
    models: tuple[str, ...]
    cases: tuple[Case, ...]
    flags: tuple[str, ...] = ()

    @property
    def keys(self) -> list[str]:
        """The names of its answers: transport and case."""
        return [f"{transport}/{case.name}" for transport in EVERY for case in self.cases if transport in case.on]


def ask(
    name: str,
    method: str,
    *arguments: Any,
    on: tuple[Transport, ...] = EVERY,
    **options: Any,
) -> Case:
    """A case that calls one method of the client."""
    return Case(name, lambda client: client.ask(method, *arguments, **options), on)


def infer(
    name: str,
    model: str,
    *tensors: Given,
    wanted: tuple[Wanted, ...] = (),
    on: tuple[Transport, ...] = EVERY,
    **options: Any,
) -> Case:
    """A case of one inference."""
    return Case(name, lambda client: client.infer(model, *tensors, wanted=wanted, **options), on)


def plain(
    name: str,
    method: str,
    path: str,
    body: Any = None,
    headers: Mapping[str, str] | None = None,
) -> Case:
    """A case of one plain HTTP request; it needs one client alone."""
    return Case(name, lambda client: client.http(method, path, body, headers or {}), ("http",))


def rpc(
    name: str,
    method: str,
    *messages: dict[str, Any],
    metadata: tuple[tuple[str, str], ...] = (),
) -> Case:
    """A case of one plain gRPC call; it needs one client alone."""
    return Case(name, lambda client: client.rpc(method, *messages, metadata=metadata), ("grpc",))


def stream(name: str, *asks: Ask, on: tuple[Transport, ...] = GRPC, **options: Any) -> Case:
    """A case of one stream."""
    return Case(name, lambda client: client.stream(asks, **options), on)
