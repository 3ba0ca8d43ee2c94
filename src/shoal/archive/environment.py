"""Packages that one model needs: installed for it alone into a cache, never into the server's own environment.

A folder of the cache belongs to what was asked for (the requirements, the files they name, this Python, this platform),
so models with the same requirements share one and a restart installs nothing. It is finished when its mark is in it; a
lock keeps two servers from installing the same one at once.
"""

import asyncio
import fcntl
import hashlib
import importlib.machinery
import json
import logging
import os
import platform
import shutil
import signal
import site
import sys
import sysconfig
from collections import deque
from collections.abc import AsyncIterator, Mapping, Sequence
from contextlib import asynccontextmanager, suppress
from pathlib import Path

import msgspec

from shoal.errors import BadArchive

log = logging.getLogger("shoal.archive")
MARK = ".complete"
WITHIN = 1800.0  # s
TELLING = ("Collecting", "Downloading", "Building", "Installing", "Successfully", "Processing", "ERROR", "WARNING")
FORBIDDEN = ("PIP_TARGET", "PIP_PREFIX", "PIP_ROOT", "PIP_REQUIRE_VIRTUALENV", "PYTHONPATH", "PYTHONHOME")


class Packages(msgspec.Struct, frozen=True):
    """Where a model's packages are: a folder for its workers' path, or an interpreter that has them."""

    folder: str = ""
    python: str = ""


def cache_folder(environment: Mapping[str, str]) -> Path:
    """Give the place of all of them."""
    base = environment.get("XDG_CACHE_HOME", "")
    return (Path(base) if os.path.isabs(base) else Path.home() / ".cache") / "shoal" / "environments"


async def install(
    model: str, folder: Path, requirements: str, environment: Mapping[str, str], *, venv: bool, within: float = WITHIN
) -> Packages:
    """Have the requirements of a model installed, or find that they are. Raises BadArchive with pip's reason."""
    file = folder / requirements
    home = await asyncio.to_thread(_home, folder, file, environment, venv=venv)
    if not _is_complete(home):
        async with _alone(home.with_suffix(".lock")):
            if not _is_complete(home):
                try:
                    await asyncio.wait_for(_build(model, home, folder, file, environment, venv=venv), within)
                except TimeoutError:
                    raise _failed(model, f"it was not done within {within:g} s") from None
    return Packages(python=str(home / "bin" / "python")) if venv else Packages(folder=str(home))


def _home(folder: Path, file: Path, environment: Mapping[str, str], *, venv: bool) -> Path:
    """Give the folder of the cache for these requirements; it need not be there."""
    if not file.is_file():
        raise BadArchive(f"the manifest names {file.name} as requirementsFile, and the archive has no such file")
    cache = cache_folder(environment)
    cache.mkdir(mode=0o700, parents=True, exist_ok=True)
    return cache / _key(folder, file, venv=venv)


def _is_complete(home: Path) -> bool:
    return (home / MARK).exists()


def _complete(home: Path) -> None:
    home.mkdir(exist_ok=True)  # pip makes none when nothing was required
    (home / MARK).touch()


async def _build(
    model: str, home: Path, folder: Path, file: Path, environment: Mapping[str, str], *, venv: bool
) -> None:
    log.info("model %s: installing %s into %s", model, file.name, home)
    await asyncio.to_thread(shutil.rmtree, home, True)
    quiet = {name: value for name, value in environment.items() if name not in FORBIDDEN}
    quiet |= {"PIP_USER": "0", "PIP_DISABLE_PIP_VERSION_CHECK": "1", "PIP_NO_INPUT": "1", "PYTHONUNBUFFERED": "1"}
    python = sys.executable
    pip = ["-m", "pip", "install", "--progress-bar", "off"]
    try:
        if venv:
            await _run(model, [python, "-m", "venv", *_without_pip(), str(home)], folder, quiet)
            python = str(home / "bin" / "python")
            _let_servers_packages_follow(home)
            how = ["--upgrade", "--upgrade-strategy", "only-if-needed"]
        else:
            how = ["--target", str(home)]
        await _run(model, [python, *pip, *how, "-r", str(file)], folder, quiet)
        _complete(home)
    except BaseException as error:
        shutil.rmtree(home, ignore_errors=True)
        if isinstance(error, OSError):
            raise _failed(model, error.strerror or str(error)) from None
        raise


def _failed(model: str, reason: str) -> BadArchive:
    return BadArchive(f"Custom pip package installation failed for model {model}: {reason}")


async def _run(model: str, command: Sequence[str], cwd: Path, environment: Mapping[str, str]) -> None:
    """Run a command to its end; what it says goes to the log, and its reason into the error."""
    process = await asyncio.create_subprocess_exec(
        *command,
        cwd=cwd,
        env=dict(environment),
        stdin=asyncio.subprocess.DEVNULL,
        stdout=asyncio.subprocess.PIPE,
        stderr=asyncio.subprocess.STDOUT,
        start_new_session=True,
    )
    assert process.stdout is not None
    last: deque[str] = deque(maxlen=200)
    try:
        async for raw in _lines(process.stdout):
            line = raw.decode("utf-8", "replace").strip()
            if line:
                last.append(line)
                log.log(logging.INFO if line.startswith(TELLING) else logging.DEBUG, "model %s: pip: %s", model, line)
        status = await process.wait()
    except BaseException:
        with suppress(ProcessLookupError):
            os.killpg(process.pid, signal.SIGKILL)
        await process.wait()
        raise
    if status:
        errors = [line for line in last if line.startswith("ERROR:")]
        raise _failed(model, (errors or list(last) or [f"exit status {status}"])[-1])


async def _lines(stream: asyncio.StreamReader) -> AsyncIterator[bytes]:
    """Give the lines of a stream however long they are."""
    rest = b""
    while piece := await stream.read(65536):
        *lines, rest = (rest + piece).split(b"\n")
        for line in lines:
            yield line
        rest = rest[-65536:]
    yield rest


@asynccontextmanager
async def _alone(path: Path) -> AsyncIterator[None]:
    """Hold a lock that other servers of this machine respect."""
    lock = os.open(path, os.O_RDWR | os.O_CREAT, 0o600)
    try:
        while True:
            try:
                fcntl.flock(lock, fcntl.LOCK_EX | fcntl.LOCK_NB)
                break
            except BlockingIOError:
                await asyncio.sleep(0.1)
        yield
    finally:
        os.close(lock)


def has_pip() -> bool:
    """Say whether this Python can install. Only folders are asked: setuptools' hook takes asking for using it."""
    return importlib.machinery.PathFinder.find_spec("pip") is not None


def _without_pip() -> list[str]:
    """The server's own pip is seen through its packages, if it has one; a second need not be unpacked."""
    return ["--without-pip"] if has_pip() else []


def _let_servers_packages_follow(home: Path) -> None:
    """Add the server's packages behind those of a venv, so that what is there need not be installed again."""
    own = next(home.glob("lib/python*/site-packages"))
    folders = [path for path in dict.fromkeys([sysconfig.get_path("purelib"), sysconfig.get_path("platlib")]) if path]
    if site.ENABLE_USER_SITE:
        folders.append(site.getusersitepackages())
    lines = [f"import site; site.addsitedir({path!r})" for path in folders]
    (own / "servers_packages.pth").write_text("\n".join(lines) + "\n")


def _key(folder: Path, file: Path, *, venv: bool) -> str:
    """Name what was asked for."""
    digest = hashlib.sha256()
    facts = ["venv" if venv else "target", sys.version, platform.platform(), sys.prefix if venv else ""]
    digest.update(json.dumps(facts).encode())
    _add(digest, folder.resolve(), file, set())
    return digest.hexdigest()[:32]


def _add(digest: "hashlib._Hash", folder: Path, file: Path, seen: set[Path]) -> None:
    """Add a file of requirements and, in turn, the files of the archive that it names."""
    seen.add(file)
    content = file.read_bytes()
    digest.update(b"%d:" % len(content) + content)
    words = content.decode("utf-8", "replace").replace("=", " ").split()
    for word in words:
        with suppress(OSError, ValueError):
            named = (folder / word.removeprefix("file:").removeprefix("-r").removeprefix("-c")).resolve()
            inside = sorted(named.rglob("*")) if named.is_dir() else [named]
            for path in inside:
                if path.is_file() and path not in seen and path.is_relative_to(folder) and named != folder:
                    _add(digest, folder, path, seen) if path.suffix == ".txt" else _add_raw(digest, path, seen)


def _add_raw(digest: "hashlib._Hash", path: Path, seen: set[Path]) -> None:
    seen.add(path)
    with open(path, "rb") as file:
        digest.update(hashlib.file_digest(file, "sha256").digest())
