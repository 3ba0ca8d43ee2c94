"""What a compiled wheel has besides the sources: the modules that every request passes, compiled by mypyc.

Only where it is asked for: `SHOAL_COMPILED=1 pip install .`; any other wheel is pure Python. The sources are
in both, and mean the same in both. `SHOAL_COMPILED_LEVEL` is the C compiler's optimisation, 3 where it is absent.
"""

import os
import re
import tempfile
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any, Final

from hatchling.builders.hooks.plugin.interface import BuildHookInterface

# What the front process and a worker run for every request and every batch, and what such code calls: modules that call
# each other are compiled together. Left out: what runs seldom (settings, management, pages), what mostly waits (pools,
# listeners), modules with structures of msgspec (a compiled class keeps too little of its annotations), and what users
# see of a worker (Handler, Context, the modules of other servers): they inherit from it and hang their own things on
# it. A class that others inherit from is compiled together with all of them, or not at all.
COMPILED: Final = {
    "core": (
        "adaptive batch batcher ceiling choice cohort comeback continuous cost cuts halves lessons levels line model "
        "order pace plan poison policy preferred queue relay repository request returns rounds running scheduler "
        "sequence slots source spread triage turns volleys"
    ),
    "": "alarm payload telemetry tensor",
    "embedded": "carried",
    "fronts": "call relay",
    "triton": "cached",
    "series": "recorder spans values",
    "pool": "link",
    "wire": "channel memory tray",
    "worker": "batch each failures home items lead link main outlet pipeline requests scope streams",
    "worker/backends": "tensors triton_python triton_replies",
    "frontend": "budget exchange fragments http hub incoming known mms noted phase refusals routes server timing",
    "frontend/kserve": "access answers asked blocks calls desk infer plan requests routes values",
    "frontend/grpc": "calls kserve kserve_calls kserve_tensors raw repeats",
    "frontend/http2": "answers call connection control flow frames heads hpack huffman messages served streams",
}  # by folder of the package

# How the sources are read here, where `make check` has found them right. Followed into what models need, which nothing
# compiled has types of, the compiler would check all of torch's functions: ten times the work for the same code.
TYPES: Final = """
[mypy]
mypy_path = src
explicit_package_bases = True
namespace_packages = True
ignore_missing_imports = True
[mypy-torch.*,onnx.*,onnxruntime.*,ray.*,PIL.*]
follow_imports = skip
"""

# What compiled code calls only as an exception passes. The C compiler puts all places that end there apart from the
# rest: a request passes fewer pages.
RARE: Final = "CPy_AddTraceback CPy_AttributeError CPy_Raise CPy_TypeError CPy_TypeErrorTraceback CPyError_OutOfMemory"
# Nobody calls into the extension but by its one entry: its functions call each other directly.
CLOSED: Final = ("-fvisibility=hidden", "-fno-semantic-interposition")


class CompiledHook(BuildHookInterface[Any]):
    """Adds the compiled modules to the wheel, where they are wanted."""

    PLUGIN_NAME = "custom"

    def dependencies(self) -> list[str]:
        """What compiling needs: the compiler, and the types of everything that is imported."""
        if not _is_wanted():
            return []
        return [*self.metadata.core.dependencies, "mypy>=2.4", "setuptools>=70", "types-PyYAML"]

    def initialize(self, version: str, build_data: dict[str, Any]) -> None:
        """Compile, and say that the wheel is one for this platform and this Python."""
        if not _is_wanted():
            return
        if version == "editable":
            raise ValueError("SHOAL_COMPILED is for wheels: an editable install runs the sources as they are")
        self._scratch = tempfile.TemporaryDirectory()
        modules = _compile(Path(self.root), Path(self._scratch.name), os.environ.get("SHOAL_COMPILED_LEVEL", "3"))
        build_data["force_include"].update(modules)
        build_data["pure_python"] = False
        build_data["infer_tag"] = True

    def finalize(self, version: str, build_data: dict[str, Any], artifact_path: str) -> None:
        """The wheel is written: forget what was compiled."""
        if _is_wanted():
            self._scratch.cleanup()


def _is_wanted() -> bool:
    return os.environ.get("SHOAL_COMPILED", "") not in ("", "0")


def _rare(runtime: Path) -> str:
    """Give a C header that says what is rare, of what there is in this version of mypyc's runtime."""
    there = (runtime / "CPy.h").read_text("utf-8")
    found = [name for name in RARE.split() if re.search(rf"\b{name}\(", there)]
    lines = [f"extern __typeof__({name}) {name} __attribute__((cold));" for name in found]
    return "\n".join(["#include <CPy.h>", *lines, ""])


def _compile(root: Path, scratch: Path, level: str) -> dict[str, str]:
    """Compile the modules; gives where each file is, and its place in the wheel."""
    from mypyc.build import include_dir, mypycify
    from setuptools import Distribution
    from setuptools.command.build_ext import build_ext

    class AtOnce(build_ext):
        """Compiles the files of an extension side by side: nearly all of them belong to one."""

        def build_extensions(self) -> None:
            compile = self.compiler.compile
            with ThreadPoolExecutor(os.cpu_count()) as threads:
                self.compiler.compile = lambda sources, **options: [
                    made for each in threads.map(lambda one: compile([one], **options), sources) for made in each
                ]
                super().build_extensions()

    package = Path("src/shoal")
    sources = [str(package / folder / f"{name}.py") for folder, names in COMPILED.items() for name in names.split()]
    before = Path.cwd()
    os.chdir(root)  # module names are made from paths as they are given
    try:
        settings = scratch / "types.ini"
        settings.write_text(TYPES)
        extensions = mypycify(
            ["--config-file", str(settings), "--cache-dir", str(scratch / "types"), *sources],
            opt_level=level,
            debug_level="0",
            target_dir=str(scratch / "c"),
            group_name="shoal",
            multi_file=True,  # one file of everything takes the C compiler three times as long
        )
        if os.name == "posix":  # where compilers take gcc's options
            rare = scratch / "rare.h"
            rare.write_text(_rare(Path(include_dir())))
            for extension in extensions:
                if include_dir() in extension.include_dirs:  # the one with the code; the others are entries into it
                    extension.extra_compile_args = [*extension.extra_compile_args, *CLOSED, "-include", str(rare)]
        project = Distribution({"name": "shoal", "ext_modules": extensions, "cmdclass": {"build_ext": AtOnce}})
        command = project.get_command_obj("build_ext")
        command.build_lib, command.build_temp = str(scratch / "built"), str(scratch / "objects")
        command.ensure_finalized()
        command.run()
    finally:
        os.chdir(before)
    built = scratch / "built"
    return {str(file): str(file.relative_to(built)) for file in built.rglob("*") if file.is_file()}
