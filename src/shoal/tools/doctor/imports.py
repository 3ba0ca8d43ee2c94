"""What Python files import, read and never run: a module that is not there is found before a worker looks for it."""

import ast
import importlib.util
import re
import sys
from collections.abc import Collection, Iterator
from pathlib import Path

import msgspec

from shoal.tools.doctor.findings import Finding
from shoal.upstream.finder import NOT_PROVIDED, ROOT

PROVIDED = ("ts", "mms", "triton_python_backend_utils", "shoal")
PACKAGES = {
    "cv2": "opencv-python",
    "PIL": "pillow",
    "yaml": "pyyaml",
    "sklearn": "scikit-learn",
    "bs4": "beautifulsoup4",
}
LARGEST = 4 * 2**20  # bytes of a file that is read
MOST_FILES = 500
_WHY = re.compile(r'^\s*why = "([^"]+)"', re.MULTILINE)


class Used(msgspec.Struct, frozen=True):
    """A module that a file imports; one that is guarded or inside a function is perhaps never asked for."""

    module: str
    file: str
    line: int
    is_certain: bool


def check_imports(folder: Path, start: Path, installed: Collection[str] = ()) -> list[Finding]:
    """Look at a file and at what it imports of its own folder; `installed` are packages that it will be given."""
    try:
        found = list(_all(folder, start))
    except SyntaxError as error:
        return [
            Finding("fails", f"{start.name} line {error.lineno}: it is no Python 3: {error.msg}", "correct the file")
        ]
    findings: dict[str, Finding] = {}
    for used in sorted(found, key=lambda used: not used.is_certain):
        finding = _judge(used, folder, {_plain(name) for name in installed})
        if finding is not None:
            findings.setdefault(used.module, finding)
    return list(findings.values())


def _all(folder: Path, start: Path) -> Iterator[Used]:
    """Everything that a file and those beside it ask for; a neighbour that only a guarded import wants counts too."""
    waiting, seen = [start], {start}
    while waiting and len(seen) <= MOST_FILES:
        file = waiting.pop()
        for used in imports_in(file):
            near = _neighbour(folder, used.module)
            if near is None:
                yield used
            elif near not in seen:
                seen.add(near)
                waiting.append(near)


def imports_in(file: Path) -> list[Used]:
    """Read the imports of one file. SyntaxError where it is no Python."""
    if file.stat().st_size > LARGEST:
        return []
    source = file.read_bytes()
    try:
        tree = ast.parse(source, file.name)
    except ValueError as error:  # a NUL in it
        raise SyntaxError(str(error)) from None
    return list(_walk(tree, file.name, is_certain=True))


def _walk(node: ast.AST, file: str, *, is_certain: bool) -> Iterator[Used]:
    for child in ast.iter_child_nodes(node):
        is_guard = isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda | ast.Try | ast.If)
        if isinstance(child, ast.Import):
            yield from (Used(alias.name, file, child.lineno, is_certain) for alias in child.names)
        elif isinstance(child, ast.ImportFrom) and not child.level and child.module:
            yield Used(child.module, file, child.lineno, is_certain)
        yield from _walk(child, file, is_certain=is_certain and not is_guard)


def _neighbour(folder: Path, module: str) -> Path | None:
    """The file of a module that comes along with the model."""
    top = folder.joinpath(*module.split("."))
    for path in (top.with_suffix(".py"), top / "__init__.py", folder / f"{module.split('.')[0]}.py"):
        if path.is_file():
            return path
    first = folder / module.split(".")[0]
    return first / "__init__.py" if (first / "__init__.py").is_file() else None


def _judge(used: Used, folder: Path, installed: Collection[str]) -> Finding | None:
    top = used.module.split(".")[0]
    where = f"{used.file} line {used.line}"
    if top in ("ts", "mms"):
        return _upstream(used, where)
    if top in PROVIDED or top in sys.stdlib_module_names or top == "__future__" or (folder / top).is_dir():
        return None
    if _plain(top) in installed or _plain(PACKAGES.get(top, top)) in installed or _is_here(top):
        return None
    package = PACKAGES.get(top, top)
    text = f"{where} imports {used.module}, which is not installed here"
    change = f"pip install {package} into the server's environment, or add it to the archive's requirements"
    if used.is_certain:
        return Finding("fails", text, change)
    return Finding("differs", f"{text}; it is asked for only when that line is reached", change)


def _upstream(used: Used, where: str) -> Finding | None:
    """A module of TorchServe or MMS: most are inside Shoal's workers."""
    named = used.module
    while named:
        if named in NOT_PROVIDED:
            return Finding("fails", f"{where} imports {used.module}: {NOT_PROVIDED[named]}", "leave this import out")
        named = named.rpartition(".")[0]
    if reason := missing_handler(used.module):
        return Finding("fails", f"{where} imports {used.module}: {reason}")
    path = ROOT.joinpath(*used.module.split("."))
    if path.with_suffix(".py").is_file() or path.is_dir():
        return None
    return Finding("fails", f"{where} imports {used.module}, which is not among the modules that workers have")


def missing_handler(module: str) -> str:
    """Say why a handler of TorchServe's own is not provided; empty: it is, or it is no handler."""
    file = ROOT.joinpath(*module.split(".")).with_suffix(".py")
    if not file.is_file():
        return ""
    found = _WHY.search(file.read_text())
    return found[1] if found else ""


def _is_here(top: str) -> bool:
    try:
        return importlib.util.find_spec(top) is not None
    except (ImportError, ValueError):
        return top in sys.modules


def _plain(name: str) -> str:
    return re.sub(r"[-_.]+", "-", name).lower()
