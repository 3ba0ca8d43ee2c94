"""MicroBatching: a handler's three steps as a pipeline of threads through which slices of a batch move."""

import contextvars
import threading
import time
from collections.abc import Callable, Mapping
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

HANDLER_METHODS = ("preprocess", "inference", "postprocess")


class MicroBatching:
    """Takes the place of a handler's `handle`: `self.handle = MicroBatching(self, 4, {"preprocess": 2})`.

    `parallelism` is the number of threads of each step, one where nothing is said; both settings may be changed at any
    time. Results keep the order of the rows; an exception of any step is raised once no slice is on its way any more.
    """

    def __init__(
        self, parent_handler: Any, micro_batch_size: int = 1, parallelism: Mapping[str, int] | None = None
    ) -> None:
        self.handler = parent_handler
        self.micro_batch_size = micro_batch_size
        self._index: contextvars.ContextVar[int | None] = contextvars.ContextVar("micro batch", default=None)
        self._lock = threading.Lock()
        self._threads: dict[str, ThreadPoolExecutor] = {}
        self._parallelism: dict[str, int] = {}
        self.parallelism = dict(parallelism or {})

    @property
    def parallelism(self) -> dict[str, int]:
        """The number of threads of each step that was given one."""
        return dict(self._parallelism)

    @parallelism.setter
    def parallelism(self, parallelism: Mapping[str, int]) -> None:
        wanted = dict(parallelism or {})
        for step, count in wanted.items():
            if step not in HANDLER_METHODS:
                raise ValueError(f"parallelism is given for {', '.join(HANDLER_METHODS)}; there is no step {step!r}")
            if not isinstance(count, int) or count < 1:
                raise ValueError(f"parallelism of {step} must be 1 or more threads, got {count!r}")
        with self._lock:
            for step in HANDLER_METHODS:
                count = wanted.get(step, 1)
                if step in self._threads:
                    if self._parallelism.get(step, 1) == count:
                        continue
                    self._threads[step].shutdown(wait=False)  # what it was given it still does
                self._threads[step] = ThreadPoolExecutor(count, thread_name_prefix=step)
            self._parallelism = wanted

    def shutdown(self) -> None:
        """End the threads; nothing can be handled after this."""
        with self._lock:
            for threads in self._threads.values():
                threads.shutdown(wait=True)

    def get_micro_batch_idx(self) -> int | None:
        """The number of the slice that the calling step works on; None outside of a step."""
        return self._index.get()

    def __call__(self, data: list[Any], context: Any) -> Any:
        """Be the handler's `handle`: explanations and descriptions go the handler's ordinary way."""
        handler = self.handler
        handler.context = context
        started = time.perf_counter()
        if context.get_request_header(0, "describe") == "True":
            output: Any = [handler.describe_handle()]
        elif context.get_request_header(0, "explain") == "True":
            output = handler.explain_handle(handler.preprocess(data), data)
        else:
            output = self.handle(data)
        if (metrics := context.metrics) is not None:
            metrics.add_time("HandlerTime", round((time.perf_counter() - started) * 1000, 2), None, "ms")
        return output

    def handle(self, data: list[Any]) -> list[Any]:
        """Run the rows through the three steps, slice by slice, and put the results together again."""
        size = self.micro_batch_size
        if size < 1:
            raise ValueError(f"micro_batch_size must be 1 or more, got {size}")
        failed = threading.Event()
        runs = [_Run(number, data[at : at + size], failed) for number, at in enumerate(range(0, len(data), size))]
        for run in runs:
            run.context.run(self._index.set, run.number)
            self._submit(run, 0)
        results, error = [], None
        for run in runs:
            try:
                results.extend(run.done.result())
            except _Dropped:
                continue
            except BaseException as raised:
                error = error or raised
        if error is not None:
            raise error
        return results

    def _submit(self, run: "_Run", step: int) -> None:
        method: Callable[[Any], Any] = getattr(self.handler, HANDLER_METHODS[step])
        with self._lock:
            self._threads[HANDLER_METHODS[step]].submit(self._run, run, step, method)

    def _run(self, run: "_Run", step: int, method: Callable[[Any], Any]) -> None:
        try:
            if run.failed.is_set():
                raise _Dropped
            run.data = run.context.run(method, run.data)
            if step + 1 < len(HANDLER_METHODS):
                self._submit(run, step + 1)
            else:
                run.done.set_result(run.data)
        except BaseException as error:
            run.failed.set()
            run.done.set_exception(error)


class _Dropped(Exception):
    """Another slice of the batch has failed, so this one is of no use."""


class _Run:
    """One slice on its way; its steps see the calling thread's context variables, such as the batch at hand."""

    def __init__(self, number: int, data: Any, failed: threading.Event) -> None:
        self.number = number
        self.data = data
        self.failed = failed
        self.context = contextvars.copy_context()
        self.done: Future[Any] = Future()
