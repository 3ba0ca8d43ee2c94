"""Makes `import ts...` and `import mms...` give the modules of this package: one module object under both names.

Installed in workers that load a model of another server's kind, before all other finders: were that server itself
installed beside us, its modules would expect a process that is not there.
"""

import importlib
import sys
from collections.abc import Iterable, Sequence
from importlib.abc import Loader, MetaPathFinder
from importlib.machinery import ModuleSpec
from pathlib import Path
from types import ModuleType

HOME = "shoal.upstream"
ROOT = Path(__file__).parent

_MXNET = "it needs Apache MXNet, which is retired; move the model to the current archive format and another framework"
_SERVER = "it belongs to the server's own process; a worker has no use for it"
HANDLERS = (
    "base_handler",
    "dali_image_classifier",
    "densenet_handler",
    "image_classifier",
    "image_segmenter",
    "object_detector",
    "text_classifier",
    "text_handler",
    "vision_handler",
    "vllm_handler",
)
NOT_PROVIDED = {
    "ts.launcher": "it starts a server from a client's script; inside a worker one is running already",
    "ts.llm_launcher": "it starts a server from a client's script; inside a worker one is running already",
    "ts.model_server": _SERVER,
    "ts.model_service_worker": _SERVER,
    "ts.model_loader": _SERVER,
    "ts.arg_parser": _SERVER,
    "ts.async_service": _SERVER,
    "ts.metrics.metric_collector": _SERVER,
    "ts.metrics.system_metrics": _SERVER,
    "ts.metrics.process_memory_metric": _SERVER,
    "ts.handler_utils.preprocess": "it needs NVIDIA DALI pipelines, which are not run here",
    "mms.model_server": _SERVER,
    "mms.model_service_worker": _SERVER,
    "mms.model_loader": _SERVER,
    "mms.arg_parser": _SERVER,
    "mms.export_model": "archives are made by model-archiver or `shoal archive`",
    "mms.model_service.mxnet_model_service": _MXNET,
    "mms.model_service.mxnet_vision_service": _MXNET,
    "mms.model_service.gluon_vision_service": _MXNET,
    "mms.utils.mxnet": _MXNET,
}


def install(*names: str) -> None:
    """Give these packages (`ts`, `mms`) to whoever imports them from now on."""
    finder = next((found for found in sys.meta_path if isinstance(found, Finder)), None)
    if finder is None:
        finder = Finder()
    else:
        sys.meta_path.remove(finder)
    sys.meta_path.insert(0, finder)
    finder.names.update(names)
    for module in [module for module in sys.modules if module.partition(".")[0] in names]:
        if sys.modules[module] is not sys.modules.get(f"{HOME}.{module}"):
            del sys.modules[module]  # the installed server's, imported by chance


def uninstall() -> None:
    """Take it back, for processes that go on with something else."""
    names = {name for found in sys.meta_path if isinstance(found, Finder) for name in found.names}
    sys.meta_path[:] = [found for found in sys.meta_path if not isinstance(found, Finder)]
    for module in [module for module in sys.modules if module.partition(".")[0] in names]:
        del sys.modules[module]


class Finder(MetaPathFinder):
    """Finds `ts.x` where `shoal.upstream.ts.x` is."""

    def __init__(self) -> None:
        self.names: set[str] = set()

    def find_spec(
        self, fullname: str, path: Sequence[str] | None = None, target: ModuleType | None = None
    ) -> ModuleSpec | None:
        """Give the spec of one of ours; ModuleNotFoundError, saying why, for what those packages lack here."""
        if fullname.partition(".")[0] not in self.names:
            return None
        folder = ROOT.joinpath(*fullname.split("."))
        if folder.with_suffix(".py").is_file() or (folder / "__init__.py").is_file():
            return ModuleSpec(fullname, _SameModule(f"{HOME}.{fullname}"))
        raise ModuleNotFoundError(explain(fullname), name=fullname)


class _SameModule(Loader):
    """Loads a module by importing it under the name it has here."""

    def __init__(self, real: str) -> None:
        self._real = real
        self._spec: ModuleSpec | None = None

    def create_module(self, spec: ModuleSpec) -> ModuleType:
        module = importlib.import_module(self._real)
        self._spec = module.__spec__
        return module

    def exec_module(self, module: ModuleType) -> None:
        module.__spec__ = self._spec  # the import system has just put the other name there


def explain(name: str) -> str:
    """Say why there is no module of this name."""
    for known, reason in NOT_PROVIDED.items():
        if name == known or name.startswith(f"{known}."):
            return f"{known} is not provided: {reason}"
    parent = name.rpartition(".")[0]
    return f"no module {name!r} is provided; {parent} has: {', '.join(sorted(_names_in(parent))) or 'no modules'}"


def _names_in(package: str) -> Iterable[str]:
    folder = ROOT.joinpath(*package.split("."))
    for entry in folder.iterdir() if folder.is_dir() else ():
        if entry.is_dir() and (entry / "__init__.py").is_file():
            yield entry.name
        elif entry.suffix == ".py" and entry.stem != "__init__":
            yield entry.stem


def handlers() -> list[str]:
    """The names of the handlers that come with TorchServe, such as image_classifier."""
    return [name for name in HANDLERS if (ROOT / "ts" / "torch_handler" / f"{name}.py").is_file()]
