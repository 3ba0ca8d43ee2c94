"""A Python file or folder to a program: import it, find its handler, initialise it, or say what is wrong with it."""

import difflib
import importlib.util
import inspect
import json
import os
import sys
import traceback
from pathlib import Path
from types import ModuleType
from typing import Any

from shoal.config.model import ModelConfig
from shoal.errors import LoadFailed, LoadOutOfMemory
from shoal.worker import failures, forms, fresh
from shoal.worker.handler import Context, Handler
from shoal.worker.program import Program

METHODS = ("initialize", "preprocess", "inference", "postprocess", "decode", "decode_batch", "encode", "handle")
DEFAULT_FILES = ("model.py", "handler.py")
EXAMPLE = "write `def predict(items): return [... for item in items]`, or a class with a method `inference(self, data)`"


def load(config: ModelConfig, worker: str) -> Program:
    """Make the program of a model; LoadFailed says what a newcomer can do about it."""
    os.environ.update(config.environment)
    path = Path(config.path).absolute()
    file, name = locate(path, config.handler)
    folder = path if path.is_dir() else file.parent
    if str(folder) not in sys.path:
        sys.path.insert(0, str(folder))
    fresh.read_fresh(folder)
    if path.is_dir():
        os.chdir(path)
    module = import_file(file, f"shoal_model_{''.join(c if c.isalnum() else '_' for c in config.name)}")
    found_name, found = find(module, file, name)
    context = Context(config, worker, str(folder), read_manifest(folder, config, found_name))
    try:
        target = found() if isinstance(found, type) else found
        forms.initialize(target, context)
    except BaseException as error:
        raise failed(error, file, f"{found_name} could not be initialised: ") from error
    return forms.make_program(target, found_name, context)


def locate(path: Path, handler: str) -> tuple[Path, str]:
    """The file to import and the name to look for in it (empty: find it), from a path and a `handler` setting."""
    if not path.exists():
        raise LoadFailed(f"{path} does not exist; give a Python file, or a folder with a model.py in it")
    file_name, colon, name = handler.rpartition(":")
    if not colon:
        is_file = handler.endswith(".py") or (path.is_dir() and (path / f"{handler}.py").is_file())
        file_name, name = (handler, "") if is_file else ("", handler)
    folder = path if path.is_dir() else path.parent
    if file_name:
        file = folder / f"{Path(file_name).name.removesuffix('.py')}.py"
        if not file.is_file():
            raise LoadFailed(f"handler {handler!r} names {file.name}, and {folder} has {_python_files(folder)}")
        return file, name
    return (path if path.is_file() else _default_file(path)), name


def _default_file(folder: Path) -> Path:
    for name in DEFAULT_FILES:
        if (folder / name).is_file():
            return folder / name
    files = sorted(folder.glob("*.py"))
    if len(files) == 1:
        return files[0]
    raise LoadFailed(
        f"{folder} needs a model.py or a handler.py, or exactly one Python file; it has {_python_files(folder)}. "
        f"Or name it: shoal serve {folder} --handler FILE.py:NAME"
    )


def _python_files(folder: Path) -> str:
    return ", ".join(sorted(file.name for file in folder.glob("*.py"))) or "no Python file"


def import_file(file: Path, name: str) -> ModuleType:
    """Import a file under a private name."""
    spec = fresh.spec_of(name, file)
    if spec is None or spec.loader is None:
        raise LoadFailed(f"{file} is not a Python file; give a .py file, or a folder with a model.py in it")
    module = importlib.util.module_from_spec(spec)
    sys.modules[name] = module
    try:
        spec.loader.exec_module(module)
    except BaseException as error:  # SystemExit too: a script without a main guard
        raise failed(error, file, "") from error
    return module


def find(module: ModuleType, file: Path, name: str) -> tuple[str, Any]:
    """The handler of a module and its name: the one named, else the best that the file defines."""
    if name:
        return name, _named(module, file, name)
    for rank in _ranks(module):
        if len(rank) == 1:
            return rank[0]
        if rank:
            names = ", ".join(found for found, _ in rank)
            raise LoadFailed(
                f"{file.name} has more than one handler: {names}. "
                f"Say which: shoal serve {file.name} --handler {rank[0][0]}"
            )
    raise LoadFailed(_nothing(module, file))


def _ranks(module: ModuleType) -> list[list[tuple[str, Any]]]:
    """What could be meant, the likeliest first."""
    classes, functions = _own(module, inspect.isclass), _own(module, inspect.isfunction)
    handlers = [(name, kind) for name, kind in classes if issubclass(kind, Handler)]
    leaves = [(name, kind) for name, kind in handlers if not any(kind in other.__mro__[1:] for _, other in handlers)]
    complete = [(name, kind) for name, kind in leaves if not _problem(kind)]
    return [
        complete,
        [(name, kind) for name, kind in classes if not issubclass(kind, Handler) and not _problem(kind)],
        [pair for pair in functions if pair[0] == "handle"],
        [pair for pair in functions if pair[0] == "predict"],
        [] if leaves else functions,
    ]


def _own(module: ModuleType, kind: Any) -> list[tuple[str, Any]]:
    """What the module itself defines for others to see, in the order of the file."""
    return [
        (name, value)
        for name, value in vars(module).items()
        if not name.startswith("_") and kind(value) and value.__module__ == module.__name__
    ]


def _problem(kind: type) -> str:
    """What a class lacks to be a handler; empty if nothing."""
    if callable(getattr(kind, "handle", None)):
        return ""
    inference = getattr(kind, "inference", None)
    if callable(inference) and inference is not Handler.inference:
        return ""
    defined = [name for name in vars(kind) if not name.startswith("_") and callable(getattr(kind, name))]
    close = {name: match[0] for name in defined if name not in METHODS
             and (match := difflib.get_close_matches(name, METHODS, 1, 0.5))}  # fmt: skip
    listed = ", ".join(f"{name} (did you mean {close[name]}?)" if name in close else name for name in defined)
    return f"has no method `inference`; it defines: {listed or 'nothing'}"


def _named(module: ModuleType, file: Path, name: str) -> Any:
    found = getattr(module, name, None)
    if found is None:
        names = [known for known, _ in _own(module, callable)]
        close = difflib.get_close_matches(name, names, 1)
        raise LoadFailed(
            f"{file.name} has no {name!r}; it defines: {', '.join(names) or 'nothing'}"
            + (f" (did you mean {close[0]}?)" if close else "")
        )
    if inspect.isroutine(found):
        return found
    if problem := _problem(found if isinstance(found, type) else type(found)):
        what = "class " if isinstance(found, type) else ""
        raise LoadFailed(f"{what}{name} in {file.name} {problem}")
    return found


def _nothing(module: ModuleType, file: Path) -> str:
    classes, functions = _own(module, inspect.isclass), _own(module, inspect.isfunction)
    if handlers := [(name, kind) for name, kind in classes if issubclass(kind, Handler)]:
        classes, functions = handlers, []
    if len(classes) == 1 and not functions:
        return f"class {classes[0][0]} in {file.name} {_problem(classes[0][1])}. Add `def inference(self, data)`"
    lines = [f"class {name} {_problem(kind)}" for name, kind in classes]
    lines += [f"function {name}" for name, _ in functions]
    return (
        f"{file.name} has no handler; it has {'; '.join(lines) or 'no class and no function'}. To make one, {EXAMPLE}"
    )


def failed(error: BaseException, file: Path, prefix: str) -> LoadFailed:
    """Where in the user's files it went wrong, and what, in one line; the traceback without our frames."""
    if isinstance(error, LoadFailed):
        return error
    text = " ".join(str(error).split())
    name, line = _place(error, file)
    if isinstance(error, SyntaxError):
        text = error.msg
    elif not isinstance(error, ImportError):
        text = failures.summary(error)
    where = f"{name} line {line}: " if line else f"{name}: "
    kind = LoadOutOfMemory if failures.is_out_of_memory(error) else LoadFailed
    return kind(f"{where}{prefix}{text}", failures.trimmed(error) or "".join(traceback.format_exception_only(error)))


def _place(error: BaseException, file: Path) -> tuple[str, int]:
    """The last line beside the model's file that took part."""
    if isinstance(error, SyntaxError) and error.filename:
        return Path(error.filename).name, error.lineno or 0
    place = (file.name, 0)
    for frame, line in traceback.walk_tb(error.__traceback__):
        if Path(frame.f_code.co_filename).is_relative_to(file.parent):
            place = (Path(frame.f_code.co_filename).name, line)
    return place


def read_manifest(folder: Path, config: ModelConfig, handler: str) -> dict[str, Any]:
    """The manifest of an unpacked archive, or one that says the same of a plain folder."""
    manifest = folder / "MAR-INF" / "MANIFEST.json"
    if manifest.is_file():
        try:
            read = json.loads(manifest.read_bytes())
        except ValueError as error:
            raise LoadFailed(f"{manifest} is not valid JSON: {error}") from error
        if isinstance(read, dict):
            return read
    return {"model": {"modelName": config.name, "modelVersion": config.version, "handler": handler}}
