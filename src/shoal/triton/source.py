"""Source: where models come from: the repositories, and what a client sent along with a request to load."""

import asyncio
import base64
import binascii
import shutil
from collections.abc import Collection, Mapping, Sequence
from pathlib import Path, PurePosixPath

from shoal.archive.work import Work
from shoal.config import pbtxt
from shoal.config.model import ModelConfig
from shoal.errors import ConfigError, InvalidInput, ServingError
from shoal.triton.complete import complete, is_complete
from shoal.triton.ensemble import check_ensemble, is_decoupled, label
from shoal.triton.form import config_json
from shoal.triton.making import make
from shoal.triton.repository import Folders, Found, Stamp, check_name, understand

FILE = "file:"
Value = str | bytes  # of a parameter; files come in base64 where they are text


class Source:
    """Reads models' settings, completes them, and keeps the files that clients sent until they are not needed."""

    def __init__(
        self,
        folders: Folders,
        gpus: Sequence[int] = (),
        *,
        completes: bool = True,
        is_adaptive: bool = False,
        default_max_batch_size: int = 0,
        work: Path | None = None,
    ) -> None:
        self._folders = folders
        self._gpus = list(gpus)
        self._completes = completes
        self._is_adaptive = is_adaptive
        self._default_max_batch_size = default_max_batch_size
        self._named_work = work
        self._work: Work | None = None
        self._arriving: set[Path] = set()  # sent by clients, for models that are being loaded
        self._sent: set[Path] = set()  # the same, once they are

    def names(self) -> list[str]:
        """Name every model of the repositories that has a version."""
        return self._folders.names()

    def stamp(self, name: str) -> Stamp:
        """Tell what every file of a model was when it was last written."""
        return self._folders.stamp(name)

    def is_twice(self, name: str) -> bool:
        """Say whether more than one repository has a model of this name."""
        return self._folders.is_twice(name)

    def find(self, name: str, parameters: Mapping[str, Value]) -> Found:
        """Read a model's settings: its own, or those that the parameters give, with the files they give."""
        for key in parameters:
            if key != "config" and not key.startswith(FILE):
                raise ServingError(f"unexpected parameter '{key}'; a load takes 'config' and 'file:<version>/<path>'")
        files = {key.removeprefix(FILE): value for key, value in parameters.items() if key.startswith(FILE)}
        if "config" not in parameters:
            if files:
                raise ConfigError("files are given without 'config', which they need")
            return self._folders.find(name)
        config = parameters["config"]
        if not files:
            return self._folders.find_with(name, config)
        check_name(name)
        message = pbtxt.parse_json(config, "config")
        folder = self._keep(files)
        try:
            return understand(name, folder, message, deduce=self._completes)
        except BaseException:
            self._drop(folder)
            raise

    async def config(self, found: Found, version: int, parts: Sequence[ModelConfig]) -> ModelConfig:
        """Make the settings of one version; `parts` are those of an ensemble's models, one for each step."""
        message = type(found.message)()
        message.CopyFrom(found.message)
        if self._completes and not is_complete(message):
            version_folder = found.folder / str(version)
            size = self._default_max_batch_size
            text = await complete(config_json(message), found.folder, version_folder, default_max_batch_size=size)
            message = pbtxt.parse_json(text, "the completed configuration")
            if message.name != found.name:
                raise ConfigError(f"the completed configuration is of '{message.name}', not of '{found.name}'")
        if found.steps:
            message.model_transaction_policy.decoupled = is_decoupled(part.settings for part in parts)
        config = await asyncio.to_thread(make, message, found, version, self._gpus, is_adaptive=self._is_adaptive)
        return label(config, parts) if found.steps else config

    def check(self, found: Found, parts: Sequence[ModelConfig]) -> None:
        """Raise ConfigError where the models of an ensemble, one for each step, do not fit together."""
        if found.steps:
            check_ensemble(config_json(found.message), [part.settings for part in parts])

    def settle(self, found: Found) -> None:
        """Hear that a model was loaded, or failed to: from now on its files are removed when nobody names them."""
        if found.folder in self._arriving:
            self._arriving.discard(found.folder)
            self._sent.add(found.folder)

    def forget_all_but(self, used: Collection[Path]) -> None:
        """Remove the files that clients sent for models which are no more."""
        for folder in self._sent - set(used):
            self._sent.discard(folder)
            shutil.rmtree(folder, ignore_errors=True)

    def close(self) -> None:
        """Remove everything that clients sent."""
        if self._work is not None:
            self._work.close()

    def _keep(self, files: Mapping[str, Value]) -> Path:
        contents = {_inside(name): _content(name, value) for name, value in files.items()}
        if self._work is None:
            self._work = Work(self._named_work)
        folder = self._work.new()
        folder.mkdir(mode=0o700)
        self._arriving.add(folder)
        try:
            for path, data in contents.items():
                (folder / path).parent.mkdir(parents=True, exist_ok=True)
                (folder / path).write_bytes(data)
        except OSError as error:
            self._drop(folder)
            raise ConfigError(f"the files of the request cannot be kept: {error.strerror}") from None
        return folder

    def _drop(self, folder: Path) -> None:
        self._arriving.discard(folder)
        shutil.rmtree(folder, ignore_errors=True)


def _inside(name: str) -> PurePosixPath:
    path = PurePosixPath(name)
    if not name or "\0" in name or path.is_absolute() or ".." in path.parts or not path.parts:
        raise ConfigError(
            f"'{FILE}{name}' names no file of a model: it is {FILE}<version>/<path>, inside the model's folder"
        )
    return path


def _content(name: str, value: Value) -> bytes:
    if isinstance(value, bytes):
        return value
    try:
        return base64.b64decode(value, validate=True)
    except (binascii.Error, ValueError):
        raise ConfigError(f"the content of '{FILE}{name}' is not base64") from None


def reason_of(error: ServingError) -> str:
    """Say why a version is not available, in the words of the index."""
    kind = "Invalid argument" if isinstance(error, ConfigError | InvalidInput) else "Internal"
    return f"{kind}: {error}"
