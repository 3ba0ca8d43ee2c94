"""Watch: looks at the files of models again and again, and rolls out what was saved."""

import asyncio
import contextlib
import logging
import os
from collections.abc import Awaitable, Callable, Mapping
from pathlib import Path

import msgspec

from shoal.config.model import ModelConfig
from shoal.core.repository import Repository
from shoal.core.rollout import Rollouts, succeeding
from shoal.errors import Conflict, ModelNotFound, ServingError

log = logging.getLogger("shoal.watch")
Stamp = Mapping[str, tuple[int, int, int]]  # when each file was changed, its size, and which it is
Again = Callable[[], Awaitable[ModelConfig]]  # the settings of what is there now
EVERY = 0.25  # s between two looks
MOST_FILES = 10_000  # of one folder; more are not looked at
DEFAULT_FILES = ("model.py", "handler.py")
FRESH = {"PYTHONDONTWRITEBYTECODE": "1"}  # of packages below a model's folder either, which workers keep otherwise


class Settling:
    """Tells a change that is over from one under way: two looks in a row have to see the same."""

    def __init__(self, stamp: Stamp | None) -> None:
        self._served = self._last = stamp

    def see(self, stamp: Stamp | None) -> bool:
        """Take a look's stamp, None where nothing is there; whether there is something new that stands still."""
        is_still, self._last = stamp == self._last, stamp
        if stamp is None or not is_still or stamp == self._served:
            return False
        self._served = stamp
        return True

    def again(self) -> None:
        """What is there now has not been dealt with."""
        self._served = None


def stamp_of(source: Path) -> Stamp | None:
    """Look at a file, or at every file below a folder except hidden ones and Python's own; None where there is none."""
    found: dict[str, tuple[int, int, int]] = {}
    for file in _files(source):
        with contextlib.suppress(OSError):  # gone between the list and the look
            status = os.stat(file)
            found[file] = status.st_mtime_ns, status.st_size, status.st_ino
    return found or None


def mistake_in(source: Path) -> str:
    """Say what is wrong with the grammar of a model's code, in a line; empty where nothing is. It is not run."""
    for file in [source] if source.is_file() else [source / name for name in DEFAULT_FILES]:
        if file.suffix != ".py" or not file.is_file():
            continue
        try:
            compile(file.read_bytes(), str(file), "exec", dont_inherit=True)
        except SyntaxError as error:
            return f"{file.name} line {error.lineno or 1}: {error.msg}"
        except (ValueError, RecursionError, MemoryError) as error:
            return f"{file.name}: {error or type(error).__name__}"
        except OSError:
            continue  # gone since; the worker will say so
    return ""


class Watch:
    """Looks at what models are made of. What cannot be loaded leaves the one that serves, and says why in a line."""

    def __init__(self, repository: Repository, rollouts: Rollouts, discard: Callable[[ModelConfig], None]) -> None:
        self._repository = repository
        self._rollouts = rollouts
        self._discard = discard
        self._watched: dict[str, tuple[Path, Again, Settling]] = {}
        self._task: asyncio.Task[None] | None = None

    def add(self, name: str, source: Path, again: Again) -> None:
        """Look at this file or folder for this model, from what it is now."""
        self._watched[name] = source, again, Settling(stamp_of(source))

    def start(self) -> None:
        """Begin to look."""
        self._task = asyncio.get_running_loop().create_task(self._look())

    async def stop(self) -> None:
        """Look no more."""
        if self._task is not None:
            self._task.cancel()
            with contextlib.suppress(asyncio.CancelledError):
                await self._task

    async def _look(self) -> None:
        while True:
            await asyncio.sleep(EVERY)
            try:
                await self.look_once()
            except Exception:
                log.exception("cannot look at the models' files")

    async def look_once(self) -> None:
        """Look at everything once, and roll out what has changed and stands still."""
        for name, (source, again, settling) in list(self._watched.items()):
            if settling.see(await asyncio.to_thread(stamp_of, source)):
                try:
                    await self._reload(name, source, again)
                except Conflict:  # somebody else is at it
                    settling.again()
                except ModelNotFound:
                    del self._watched[name]  # removed since
                except ServingError:
                    pass  # it has been logged

    async def _reload(self, name: str, source: Path, again: Again) -> None:
        old = self._repository.find(name)
        if mistake := await asyncio.to_thread(mistake_in, source):
            self._rollouts.refuse(old.config, mistake)
            return
        log.info("%s was saved; it is loaded beside what serves", source.name, extra={"fields": {"model": name}})
        try:
            made = await again()
        except ServingError as error:
            self._rollouts.refuse(old.config, str(error))
            return
        try:
            await self._rollouts.replace(succeeding(made, old))
        except BaseException:
            self._discard(made)
            raise


def watchable(config: ModelConfig) -> ModelConfig:
    """Let the workers of a model read its code as it is, not as it was compiled a moment ago."""
    return msgspec.structs.replace(config, environment={**config.environment, **FRESH})


def _files(source: Path) -> list[str]:
    if not source.is_dir():
        return [str(source)]
    files: list[str] = []
    for folder, folders, names in os.walk(source):
        folders[:] = sorted(name for name in folders if not _is_passed_over(name))
        files += [os.path.join(folder, name) for name in sorted(names) if not _is_passed_over(name)]
        if len(files) >= MOST_FILES:
            break
    return files[:MOST_FILES]


def _is_passed_over(name: str) -> bool:
    return name.startswith(".") or name == "__pycache__" or name.endswith((".pyc", ".swp", "~"))
