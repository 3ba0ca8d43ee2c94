"""Python models of a Triton repository: a TritonPythonModel, called on one thread as it would be there."""

import inspect
import json
import logging
import sys
import traceback
from collections.abc import Callable, Sequence
from importlib.util import module_from_spec
from pathlib import Path
from types import FrameType, ModuleType
from typing import Any

from shoal.config.model import ModelConfig
from shoal.errors import HandlerFailed, LoadFailed, LoadOutOfMemory
from shoal.upstream import finder
from shoal.upstream.triton_python_backend_utils import calls, helpers, logger, metrics
from shoal.upstream.triton_python_backend_utils.inference import (
    TRITONSERVER_REQUEST_RELEASE_ALL,
    TRITONSERVER_REQUEST_RELEASE_RESCHEDULE,
    InferenceRequest,
)
from shoal.upstream.triton_python_backend_utils.response import InferenceResponse
from shoal.wire.messages import Measure
from shoal.worker import failures, fresh
from shoal.worker.backends import tensors, triton
from shoal.worker.backends.model_loop import ModelLoop
from shoal.worker.backends.sequences import Sequences, sequences_of
from shoal.worker.backends.tensors import Call, Tensors
from shoal.worker.backends.triton_replies import Reply
from shoal.worker.errands import errands
from shoal.worker.home import Home
from shoal.worker.later import Later, Pump
from shoal.worker.program import Program, Stage
from shoal.worker.scope import Scope

CLASS = "TritonPythonModel"
UTILS = "triton_python_backend_utils"
Pairs = list[tuple[Reply, InferenceRequest]]
_log = logging.getLogger("shoal.worker")


def load(config: ModelConfig, worker: str) -> Program:
    """Make the program of a Python model."""
    if config.interface is None:
        raise LoadFailed(f"model {config.name!r} needs an interface: its inputs and outputs are not known")
    file = find_file(config)
    arguments = initialize_arguments(config, worker)
    home = Home()
    calls.introduce(config.name, arguments["model_instance_name"])
    instance = home.call(_make, file, config, arguments)
    calls.loaded()
    sequences = sequences_of(config, takes_arrays=False)
    model = Model(config, file, instance, arguments["model_instance_name"], home, sequences)
    batches, label = Tensors(), f"{CLASS}.execute"
    read = Stage("preprocess", f"{CLASS} (reading)", lambda calls: model.replies(calls, batches), gives_rows=False)
    stages: tuple[Stage, ...]
    if config.interface.is_decoupled:
        stages = (read, Stage("inference", label, model.stream, gives_rows=True))
    else:
        ending = f"{CLASS} (answering)"
        answer = Stage("postprocess", ending, _wait_for_all, gives_rows=True, would_wait=_are_missing)
        stages = (read, Stage("inference", label, model.run, gives_rows=False), answer)
    reader = sequences.reader(tensors.read) if sequences else tensors.read
    is_watched = config.interface.is_decoupled
    return Program(CLASS, stages, reader, batches, True, _measures, model.finalize, home, is_watched)


def _measures() -> list[Measure]:
    return [Measure(name, "", kind, value, list(labels)) for name, kind, value, labels in metrics.registry.take()]


def _wait_for_all(replies: list[Reply]) -> list[Any]:
    return [reply.wait() for reply in replies if not reply.call.is_null]


def _are_missing(replies: list[Reply]) -> bool:
    return not all(reply.is_answered or reply.call.is_null for reply in replies)


class Model:
    """The user's model, one batch after the other."""

    def __init__(
        self,
        config: ModelConfig,
        file: Path,
        instance: Any,
        name: str,
        home: Home,
        sequences: Sequences | None = None,
    ) -> None:
        assert config.interface is not None
        self._file = file
        self._instance = instance
        self._name = name
        self._home = home
        self._is_decoupled = config.interface.is_decoupled
        self._outputs = [spec.name for spec in config.interface.outputs]
        self._loop = ModelLoop()
        self._pump = Pump() if self._is_decoupled else None
        self._sequences = sequences

    def replies(self, calls: Sequence[Call], batches: Tensors) -> list[Reply]:
        """Make what answers each request of a batch."""
        cut = batches.cut
        if self._sequences is not None:
            calls = self._sequences.rows(self._sequences.seat(calls, cut))
        places = iter(cut.places if cut is not None else range(len(calls)))
        return [
            Reply(
                call,
                cut.batch if cut is not None else None,
                -1 if call.is_null else next(places),
                is_decoupled=self._is_decoupled,
            )
            for call in calls
        ]

    def run(self, replies: list[Reply]) -> list[Reply]:
        """Run a batch; what execute raises is the failure of all its requests."""
        try:
            self._home.call(self._execute, replies)
        except BaseException:
            for reply in replies:
                reply.settle()
            raise
        return replies

    def stream(self, replies: list[Reply]) -> Later:
        """Begin a batch whose requests are answered by their senders, while it runs and after."""
        assert self._pump is not None, "only a decoupled model answers later"
        voices = [reply for reply in replies if not reply.call.is_null]
        return Later(self._pump, voices, lambda done: self._home.start(self._execute_decoupled, replies, done))

    def finalize(self) -> None:
        """Let the model say goodbye."""
        method = getattr(self._instance, "finalize", None)
        if callable(method):
            try:
                self._home.call(method)
            except BaseException:
                _log.exception("finalize of model %s failed", self._name)

    def _execute(self, replies: list[Reply]) -> None:
        self._run_batch([(reply, reply.request(self._outputs)) for reply in replies])

    def _run_batch(self, batch: Pairs) -> None:
        """Run requests and answer them; those that are to be run again are, after what waits already."""
        try:
            with _scope(batch, holds=True):
                result = self._call([request for _, request in batch])
                if not isinstance(result, list) and inspect.isawaitable(result):
                    errands.watch()  # it may wait for what others do
                    result = self._loop.run(result).result()
            _answer(batch, result)
        except BaseException as error:
            raise self._failed(error) from error
        if again := _rescheduled(batch):
            self._home.start(self._run_again, again)

    def _run_again(self, batch: Pairs) -> None:
        try:
            self._run_batch(batch)
        except BaseException as error:
            for reply, _ in batch:
                reply.fail(error)

    def _execute_decoupled(self, replies: list[Reply], done: Callable[[], None]) -> None:
        """Run a batch; `done` is called once execute has returned, or its coroutine was begun: others may run then."""
        try:
            self._begin([(reply, reply.request(self._outputs)) for reply in replies])
        finally:
            done()

    def _begin(self, batch: Pairs) -> None:
        scope = _scope(batch, holds=True)
        try:
            with scope:
                result = self._call([request for _, request in batch])
                if inspect.isawaitable(result):
                    scope.holds = False  # the next batch begins before it has ended
                    self._loop.run(result).add_done_callback(lambda done: self._ended(done.result, batch))
                    return
        except BaseException as error:
            self._fail(batch, error)
        else:
            self._ended(lambda: result, batch)

    def _ended(self, result: Callable[[], Any], batch: Pairs) -> None:
        try:
            self._check_nothing(result())
        except BaseException as error:
            self._fail(batch, error)
        else:
            if again := _rescheduled(batch):
                self._home.start(self._begin, again)

    def _call(self, requests: list[InferenceRequest]) -> Any:
        execute = getattr(self._instance, "execute", None)
        if execute is None:
            raise _Refused(f"Python model {self._file} does not implement `execute` method.")
        return execute(requests)

    def _check_nothing(self, result: Any) -> None:
        if result is not None:
            raise _Refused(
                f"Python model '{self._name}' is using the decoupled mode and the execute function must return None."
            )

    def _fail(self, batch: Pairs, error: BaseException) -> None:
        failure = self._failed(error)
        for reply, _ in batch:
            reply.fail(failure)

    def _failed(self, error: BaseException) -> BaseException:
        if failures.is_out_of_memory(error):
            return error
        text = str(error) if isinstance(error, _Refused) else told(error)
        failed = HandlerFailed(
            f"Failed to process the request(s) for model '{self._name}', message: {text}",
            status=tensors.INTERNAL,
            traceback="" if isinstance(error, _Refused) else failures.trimmed(error),
        )
        failed.__cause__ = error  # a lost device is known by it
        return failed


class _Refused(Exception):
    """What a model gave cannot be used; its text says all."""


def _scope(batch: Pairs, *, holds: bool) -> Scope:
    return Scope(lambda: not all(reply.is_left for reply, _ in batch), holds=holds)


def _answer(batch: Pairs, result: Any) -> None:
    """Give each request its response; None is for those that their sender answers, nothing at all for all of them."""
    responses = [None] * len(batch) if result is None else result
    if not isinstance(responses, list):
        raise _Refused(f"Expected a list in the execute return, found type '{type(responses)}'.")
    if len(responses) != len(batch):
        raise _Refused(
            "Number of InferenceResponse objects do not match the number of InferenceRequest objects. "
            f"InferenceRequest(s) size is:{len(batch)}, and InferenceResponse(s) size is:{len(responses)}\n"
        )
    for (_, request), response in zip(batch, responses, strict=True):
        if response is None:
            continue
        if request.release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE:
            raise _Refused(
                "Expected a None object in the execute function return list for reschduled request, found type "
                f"'{type(response)}'."
            )
        if not isinstance(response, InferenceResponse):
            raise _Refused(
                "Expected an 'InferenceResponse' object in the execute function return list, found type "
                f"'{type(response)}'."
            )
    for (reply, _), response in zip(batch, responses, strict=True):
        if response is not None:
            reply.send(response, True)


def _rescheduled(batch: Pairs) -> Pairs:
    """Give those that the model wants to see again and that somebody waits for."""
    again = [
        (reply, request)
        for reply, request in batch
        if request.release_flags == TRITONSERVER_REQUEST_RELEASE_RESCHEDULE and not reply.is_final and not reply.is_left
    ]
    for _, request in again:
        request.release_flags = TRITONSERVER_REQUEST_RELEASE_ALL
    return again


def find_file(config: ModelConfig) -> Path:
    """Give the model's file: in its version folder, else in the folder above, which all versions share."""
    try:
        return triton.model_file(config, "model.py")
    except LoadFailed:
        shared = Path(config.path).absolute().parent / (config.settings.get("default_model_filename") or "model.py")
        if shared.parent == Path(config.path).absolute().parent and shared.is_file():
            return shared
        raise


def import_model(file: Path, version_folder: Path) -> ModuleType:
    """Import a model's file as `<version>.<file>`, so that it finds the files beside it, with and without a dot."""
    finder.install(UTILS)
    for folder in (version_folder, version_folder.parent):
        if str(folder) not in sys.path:
            sys.path.append(str(folder))
        fresh.read_fresh(folder)
    package = file.parent.name
    parent = ModuleType(package)
    parent.__path__ = [str(file.parent)]
    sys.modules[package] = parent
    spec = fresh.spec_of(f"{package}.{file.stem}", file)
    if spec is None or spec.loader is None:
        raise LoadFailed(f"{file} is not a Python file")
    module = sys.modules[spec.name] = module_from_spec(spec)
    spec.loader.exec_module(module)
    return module


def initialize_arguments(config: ModelConfig, worker: str) -> dict[str, str]:
    """Give what initialize is called with; all of it is text."""
    kind, _, index = config.device.partition(":")
    name, is_model = instance_of(config, worker)
    return {
        "model_config": json.dumps(config.settings, separators=(",", ":")),
        "model_instance_kind": "GPU" if kind != "cpu" else "MODEL" if is_model else "CPU",
        "model_instance_name": name,
        "model_instance_device_id": (index or "0") if kind != "cpu" else "0",
        "model_repository": str(Path(config.path).absolute().parent),
        "model_version": config.version,
        "model_name": config.name,
    }


def instance_of(config: ModelConfig, worker: str) -> tuple[str, bool]:
    """Give the name of the instance that a worker is, by the groups of the configuration, and whether it is MODEL."""
    names = []
    for place, group in enumerate(config.settings.get("instance_group", [])):
        title = group.get("name") or f"{config.name}_{place}"
        is_model = group.get("kind") == "KIND_MODEL"
        for number in range(int(group.get("count", 1)) or 1):
            names += [(f"{title}_{number}", is_model)] * max(1, len(group.get("gpus", [])))
    text = worker.rpartition("-")[2]
    number = int(text) if text.isdecimal() else 0
    return names[number % len(names)] if names else (f"{config.name}_{number}", False)


def _make(file: Path, config: ModelConfig, arguments: dict[str, str]) -> Any:
    logger.show()
    helpers.set_model_dir(str(Path(config.path).absolute()))
    try:
        instance = getattr(import_model(file, Path(config.path).absolute()), CLASS)()
        initialize = getattr(instance, "initialize", None)
        if callable(initialize):
            initialize(arguments)
    except LoadFailed:
        raise
    except BaseException as error:  # SystemExit too
        kind = LoadOutOfMemory if failures.is_out_of_memory(error) else LoadFailed
        raise kind(told(error), failures.trimmed(error)) from error
    return instance


def told(error: BaseException) -> str:
    """Say what a model raised, and where, the innermost place first."""
    places = [
        f"  {frame.f_code.co_filename}({line}): {frame.f_code.co_name}\n"
        for frame, line in traceback.walk_tb(error.__traceback__)
        if not _is_ours(frame)
    ]
    return _line(error) + ("\n\nAt:\n" + "".join(reversed(places)) if places else "")


def _line(error: BaseException) -> str:
    try:
        text = str(error)
    except Exception:  # the user's exception fails when it is looked at
        text = ""
    return f"{type(error).__name__}: {text}"


_HOME = str(Path(__file__).parents[2])


def _is_ours(frame: FrameType) -> bool:
    file = frame.f_code.co_filename
    if str(frame.f_globals.get("__name__")).startswith("shoal."):  # a compiled module's file is another
        return True
    return file.startswith((_HOME, "<frozen ")) or "/concurrent/futures/" in file or "/asyncio/" in file
