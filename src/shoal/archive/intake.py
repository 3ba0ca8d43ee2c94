"""Intake: from what a registration or an operator names to a model's settings, its files unpacked and ready."""

import asyncio
import logging
import os
import re
import shutil
import threading
from collections.abc import Callable, Mapping, Sequence
from concurrent.futures import Future, ThreadPoolExecutor
from pathlib import Path
from typing import Any, Literal

import msgspec

from shoal.archive.entries import Limits
from shoal.archive.environment import install
from shoal.archive.fetch import Fetcher, already_there, file_name
from shoal.archive.manifest import Manifest, read_manifest
from shoal.archive.material import material_of
from shoal.archive.source import name_of
from shoal.archive.store import Place, Store, place_of, stem_of
from shoal.archive.unpack import unpack
from shoal.archive.work import Work
from shoal.config.deployment import Defaults
from shoal.config.load import model_config
from shoal.config.model import ModelConfig
from shoal.config.registration import Material, register
from shoal.config.server import ServerConfig
from shoal.errors import InvalidInput, ServingError, SourceNotFound

log = logging.getLogger("shoal.archive")
WITHIN = 3600.0  # s for one archive to be fetched and unpacked


class Obtained(msgspec.Struct, frozen=True):
    """Files on this machine: a folder, or a Python file; and what is removed with them."""

    path: Path
    name: str  # of the archive, file or folder it came from
    unpacked: Path | None = None
    downloaded: Path | None = None


class Intake:
    """Takes models in. What it unpacks is its own until `discard`; what is in place stays as it is."""

    def __init__(
        self,
        server: ServerConfig,
        deployment_defaults: Defaults,
        tuning: Mapping[str, Mapping[str, Mapping[str, Any]]],
        *,
        work: Path | None = None,
        limits: Limits | None = None,
        environment: Mapping[str, str] = os.environ,
    ) -> None:
        self._server = server
        self._defaults = deployment_defaults
        self._tuning = tuning
        self._limits = limits or Limits()
        self._environment = environment
        is_native = deployment_defaults.flavour == "shoal"
        self._store = Store(server.model_store, server.compat, python_files=is_native)
        self._fetcher = Fetcher(server.allowed_urls, self._limits, environment)
        self._named_work = work
        self._work: Work | None = None
        self._making_room = threading.Lock()
        self._threads = ThreadPoolExecutor(4, "intake")
        self._kept: dict[str, Obtained] = {}
        self._closing = threading.Event()
        self._turn = 0  # how many workers were given a device

    def startup_entries(self, load_models: Sequence[str]) -> list[tuple[str, str]]:
        """Turn what is to be loaded at the start into names (empty: the archive's own) and locations."""
        return self._store.startup(load_models)

    async def prepare(self, parameters: Mapping[str, str], *, at_startup: bool = False) -> ModelConfig:
        """Make settings from the parameters of a registration; what fails leaves nothing behind."""
        obtained = await self.obtain(parameters)
        try:
            return await self._configure(obtained, parameters, {}, at_startup=at_startup)
        except BaseException:
            self._remove(obtained)
            raise

    async def prepare_source(self, source: Path, overrides: Mapping[str, object]) -> ModelConfig:
        """Make settings for what an operator named: a Python file, a folder or an archive, wherever it is."""
        place = place_of(source, python_files=True)
        obtained = await self._in_thread(lambda check: self._unpacked(place, check))
        try:
            return await self._configure(obtained, {}, overrides, at_startup=True)
        except BaseException:
            self._remove(obtained)
            raise

    async def obtain(self, parameters: Mapping[str, str], *, store: str = "") -> Obtained:
        """Find, fetch and unpack what `url` names, in the model store or another; whoever asks calls `release`."""
        if "url" not in parameters:
            raise InvalidInput("Parameter url is required.")
        url = parameters["url"]
        shelf = self._store if not store else Store(store, self._server.compat, python_files=False)
        signed = parameters.get("s3_sse_kms", "").lower() == "true"
        return await self._in_thread(lambda check: self._obtained(url, shelf, signed, check))

    def release(self, obtained: Obtained) -> None:
        """Remove what `obtain` unpacked and downloaded."""
        self._remove(obtained)

    def discard(self, config: ModelConfig) -> None:
        """Remove what was unpacked and downloaded for a model; what was in place stays."""
        if (obtained := self._kept.pop(config.path, None)) is not None:
            self._remove(obtained)

    def close(self) -> None:
        """Give up what is under way and remove everything that was unpacked."""
        self._closing.set()
        self._threads.shutdown(wait=True, cancel_futures=True)
        self._kept.clear()
        if self._work is not None:
            self._work.close()

    async def _in_thread(self, work: Callable[[Callable[[], None]], Obtained]) -> Obtained:
        """Run what blocks elsewhere; when nobody waits for it any more it gives up, and leaves nothing behind."""
        abandoned = threading.Event()

        def check() -> None:
            if abandoned.is_set() or self._closing.is_set():
                raise ServingError("given up: nobody waits for it any more")

        def forget(future: "Future[Obtained]") -> None:
            if not future.cancelled() and future.exception() is None:
                self._remove(future.result())

        if self._closing.is_set():
            raise ServingError("the server is being stopped")
        future = self._threads.submit(work, check)
        try:
            async with asyncio.timeout(WITHIN):
                return await asyncio.shield(asyncio.wrap_future(future))
        except (asyncio.CancelledError, TimeoutError) as error:
            abandoned.set()
            if not future.cancel():
                future.add_done_callback(forget)
            if isinstance(error, TimeoutError):
                raise ServingError(f"the archive was not fetched and unpacked within {WITHIN:g} s") from None
            raise

    def _obtained(self, url: str, shelf: Store, signed: bool, check: Callable[[], None]) -> Obtained:
        place = shelf.find(url)
        if place.kind != "download":
            return self._unpacked(place, check)
        self._fetcher.check(url)
        target = self._target(url, shelf)
        is_kept = target.parent == shelf.folder
        try:
            self._fetcher.fetch(url, target, signed=signed, check=check)
            return self._unpacked_download(target, check, is_kept=is_kept)
        finally:
            if not is_kept:
                shutil.rmtree(target.parent, ignore_errors=True)

    def _unpacked_download(self, target: Path, check: Callable[[], None], *, is_kept: bool) -> Obtained:
        try:
            obtained = self._unpacked(Place("archive", target), check)
        except BaseException:
            target.unlink(missing_ok=True)
            raise
        return msgspec.structs.replace(obtained, downloaded=target if is_kept else None)

    def _target(self, url: str, shelf: Store) -> Path:
        """Where a download goes: into the model store, as TorchServe has it, or among what is unpacked."""
        name = file_name(url)
        if self._server.compat == "mms" or (shelf.folder is None and self._server.compat == ""):
            folder = self._room().new()
            folder.mkdir(mode=0o700)
            return folder / name
        if shelf.folder is None:
            raise SourceNotFound("Model store has not been configured.")
        if (shelf.folder / name).exists():
            raise already_there(shelf.folder / name)
        return shelf.folder / name

    def _unpacked(self, place: Place, check: Callable[[], None]) -> Obtained:
        if place.kind != "archive":
            return Obtained(place.path, place.path.name)
        folder = self._room().new()
        unpack(place.path, folder, self._limits, check)
        return Obtained(folder, place.path.name, unpacked=folder)

    def _room(self) -> Work:
        with self._making_room:
            if self._work is None:
                self._work = Work(self._named_work)
            return self._work

    async def _configure(
        self,
        obtained: Obtained,
        parameters: Mapping[str, str],
        overrides: Mapping[str, object],
        *,
        at_startup: bool,
    ) -> ModelConfig:
        manifest, material = await asyncio.to_thread(self._read, obtained, at_startup=at_startup)
        made = register(parameters, material, self._tuning, self._defaults, at_startup=at_startup, turn=self._turn)
        config = _overridden(made.config, overrides)
        for note in made.notes:
            log.warning("model %s: %s", config.name, note)
        if manifest is not None and manifest.requirements_file and self._defaults.install_requirements:
            venv = material.settings.get("useVenv") is True
            packages = await install(
                config.name, obtained.path, manifest.requirements_file, self._environment, venv=venv
            )
            config = msgspec.structs.replace(config, packages=packages.folder, python=packages.python)
        if config.device != "cpu":
            self._turn += config.workers
        if obtained.unpacked is not None:
            self._kept[config.path] = obtained
            if config.user or self._server.worker_user:
                self._room().let_through()
        return config

    def _read(self, obtained: Obtained, *, at_startup: bool) -> tuple[Manifest | None, Material]:
        """Read what the files say of themselves; without a manifest they are what the server serves by default."""
        path = obtained.path
        is_native = self._defaults.flavour == "shoal"
        stem = (
            name_of(path) if is_native and obtained.unpacked is None else _stem(obtained.name, at_startup or is_native)
        )
        manifest = read_manifest(path, self._limits) if path.is_dir() else None
        if manifest is None:
            return None, Material(path=str(path), flavour=self._defaults.flavour, stem=stem)
        compat: Literal["torchserve", "mms"] = "mms" if self._server.compat == "mms" else "torchserve"
        return manifest, material_of(path, manifest, self._limits, stem=stem, otherwise=compat)

    def _remove(self, obtained: Obtained) -> None:
        if obtained.unpacked is not None:
            shutil.rmtree(obtained.unpacked, ignore_errors=True)
        if obtained.downloaded is not None:
            obtained.downloaded.unlink(missing_ok=True)


def _stem(name: str, is_wanted: bool) -> str:
    """Name a model after its archive, where that is done at all: odd characters are replaced."""
    return re.sub(r"\W", "_", stem_of(name), flags=re.ASCII) if is_wanted else ""


def _overridden(config: ModelConfig, overrides: Mapping[str, object]) -> ModelConfig:
    """Put what an operator said over what the model said of itself."""
    if not overrides:
        return config
    values = msgspec.to_builtins(config) | dict(overrides) | {"path": config.path}
    if "batching" in overrides:
        values["prove_batching"] = False
    return model_config(values, f"models.{values['name']}")
