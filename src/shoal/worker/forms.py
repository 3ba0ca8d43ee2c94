"""The forms a handler may have, and the program each becomes.

1. an object with `handle(data, context)`, or a function of that name or with those parameters: TorchServe's;
2. an object with `inference` and any of initialize, preprocess, postprocess, decode, decode_batch, encode: 3 stages;
3. any other function of a list, with or without a context.
"""

import asyncio
import contextvars
import inspect
import threading
from collections.abc import AsyncGenerator, Callable, Generator
from functools import partial
from typing import Any

from shoal.errors import LoadFailed
from shoal.worker.each import decode_each, encode_each
from shoal.worker.handler import Context, Handler
from shoal.worker.items import read_native, read_rows, read_views
from shoal.worker.program import Program, Stage


def make_program(target: Any, name: str, context: Context) -> Program:
    """Give the program of a function or of an instance that is already initialised."""
    if inspect.isroutine(target):
        return _function_program(target, name, context)
    if callable(getattr(target, "handle", None)):
        return _one_stage(target.handle, name, f"{name}.handle", context, is_torchserve=True)
    return _staged_program(target, name, context)


def initialize(target: Any, context: Context) -> None:
    """Let a handler load its model."""
    if inspect.isroutine(target):
        if is_torchserve_function(target):
            plain(target)(None, context)  # upstream's way to say: initialise
    elif callable(method := getattr(target, "initialize", None)):
        plain(method)(*(context,) if takes(method, 1) else ())


def is_torchserve_function(function: Callable[..., Any]) -> bool:
    """Whether a function is an entry point of TorchServe's kind: handle(data, context), or so by its parameters."""
    names = list(inspect.signature(function).parameters)
    return takes(function, 2) and (getattr(function, "__name__", "") == "handle" or names[:2] == ["data", "context"])


def takes(function: Callable[..., Any], count: int) -> bool:
    """Whether it can be called with that many positional arguments."""
    try:
        inspect.signature(function).bind(*[None] * count)
    except TypeError:
        return False
    except ValueError:  # a builtin that does not say
        return count == 1
    return True


def plain(function: Callable[..., Any]) -> Callable[..., Any]:
    """A coroutine function or asynchronous generator as an ordinary one, on a loop that its thread keeps."""
    if inspect.iscoroutinefunction(function):
        return partial(_await, function)
    if inspect.isasyncgenfunction(function):
        return partial(_iterate, function)
    return function


def _function_program(function: Callable[..., Any], name: str, context: Context) -> Program:
    if not takes(function, 1) and not takes(function, 2):
        raise LoadFailed(f"{name}{inspect.signature(function)} must take a list of items: def {name}(items)")
    return _one_stage(function, name, name, context, is_torchserve=is_torchserve_function(function))


def _one_stage(
    function: Callable[..., Any], name: str, label: str, context: Context, *, is_torchserve: bool
) -> Program:
    call = plain(function)
    if sees_context := takes(function, 2):
        call = _with_context(call, context)
    elif not takes(function, 1):
        raise LoadFailed(f"{label}{inspect.signature(function)} must take the data and the context")
    stage = Stage("inference", label, call, gives_rows=True)
    read = read_rows if is_torchserve else read_native
    return Program(name, (stage,), read, context, wants_headers=sees_context)


def _with_context(call: Callable[..., Any], context: Context) -> Callable[[Any], Any]:
    def with_context(data: Any) -> Any:
        return call(data, context)

    return with_context


def _staged_program(target: Any, name: str, context: Context) -> Program:
    own = {method: _own_method(target, name, method) for method in ("preprocess", "inference", "postprocess")}
    inference = own["inference"]
    if inference is None:
        raise LoadFailed(f"{name} has no method `inference`")
    decode = plain(_method(target, name, "decode") or _as_it_is)
    encode = plain(_method(target, name, "encode") or _as_it_is)
    preprocess, postprocess = own["preprocess"], own["postprocess"]
    together = None if preprocess else _method(target, name, "decode_batch")
    stages = (
        Stage("preprocess", f"{name}.{'preprocess' if preprocess else 'decode_batch' if together else 'decode'}",
              preprocess or together or partial(decode_each, decode), gives_rows=False),
        Stage("inference", f"{name}.inference", inference, gives_rows=postprocess is None,
              encode=None if postprocess else encode),
        Stage("postprocess", f"{name}.{'postprocess' if postprocess else 'encode'}",
              postprocess or partial(encode_each, encode), gives_rows=True),
    )  # fmt: skip
    read = read_rows if preprocess else read_views if together else read_native
    wants_headers = _own_method(target, name, "initialize", 0) is not None
    return Program(name, stages, read, context, wants_headers)


def _own_method(target: Any, name: str, method: str, count: int = 1) -> Callable[..., Any] | None:
    """A method that the user wrote, not the one that Handler has."""
    found = getattr(type(target), method, None)
    if found is not None and found is getattr(Handler, method, None):
        return None
    return _method(target, name, method, count)


def _method(target: Any, name: str, method: str, count: int = 1) -> Callable[..., Any] | None:
    found = getattr(target, method, None)
    if not callable(found):
        return None
    if count and not takes(found, count):
        raise LoadFailed(f"{name}.{method}{inspect.signature(found)} must take one argument: def {method}(self, data)")
    return plain(found)


def _as_it_is(value: Any) -> Any:
    return value


class _Loop(threading.local):
    """The event loop of this thread; kept, so that what a handler opened on it stays usable."""

    def __init__(self) -> None:
        self.runner = asyncio.Runner()


_loop = _Loop()


def _await(function: Callable[..., Any], *arguments: Any) -> Any:
    return _loop.runner.run(function(*arguments), context=contextvars.copy_context())


def _iterate(function: Callable[..., AsyncGenerator[Any, None]], *arguments: Any) -> Generator[Any, None, None]:
    steps = function(*arguments)
    try:
        while True:
            try:
                yield _await(steps.__anext__)
            except StopAsyncIteration:
                return
    finally:
        _await(steps.aclose)
