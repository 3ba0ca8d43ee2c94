"""`@batched`: single calls from anywhere in a program become batches of one function, each caller gets its own result.

How it is called depends on the function alone, never on who calls: a plain function blocks its caller and is awaited
through `.aio`; a coroutine function is awaited. Nothing is started before the first call.
"""

import asyncio
import atexit
import functools
import inspect
import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, Generic, Protocol, TypeVar, cast, overload

from shoal.clock import MonotonicClock
from shoal.embedded.calls import PolicyName, Settings, result_of
from shoal.embedded.loops import AsyncFunction, LoopHost
from shoal.embedded.threads import Function, ThreadHost
from shoal.errors import Unavailable

S = TypeVar("S")
T = TypeVar("T")
R = TypeVar("R")
B = TypeVar("B")

LAST_WORDS = 5.0  # seconds that running batches have to end in when the interpreter does
CLOCK = MonotonicClock()


class Batched(Generic[T, R]):
    """A plain function over a list, called with one item at a time, from any thread or event loop."""

    __name__: str

    def __init__(self, home: "ThreadHome", owner: object = None) -> None:
        self._home = home
        self._owner = owner  # whose method it is; alive as long as somebody could call it

    def __call__(self, item: T, *, timeout: float | None = None) -> R:
        """Give the item's result; blocks this thread until there is one, `timeout` seconds at most."""
        if asyncio._get_running_loop() is not None:
            name = self._home.name
            raise RuntimeError(f"{name}(item) would block the event loop of this thread: use `await {name}.aio(item)`")
        return cast(R, result_of(self._home.host().call(item, timeout)))

    async def aio(self, item: T, *, timeout: float | None = None) -> R:
        """Give the item's result. Cancelled, the item leaves the queue; its result is discarded if it has left."""
        return cast(R, result_of(await self._home.host().call_from_loop(item, timeout)))

    def describe(self) -> dict[str, object]:
        """Tell what has happened so far and what the policy has learned."""
        return self._home.describe()

    def close(self, timeout: float | None = None) -> None:
        """Take nothing new, finish what was taken, end the threads; after `timeout` seconds what waits is refused."""
        self._home.close(timeout)


class AsyncBatched(Generic[T, R]):
    """A coroutine function over a list, awaited with one item at a time; it runs on the loop of its callers."""

    __name__: str

    def __init__(self, home: "LoopHome", owner: object = None) -> None:
        self._home = home
        self._owner = owner

    async def __call__(self, item: T, *, timeout: float | None = None) -> R:
        """Give the item's result. Cancelled, the item leaves the queue; its result is discarded if it has left."""
        return cast(R, result_of(await self._home.host().call(item, timeout)))

    def describe(self) -> dict[str, object]:
        """Tell what has happened on this loop so far and what the policy has learned."""
        return self._home.host().describe()

    async def aclose(self) -> None:
        """Take nothing new on this loop and finish what was taken."""
        await self._home.host().close()


class ThreadHome:
    """Where a plain function's host is: started at the first call, anew in a forked process."""

    def __init__(self, function: Function, name: str, settings: Settings) -> None:
        self.function = function
        self.name = name
        self._settings = settings
        self._host: ThreadHost | None = None
        self._process = _process
        self._is_closed = False

    def host(self) -> ThreadHost:
        """Give the host of this process, started if need be."""
        host = self._host
        if host is None or self._process is not _process:
            return self._start()
        return host

    def describe(self) -> dict[str, object]:
        """Tell what has happened in this process; starts nothing."""
        host = self._host if self._process is _process else None
        return (host or self._new_host()).describe()

    def close(self, timeout: float | None) -> None:
        """Close for good, started or not."""
        with _process.lock:
            self._is_closed = True
            host = self._host if self._process is _process else None
        if host is not None:
            host.close(timeout)

    def let_go(self) -> None:
        """Nobody can call any more. Takes no lock: a garbage collection calls it."""
        if self._host is not None and self._process is _process:
            self._host.let_go()

    def _start(self) -> ThreadHost:
        with _process.lock:
            if self._host is None or self._process is not _process:
                if self._is_closed:
                    raise Unavailable(f"{self.name} is closed")
                host = self._new_host()
                host.start()
                self._host, self._process = host, _process
                _process.hosts.add(host)
            return self._host

    def _new_host(self) -> ThreadHost:
        return ThreadHost(self.function, self.name, self._settings, CLOCK)


class LoopHome:
    """Where a coroutine function's hosts are: one for each event loop that calls it."""

    def __init__(self, function: AsyncFunction, name: str, settings: Settings) -> None:
        self.function = function
        self.name = name
        self._settings = settings
        self._hosts: dict[asyncio.AbstractEventLoop, LoopHost] = {}

    def host(self) -> LoopHost:
        """Give the host of the running loop."""
        loop = asyncio.get_running_loop()
        return self._hosts.get(loop) or self._start(loop)

    def let_go(self) -> None:
        """Nothing to end: what runs ends with its loop."""

    def _start(self, loop: asyncio.AbstractEventLoop) -> LoopHost:
        with _process.lock:
            for other in [known for known in self._hosts if known.is_closed()]:
                del self._hosts[other]
            host = self._hosts[loop] = LoopHost(self.function, self.name, self._settings, CLOCK, loop)
        host.start()
        return host


class BatchedMethod(Generic[S, B]):
    """A batched method: every instance has a batcher of its own, which ends with the instance."""

    __name__: str

    def __init__(self, function: Callable[..., Any], settings: Settings) -> None:
        self._function = function
        self._settings = settings
        self._homes: dict[int, tuple[weakref.ref[Any], ThreadHome | LoopHome]] = {}  # by id: equal is not the same
        functools.update_wrapper(self, function)  # type: ignore[arg-type]  # a callable of any kind

    @overload
    def __get__(self, instance: None, owner: type) -> "BatchedMethod[S, B]": ...
    @overload
    def __get__(self, instance: S, owner: type) -> B: ...
    def __get__(self, instance: S | None, owner: type) -> "BatchedMethod[S, B] | B":
        if instance is None:
            return self
        known = self._homes.get(id(instance))
        home = known[1] if known else self._settle(instance)
        return cast(B, _handle(home, instance))

    def _settle(self, instance: S) -> ThreadHome | LoopHome:
        with _process.lock:
            if known := self._homes.get(id(instance)):
                return known[1]
            try:
                gone = weakref.ref(instance, functools.partial(self._forget, id(instance)))
            except TypeError:
                kind = type(instance).__name__
                raise TypeError(f"{kind} cannot have a batched method: add '__weakref__' to its __slots__") from None
            home = _home(_Weakly(self._function, gone), self._function, self._settings)
            self._homes[id(instance)] = gone, home
            return home

    def _forget(self, key: int, gone: "weakref.ref[S]") -> None:
        self._homes.pop(key)[1].let_go()


class _Weakly:
    """A method of an object that this does not keep alive."""

    def __init__(self, function: Callable[..., Any], instance: "weakref.ref[Any]") -> None:
        self._function = function
        self._instance = instance

    def __call__(self, items: list[Any]) -> Any:
        if (instance := self._instance()) is None:
            raise ReferenceError("the instance is gone, and with it everybody who waited")
        return self._function(instance, items)


class Decorator(Protocol):
    """What `batched(...)` with settings gives: it turns a function into its batched form."""

    @overload
    def __call__(
        self, function: Callable[[list[T]], Awaitable[Iterable[R | BaseException]]], /
    ) -> AsyncBatched[T, R]: ...
    @overload
    def __call__(self, function: Callable[[list[T]], Iterable[R | BaseException]], /) -> Batched[T, R]: ...
    @overload
    def __call__(
        self, function: Callable[[S, list[T]], Awaitable[Iterable[R | BaseException]]], /
    ) -> BatchedMethod[S, AsyncBatched[T, R]]: ...
    @overload
    def __call__(
        self, function: Callable[[S, list[T]], Iterable[R | BaseException]], /
    ) -> BatchedMethod[S, Batched[T, R]]: ...


@overload
def batched(function: Callable[[list[T]], Awaitable[Iterable[R | BaseException]]], /) -> AsyncBatched[T, R]: ...
@overload
def batched(function: Callable[[list[T]], Iterable[R | BaseException]], /) -> Batched[T, R]: ...
@overload
def batched(
    function: Callable[[S, list[T]], Awaitable[Iterable[R | BaseException]]], /
) -> BatchedMethod[S, AsyncBatched[T, R]]: ...
@overload
def batched(function: Callable[[S, list[T]], Iterable[R | BaseException]], /) -> BatchedMethod[S, Batched[T, R]]: ...
@overload
def batched(
    *,
    batch_size: int = 0,
    max_batch_delay: float | None = None,
    policy: PolicyName = "",
    queue_size: int = 8192,
    workers: int = 1,
) -> Decorator: ...
def batched(function: Callable[..., Any] | None = None, /, **settings: Any) -> Any:
    """Turn a function or method over a list of items into one that is called with an item.

    Without settings Shoal decides when a batch leaves. `batch_size` and `max_batch_delay` (ms) have TorchServe's
    meaning; `queue_size` items may wait before QueueFull is raised; `workers` batches may run at a time.
    """
    checked = Settings(**settings)
    if function is None:
        return functools.partial(_decorate, checked)
    return _decorate(checked, function)


def _decorate(settings: Settings, function: Callable[..., Any]) -> Any:
    if not callable(function):
        raise TypeError(f"batched takes a function of a list of items, got {type(function).__name__}")
    if _positional(function) == 2:
        return BatchedMethod(function, settings)
    home = _home(function, function, settings)
    handle = _handle(home)
    functools.update_wrapper(handle, function)
    weakref.finalize(handle, home.let_go).atexit = False
    return handle


def _home(function: Callable[..., Any], written: Callable[..., Any], settings: Settings) -> ThreadHome | LoopHome:
    name = getattr(written, "__name__", type(written).__name__)
    if inspect.iscoroutinefunction(written) or inspect.iscoroutinefunction(getattr(written, "__call__", None)):  # noqa: B004
        return LoopHome(function, name, settings)
    return ThreadHome(function, name, settings)


def _handle(home: ThreadHome | LoopHome, owner: object = None) -> Batched[Any, Any] | AsyncBatched[Any, Any]:
    return Batched(home, owner) if isinstance(home, ThreadHome) else AsyncBatched(home, owner)


def _positional(function: Callable[..., Any]) -> int:
    """How many arguments it must be given: 1 for a function of a list, 2 for a method."""
    try:
        parameters = list(inspect.signature(function).parameters.values())
    except ValueError:  # a builtin that does not say
        return 1
    needed = [p for p in parameters if p.default is p.empty and p.kind not in (p.VAR_POSITIONAL, p.VAR_KEYWORD)]
    by_position = [p for p in needed if p.kind is not p.KEYWORD_ONLY]
    if len(needed) != len(by_position) or len(by_position) > 2 or not parameters:
        name = getattr(function, "__name__", type(function).__name__)
        raise TypeError(f"{name}{inspect.signature(function)} must take a list of items: def {name}(items)")
    return max(1, len(by_position))


class _Process:
    """What a process has begun; a forked one begins anew, for threads and held locks stay behind."""

    def __init__(self) -> None:
        self.lock = threading.Lock()
        self.hosts: weakref.WeakSet[ThreadHost] = weakref.WeakSet()


_process = _Process()


def _forked() -> None:
    global _process
    _process = _Process()


def _exit() -> None:
    """Let no thread be in the middle of a batch while the interpreter is taken down."""
    for host in list(_process.hosts):
        host.close(LAST_WORDS)


if hasattr(os, "register_at_fork"):
    os.register_at_fork(after_in_child=_forked)
atexit.register(_exit)
