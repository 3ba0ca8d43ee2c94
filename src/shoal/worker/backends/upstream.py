"""A TorchServe or MMS archive to a program: its handler is found, initialised and called as that server would."""

import importlib
import json
import logging
import os
import sys
import time
from collections.abc import Callable
from pathlib import Path, PurePath
from types import ModuleType
from typing import Any

from shoal.config.model import ModelConfig
from shoal.errors import LoadFailed, LoadOutOfMemory
from shoal.upstream import finder
from shoal.upstream.mms.model_service.model_service import ModelService
from shoal.upstream.ts.torch_handler.request_envelope.base import BaseEnvelope
from shoal.upstream.ts.utils.util import list_classes_from_module
from shoal.worker import forms, fresh
from shoal.worker.backends import python
from shoal.worker.continuous import judge
from shoal.worker.items import Written, read_raw_rows, read_rows
from shoal.worker.process import leave
from shoal.worker.program import Program, Stage
from shoal.worker.upstream_answers import Flavour, is_out_of_memory, refused, written
from shoal.worker.upstream_context import Batches, Meter, OfMms, OfTorchServe, UpstreamContext

HANDLE = "handle"
METRICS_FILE = "TS_METRICS_CONFIG"  # the environment's name for the file that declares metrics, upstream's own
ALLOW_PICKLE = "SHOAL_ALLOW_PICKLE"  # how TorchServe's own handlers hear of `allow_pickle`
_log = logging.getLogger("shoal.worker")


def load(config: ModelConfig, worker: str) -> Program:
    """Make the program of an unpacked archive; LoadFailed says what is wrong with it."""
    flavour: Flavour = "mms" if config.flavour == "mms" else "torchserve"
    folder, handler = _home(config)
    name, function = split(handler)
    _settle(config, flavour, folder, handler)
    file = folder / f"{name}.py"
    module = _import(name, folder, flavour)
    batches, meter = Batches(), Meter()
    manifest = read_manifest(folder, flavour)
    context: UpstreamContext
    try:
        if flavour == "mms":
            context = OfMms(config, str(folder), manifest, batches, meter)
        else:
            context = OfTorchServe(config, str(folder), manifest, batches, meter, os.environ.get(METRICS_FILE, ""))
        label, handle = _entry_point(module, file, function, flavour, context)
    except BaseException as error:
        raise _failed(error, file, flavour, "") from error
    call = EntryPoint(handle, envelope(config.envelope), context, batches, flavour, is_continuous=config.continuous)
    stage = Stage("inference", label, call, gives_rows=True)
    read = read_rows if config.decode_input else read_raw_rows
    return Program(label, (stage,), read, batches, wants_headers=True, take_measures=meter.take)


def split(handler: str) -> tuple[str, str]:
    """The module and the function that a handler setting names: module[.py][:function], directories do not count."""
    file, _, function = handler.partition(":") if handler.count(":") == 1 else (handler, "", "")
    return PurePath(file).name.removesuffix(".py"), function or HANDLE


class EntryPoint:
    """Calls the handler for a batch."""

    def __init__(
        self,
        handle: Callable[[Any, Any], Any],
        envelope: type[BaseEnvelope] | None,
        context: UpstreamContext,
        batches: Batches,
        flavour: Flavour,
        *,
        is_continuous: bool = False,
    ) -> None:
        self._handle = forms.plain(handle)
        self._envelope = envelope
        self._context = context
        self._metrics = context.metrics
        self._batches = batches
        self._flavour = flavour
        self._is_continuous = is_continuous

    def __call__(self, rows: list[Any]) -> list[Written]:
        """Give the bytes of every answer, or raise what all requests of the batch are told."""
        started = time.perf_counter()
        handle = self._envelope(self._handle).handle if self._envelope else self._handle  # it keeps what a call needs
        count, is_judged = len(rows), False
        try:
            result = handle(rows, self._context)
            if self._is_continuous:
                criteria = getattr(self._context, "stopping_criteria", None)  # MMS has none
                is_judged = judge(criteria, result, self._batches.processors())
        except SystemExit as left:  # upstream's way to have the worker replaced
            _log.error("the handler ended the process")
            leave(left.code if isinstance(left.code, int) else int(left.code is not None))
        except BaseException as error:
            raise refused(error, self._flavour) from error
        elapsed = (time.perf_counter() - started) * 1000
        answers = written(result, count)
        if not is_judged:
            self._batches.end_streams()
        self._metrics.add_time("PredictionTime", round(elapsed, 2), None, "ms")
        return answers


def envelope(name: str) -> type[BaseEnvelope] | None:
    """The envelope of this name; None for no name."""
    if not name:
        return None
    module = importlib.import_module(f"{finder.HOME}.ts.torch_handler.request_envelope.{name}")
    (found,) = list_classes_from_module(module, BaseEnvelope)
    return found


def read_manifest(folder: Path, flavour: Flavour) -> dict[str, Any] | None:
    """The archive's manifest; None where there is none. Archives of MMS 0.x have it in their root."""
    for file in (folder / "MAR-INF" / "MANIFEST.json", *([folder / "MANIFEST.json"] if flavour == "mms" else [])):
        if file.is_file():
            try:
                manifest = json.loads(file.read_bytes())
            except ValueError as error:
                raise LoadFailed(f"{file} is not valid JSON: {error}") from error
            if not isinstance(manifest, dict):
                raise LoadFailed(f"{file} must hold an object")
            return manifest
    return None


def _home(config: ModelConfig) -> tuple[Path, str]:
    """The model's folder and the handler it is to have."""
    path = Path(config.path).absolute()
    if path.is_file():
        return path.parent, config.handler or path.name
    if not path.is_dir():
        raise LoadFailed(f"{path} does not exist; give the folder of an unpacked archive")
    handler = config.handler
    if not handler and (manifest := read_manifest(path, "mms" if config.flavour == "mms" else "torchserve")):
        handler = _text_in(manifest, "model", "handler") or _text_in(manifest, "Model", "Service")
    if not handler:
        raise LoadFailed(f"{path} has no manifest that names a handler, and the registration named none")
    return path, handler


def _text_in(manifest: dict[str, Any], section: str, key: str) -> str:
    values = manifest.get(section)
    value = values.get(key) if isinstance(values, dict) else None
    return value if isinstance(value, str) else ""


def _settle(config: ModelConfig, flavour: Flavour, folder: Path, handler: str) -> None:
    """Give the process the folder, path, environment and logging that such handlers expect."""
    os.environ.update(config.environment)
    if flavour == "torchserve":
        os.environ["TS_DECODE_INPUT_REQUEST"] = str(config.decode_input).lower()
        os.environ.setdefault("TS_IPEX_ENABLE", "false")
        os.environ.setdefault("TS_IPEX_GPU_ENABLE", "false")
    os.environ[ALLOW_PICKLE] = "1" if config.allow_pickle else "0"
    os.chdir(folder)
    ahead = set(os.environ.get("PYTHONPATH", "").split(os.pathsep))
    if str(folder) not in sys.path:
        after = [index + 1 for index, entry in enumerate(sys.path) if entry and entry in ahead]
        sys.path.insert(max(after, default=0), str(folder))
    fresh.read_fresh(folder)
    beside, home = (folder / handler.partition(":")[0]).parent.resolve(), folder.resolve()
    if ":" in handler and beside != home and beside.is_relative_to(home) and beside.is_dir():
        sys.path.insert(0, str(beside))
        fresh.read_fresh(beside)
    own, other = ("mms", "ts") if flavour == "mms" else ("ts", "mms")
    is_taken = (folder / f"{other}.py").exists() or (folder / other).is_dir()  # a module of the model's own
    finder.install(own, *(() if is_taken else (other,)))
    _let_logs_be_seen()


def _let_logs_be_seen() -> None:
    """Upstream shows what handlers log from INFO on, bare, as output; what Shoal logs stays apart."""
    if not logging.root.handlers:
        logging.basicConfig(stream=sys.stdout, format="%(message)s", level=logging.INFO)
        ours = logging.getLogger("shoal.worker")
        if not ours.handlers:
            ours.addHandler(logging.StreamHandler(sys.stderr))
        ours.propagate = False


def _import(name: str, folder: Path, flavour: Flavour) -> ModuleType:
    """Import a handler's module; a name that is not there may be one of the handlers that TorchServe brings."""
    file = folder / f"{name}.py"
    if file.is_file() and _is_other(sys.modules.get(name), file):
        raise LoadFailed(f"{file.name} has the name of a module that is in use already; give it another name")
    try:
        return importlib.import_module(name)
    except ImportError as error:
        original = error
    except BaseException as error:  # SystemExit too: a script without a main guard
        raise _failed(error, file, flavour, "") from error
    is_missing = isinstance(original, ModuleNotFoundError) and original.name == name
    if flavour == "torchserve" and name in finder.handlers():
        try:
            found = importlib.import_module(f"ts.torch_handler.{name}")
        except ImportError as error:
            shown = error if is_missing else original
            raise _failed(shown, file, flavour, "") from shown
        if not is_missing:
            _log.warning("%s cannot be imported (%s); TorchServe's own %s is used instead", file.name, original, name)
        return found
    if not is_missing:
        raise _failed(original, file, flavour, "") from original
    files = ", ".join(sorted(entry.name for entry in folder.glob("*.py"))) or "no Python file"
    brought = f"; TorchServe brings {', '.join(finder.handlers())}" if flavour == "torchserve" else ""
    raise LoadFailed(f"no module is named {name!r}: {folder} has {files}{brought}", str(original)) from original


def _is_other(module: ModuleType | None, file: Path) -> bool:
    return module is not None and Path(getattr(module, "__file__", None) or "").absolute() != file


def _entry_point(
    module: ModuleType, file: Path, function: str, flavour: Flavour, context: UpstreamContext
) -> tuple[str, Callable[[Any, Any], Any]]:
    """Find what is called for each batch, and let it initialise itself."""
    if hasattr(module, function):
        handle: Callable[[Any, Any], Any] = getattr(module, function)
        if not callable(handle):
            raise LoadFailed(f"{function} in {file.name} must be a function of the data and the context")
        _initialize(lambda: forms.plain(handle)(None, context), file, flavour, function)
        return function, handle
    classes = list_classes_from_module(module)
    if len(classes) != 1:
        names = ", ".join(each.__name__ for each in classes) or "no class"
        raise LoadFailed(
            f"{file.name} has no function {function!r}, so it must define exactly one class; it defines {names}"
        )
    name = classes[0].__name__
    service = _initialize(lambda: _instance(classes[0], context), file, flavour, name)
    initialize = getattr(service, "initialize", None)
    for method in (HANDLE, *(["initialize"] if flavour == "torchserve" else [])):
        if not callable(getattr(service, method, None)):
            raise LoadFailed(
                f"class {name} in {file.name} must have the methods handle and initialize; {method} is missing"
            )
    if callable(initialize):
        _initialize(lambda: forms.plain(initialize)(context), file, flavour, name)
    return f"{name}.{HANDLE}", service.handle


def _instance(kind: type, context: UpstreamContext) -> Any:
    if issubclass(kind, ModelService):  # of an archive of MMS 0.x
        properties = context.system_properties
        return kind(context.model_name, properties["model_dir"], context.manifest, properties["gpu_id"])
    return kind()


def _initialize(call: Callable[[], Any], file: Path, flavour: Flavour, name: str) -> Any:
    try:
        return call()
    except BaseException as error:
        raise _failed(error, file, flavour, f"{name} could not be initialised: ") from error


def _failed(error: BaseException, file: Path, flavour: Flavour, prefix: str) -> LoadFailed:
    described = python.failed(error, file, prefix)
    is_short = is_out_of_memory(error, flavour) if isinstance(error, RuntimeError | MemoryError) else False
    if is_short and not isinstance(described, LoadOutOfMemory):
        return LoadOutOfMemory(str(described), described.traceback)
    return described
