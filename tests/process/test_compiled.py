"""The compiled build: what mypyc makes of the sources passes the tests that the sources pass."""

import os
import runpy
import shutil
import subprocess
import sys
import sysconfig
import zipfile
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
PIP = [sys.executable, "-m", "pip", "--quiet", "--disable-pip-version-check"]
GENTLY = ["nice", "-n", "4"]
LIMIT = 1200  # s for what a busy machine compiles beside the other tests, which go first
pytestmark = pytest.mark.timeout(LIMIT)
WORKER = (  # tests of what a batch passes in its process
    *("continuous", "errands", "failures", "gathered", "handler", "home", "items", "later", "outlet", "pipeline"),
    *("pipeline_threads", "proof", "streams", "upstream_answers", "upstream_context"),
)
RULES = ("adaptive", "cost", "returns", "running", "spread", "volleys")
# what is compared with them there inherits from what is compiled
COMPARED = "not starts_cold and not greedy and not with_stages_overlap and not reads_much and not loop_stay_even"
BACKENDS = ("merging", "sequences", "tensors", "triton_calls", "triton_replies", "triton_utils")
# Tests that neither put something in the place of a module's own names nor inherit from its classes: of a compiled
# module neither is possible. With the server's own front: two in front of it are the same modules again.
PASSED = {
    "the rules": ["tests/properties", "-k", "not frozen_at_a_wrong_curve"],
    "the rules, case by case": [*(f"tests/unit/core/test_{name}.py" for name in RULES), "-k", COMPARED],
    "a worker": [
        *(f"tests/unit/worker/test_{name}.py" for name in WORKER),
        *(f"tests/unit/worker/backends/test_{name}.py" for name in BACKENDS),
        *("-k", "not while_a_batch_lets_others_join and not waits_for_the_collector"),
    ],
    "http": ["tests/process/test_http_api.py", "-k", "alone"],
    "v2 over http and grpc": ["tests/process/test_kserve.py"],
    "faults": ["tests/process/test_server_faults.py", "-k", "alone and (killing or crashes or hung or sigterm)"],
    "deadlines": ["tests/process/test_deadlines.py", "-k", "alone and (header_bounds or batch_runs)"],
    "garbage": ["tests/process/test_garbage.py", "-k", "one"],
}


def wheel(folder: Path, **environment: str) -> Path:
    """Build a wheel of this tree, with what is installed here."""
    command = [*GENTLY, *PIP, "wheel", "--no-deps", "--no-build-isolation", "--wheel-dir", str(folder), str(ROOT)]
    result = subprocess.run(command, env={**os.environ, **environment}, capture_output=True, text=True, timeout=LIMIT)
    assert result.returncode == 0, result.stdout[-4000:] + result.stderr[-4000:]
    (file,) = folder.glob("*.whl")
    return file


@pytest.fixture(scope="module")
def built(tmp_path_factory: pytest.TempPathFactory) -> Path:
    if not any(map(shutil.which, ("cc", "gcc", "clang"))):
        pytest.skip("there is no C compiler here")
    return wheel(tmp_path_factory.mktemp("wheel"), SHOAL_COMPILED="1", SHOAL_COMPILED_LEVEL="0")


@pytest.fixture(scope="module")
def installed(built: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A folder with the compiled build; its dependencies are those that are installed here."""
    folder = tmp_path_factory.mktemp("installed")
    command = [*PIP, "install", "--no-deps", "--no-index", "--target", str(folder), str(built)]
    subprocess.run(command, check=True, timeout=LIMIT)
    return folder


def test_a_wheel_that_nobody_asked_to_compile_is_the_sources(tmp_path: Path) -> None:
    file = wheel(tmp_path, SHOAL_COMPILED="")
    assert file.name.endswith("-py3-none-any.whl")
    packed = {name for name in zipfile.ZipFile(file).namelist() if ".dist-info/" not in name}
    there = {str(path.relative_to(SOURCES)) for path in SOURCES.rglob("*") if path.is_file()}
    assert packed == {name for name in there if "__pycache__" not in name}


def test_what_only_failures_pass_has_the_names_that_the_runtime_of_the_compiler_gives_it() -> None:
    build = pytest.importorskip("mypyc.build")
    hook = runpy.run_path(str(ROOT / "hatch_build.py"))
    header = hook["_rare"](Path(build.include_dir()))
    for name in hook["RARE"].split():
        assert f"__typeof__({name}) {name} __attribute__((cold));" in header


def test_nothing_but_its_entry_can_be_called_in_the_compiled_code(built: Path, tmp_path: Path) -> None:
    (name,) = [name for name in zipfile.ZipFile(built).namelist() if "__mypyc" in name]
    listed = ["nm", "--dynamic", "--defined-only", zipfile.ZipFile(built).extract(name, tmp_path)]
    lines = subprocess.run(listed, check=True, capture_output=True, text=True).stdout.splitlines()
    assert [line.split()[-1] for line in lines] == ["PyInit_shoal__mypyc"]


def test_a_compiled_wheel_has_both_forms_and_is_for_this_platform_alone(built: Path) -> None:
    python = f"cp{sys.version_info.major}{sys.version_info.minor}"
    assert f"-{python}-{python}-" in built.name and not built.name.endswith("-any.whl")
    names = set(zipfile.ZipFile(built).namelist())
    suffix = sysconfig.get_config_var("EXT_SUFFIX")
    folders = runpy.run_path(str(ROOT / "hatch_build.py"))["COMPILED"]
    modules = [Path("shoal", folder, name) for folder, words in folders.items() for name in words.split()]
    assert len(modules) > 50
    for module in modules:
        assert {f"{module}.py", f"{module}{suffix}"} <= names


def test_it_says_that_it_is_compiled(installed: Path) -> None:
    def said(folder: Path) -> str:
        command = [sys.executable, "-P", "-m", "shoal", "--version"]
        return subprocess.run(
            command, env={**os.environ, "PYTHONPATH": str(folder)}, check=True, capture_output=True, text=True
        ).stdout.strip()

    assert said(installed).endswith(", compiled")
    assert "compiled" not in said(SOURCES)


@pytest.mark.parametrize("what", PASSED)
def test_it_passes_what_the_sources_pass(what: str, installed: Path) -> None:
    command = [sys.executable, "-P", "-m", "pytest", "-p", "no:cacheprovider", "-p", "no:randomly", *PASSED[what]]
    environment = {**os.environ, "PYTHONPATH": os.pathsep.join([str(installed), str(ROOT)])}
    result = subprocess.run(command, cwd=ROOT, env=environment, capture_output=True, text=True, timeout=LIMIT)
    assert result.returncode == 0, result.stdout[-8000:] + result.stderr[-2000:]
