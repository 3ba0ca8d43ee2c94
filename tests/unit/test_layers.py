"""Who may import whom. The table is the law; a departure from it is a change of this file, seen in review."""

import ast
import functools
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

SOURCE = Path(__file__).parents[2] / "src" / "shoal"
LONGEST = 400  # lines; a file past this is asked what second thing it is about

EVERYTHING = None
LAYERS: dict[str, set[str] | None] = {
    "errors": set(),
    "clock": set(),
    "version": set(),
    "redact": set(),
    "console": set(),
    "heap": set(),
    "payload": {"errors"},
    "answer": set(),
    "tensor": {"answer", "errors"},
    "timer": set(),
    "alarm": {"clock", "timer"},
    "config": {"errors", "payload", "clock", "heap"},
    "telemetry": {"errors", "payload", "clock", "redact"},
    "logs": {"errors", "redact"},
    "archive": {"errors", "config", "version"},
    "series": {"errors"},
    "core": {"errors", "clock", "config", "telemetry", "payload"},
    "wire": {"errors", "payload"},
    "frontend": {"answer", "tensor", "core", "payload", "config", "telemetry", "logs", "errors", "clock"},
    "fronts": {
        "config",
        "errors",
        "frontend",
        "heap",
        "payload",
        "telemetry",
        "version",
        "wire",
    },  # processes with clients
    "pool": {"core", "wire", "config", "telemetry", "clock", "errors", "payload"},
    "worker": {"answer", "heap", "tensor", "wire", "payload", "config", "errors", "version", "upstream"},
    "upstream": {"errors", "tensor", "version", "wire", "worker"},  # the modules that handlers of other servers import
    # model repositories, and models that ask others: those speak v2 as clients do
    "gpu": {"errors"},  # parts for handlers; they say `import shoal.gpu`
    "triton": {"answer", "archive", "clock", "config", "core", "errors", "frontend", "payload", "telemetry", "tensor"},
    "v2": {"clock", "config", "core", "frontend", "series", "telemetry", "triton"},
    "apis": {
        *("archive", "clock", "config", "core", "frontend", "fronts", "logs", "v2", "version", "workflows"),
    },  # what a server answers on, put together
    "board": {"core", "errors", "frontend", "payload", "pool", "tensor", "triton", "wire"},
    "startup": {"archive", "config", "core", "errors", "watch"},
    "watch": {"config", "core", "errors"},
    "signals": set(),
    "strain": {"config"},
    "measuring": {"config", "errors", "series", "telemetry"},
    "workflows": {"archive", "config", "core", "errors"},
    "launch": EVERYTHING,  # commands that start servers: ours and those of others
    "demo": {"errors", "payload", "worker"},  # user-style handlers: they say `import shoal`
    "embedded": {"core", "alarm", "clock", "errors", "payload", "telemetry", "config"},
    # a profile is a bare worker; the doctor reads what the servers read, by the same rules; gRPC loads need HTTP/2
    "tools": {
        *("archive", "config", "errors", "frontend", "payload", "redact", "triton", "upstream", "version", "wire"),
        *("console", "heap", "timer", "worker"),
    },
    "testing": EVERYTHING,
    "app": EVERYTHING,
    "native": EVERYTHING,
    "cli": EVERYTHING,
    "__main__": {"cli"},
    "__init__": {"errors", "version", "worker", "native", "embedded"},
}
FOR_TYPES_ONLY = {("telemetry", "core"), ("series", "core"), ("measuring", "core")}
TOP = {
    "app": {"launch", "native", "testing"},
    "native": {"launch", "testing", "__init__"},
    "launch": {"cli", "testing"},
    "cli": {"__main__"},
    "testing": set[str](),
    "__main__": set[str](),
}
MAY_IMPORT_LATE = ("worker/backends/", "upstream/", "pool/ray.py")
HEAVY = {"numpy", "torch", "onnxruntime", "onnx", "PIL", "sklearn", "ray", "tensorflow"}
IMPURE = {"asyncio", "multiprocessing", "os", "select", "signal", "socket", "ssl", "subprocess", "threading", "time"}
# these may use asyncio: they wait for pools
AWAITS = {"core/model.py", "core/repository.py", "core/rollout.py", "core/workflow.py"}


class Import(NamedTuple):
    """One imported module, and where."""

    file: str  # below src/shoal
    line: int
    module: str
    is_late: bool  # inside a function
    is_typing: bool  # under `if TYPE_CHECKING`

    @property
    def place(self) -> str:
        return f"src/shoal/{self.file}:{self.line} imports {self.module}"

    @property
    def layer(self) -> str:
        return layer_of(self.file)

    @property
    def target(self) -> str:
        """The layer it reaches into; empty when that is not ours."""
        ours, _, rest = self.module.partition(".")
        return (rest.split(".")[0] or "__init__") if ours == "shoal" else ""


def layer_of(file: str) -> str:
    return file.removesuffix(".py").split("/")[0]


def files() -> list[str]:
    return sorted(str(path.relative_to(SOURCE)) for path in SOURCE.rglob("*.py"))


def imports_of(file: str) -> Iterator[Import]:
    yield from _walk(file, ast.parse((SOURCE / file).read_text()), is_late=False, is_typing=False)


def _walk(file: str, node: ast.AST, *, is_late: bool, is_typing: bool) -> Iterator[Import]:
    for child in ast.iter_child_nodes(node):
        late = is_late or isinstance(child, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)
        typing = is_typing or (isinstance(child, ast.If) and "TYPE_CHECKING" in ast.dump(child.test))
        for module in _modules(child):
            yield Import(file, getattr(child, "lineno", 0), module, late, typing)
        yield from _walk(file, child, is_late=late, is_typing=typing)


def _modules(node: ast.AST) -> list[str]:
    if isinstance(node, ast.Import):
        return [alias.name for alias in node.names]
    if not isinstance(node, ast.ImportFrom):
        return []
    module = "." * node.level + (node.module or "")
    names = [f"shoal.{alias.name}" for alias in node.names]
    is_submodule = module == "shoal" and all(_exists(name) for name in names)
    return names if is_submodule else [module]


def _exists(module: str) -> bool:
    path = SOURCE.joinpath(*module.split(".")[1:])
    return path.is_dir() or path.with_suffix(".py").exists()


@functools.cache
def imports() -> list[Import]:
    return [found for file in files() for found in imports_of(file)]


def is_allowed(found: Import) -> bool:
    if not found.target or found.target in (found.layer, "__init__"):
        return True
    if found.is_typing and (found.layer, found.target) in FOR_TYPES_ONLY:
        return True
    if found.layer not in TOP.get(found.target, {found.layer}):
        return False
    allowed = LAYERS[found.layer]
    return allowed is EVERYTHING or found.target in allowed


def test_every_file_has_a_layer() -> None:
    assert {layer_of(file) for file in files()} <= LAYERS.keys()


def test_no_file_imports_a_layer_it_may_not() -> None:
    assert [found.place for found in imports() if not is_allowed(found)] == []


def test_no_submodule_imports_from_the_package_itself() -> None:
    """That one habit makes import cycles; handlers under demo/ are written as a user writes them."""
    from_package = [found for found in imports() if found.target == "__init__" and found.layer != "demo"]

    assert [found.place for found in from_package] == []


def test_no_import_is_relative() -> None:
    assert [found.place for found in imports() if found.module.startswith(".")] == []


def test_no_import_hides_inside_a_function() -> None:
    late = [found for found in imports() if found.is_late and not found.file.startswith(MAY_IMPORT_LATE)]

    assert [found.place for found in late] == []


def test_the_core_knows_no_socket_process_clock_or_tensor() -> None:
    forbidden = IMPURE | HEAVY
    impure = [
        found
        for found in imports()
        if found.layer == "core"
        and found.module.split(".")[0] in forbidden
        and not (found.module == "asyncio" and found.file in AWAITS)
    ]

    assert [found.place for found in impure] == []


def test_only_workers_and_parts_of_models_import_what_models_need() -> None:
    heavy = [
        found
        for found in imports()
        if found.module.split(".")[0] in HEAVY
        and not found.file.startswith(("worker/backends/", "upstream/", "demo/", "gpu/", "pool/ray.py"))
    ]

    assert [found.place for found in heavy] == []


def test_only_the_clock_and_the_edges_read_the_time() -> None:
    clocks = {"clock.py", "app.py", "telemetry.py", "pool/worker.py", "frontend/server.py", "frontend/hub.py"}
    front = [found for found in imports() if found.layer in {"core", "config", "wire", "archive", "payload", "errors"}]

    assert [found.place for found in front if found.module == "time" and found.file not in clocks] == []


def test_the_front_process_imports_no_numpy_no_framework_and_no_handler() -> None:
    code = "import shoal.cli, shoal.launch.serve, shoal.app, sys; print(' '.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    loaded = set(output.split())

    assert "shoal.core.scheduler" in loaded
    assert loaded & HEAVY == set()
    handlers = {"shoal.demo.ocr", "shoal.demo.bees", "shoal.demo.images", "shoal.demo.session", "shoal.worker.main"}
    assert loaded & handlers == set()


def test_a_worker_imports_nothing_of_the_front_process() -> None:
    code = "import shoal.worker.main, shoal.worker.template, sys; print(' '.join(sys.modules))"
    output = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True, timeout=60).stdout
    front = {f"shoal.{layer}" for layer in ("core", "frontend", "pool", "app", "cli", "telemetry")}

    assert {".".join(module.split(".")[:2]) for module in output.split()} & front == set()


def test_no_file_is_longer_than_one_subject() -> None:
    lengths = {file: len((SOURCE / file).read_text().splitlines()) for file in files()}

    assert {file: length for file, length in lengths.items() if length > LONGEST} == {}


@pytest.mark.parametrize(
    ("file", "text", "is_fine"),
    [
        ("core/x.py", "from shoal.frontend.http import HttpProtocol", False),
        ("core/x.py", "import shoal.pool.local", False),
        ("core/x.py", "from shoal import frontend", False),
        ("core/x.py", "def f():\n    from shoal.wire import memory", False),
        ("core/x.py", "from shoal.errors import ServingError", True),
        ("worker/x.py", "from shoal.core.batch import Batch", False),
        ("worker/x.py", "from shoal.telemetry import ModelStats", False),
        ("frontend/x.py", "from shoal.wire.memory import Arena", False),
        ("frontend/x.py", "from shoal.pool.local import LocalPool", False),
        ("pool/x.py", "from shoal.frontend.status import JSON", False),
        ("pool/x.py", "from shoal.app import App", False),
        ("wire/x.py", "from shoal.config.model import ModelConfig", False),
        ("telemetry.py", "from shoal.core.batch import Batch", False),
        ("telemetry.py", "if TYPE_CHECKING:\n    from shoal.core.batch import Batch", True),
        ("errors.py", "from shoal.payload import Part", False),
        ("testing/x.py", "from shoal.app import App", True),
        ("testing/x.py", "from shoal.cli import main", False),
        ("tools/x.py", "from shoal.core.batch import Batch", False),
    ],
)
def test_the_table_is_read_as_it_is_meant(file: str, text: str, is_fine: bool) -> None:
    found = list(_walk(file, ast.parse(text), is_late=False, is_typing=False))

    assert len(found) == 1
    assert is_allowed(found[0]) is is_fine
