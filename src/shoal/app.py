"""The composition root: builds every object, knows every layer, decides nothing."""

import asyncio
import gc
import inspect
import logging
import os
import signal
import ssl
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

import uvloop

from shoal.alarm import LoopAlarm
from shoal.archive.source import find_in_store, find_source, name_of
from shoal.clock import MonotonicClock
from shoal.config.load import model_config, server_config
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.core.batcher import Batcher
from shoal.core.choice import policy_for
from shoal.core.model import Model
from shoal.core.queue import RequestQueue
from shoal.core.repository import Repository
from shoal.core.scheduler import Scheduler
from shoal.errors import ConfigError, InvalidInput
from shoal.frontend.management import Management
from shoal.frontend.mms import Inference
from shoal.frontend.server import Server
from shoal.pool.local import LocalPool
from shoal.telemetry import Metrics, ModelFacts, ModelStats, set_up_logs
from shoal.wire.memory import Arena

log = logging.getLogger("shoal")
Target = str | Path | Callable[..., object]  # a file or folder, or a function or class of the running program


class App:
    """One server: `start` brings it up, `drain` finishes it. Both run on the event loop that will serve."""

    def __init__(self, config: ServerConfig, models: Sequence[ModelConfig]) -> None:
        self.config = config
        self.models = models
        self.clock = MonotonicClock()
        self.arena = Arena(config.shared_memory) if sys.platform == "linux" and config.shared_memory else None
        self.repository = Repository(self._build)
        self.metrics = Metrics(self._facts, time.time())
        self._inference = Inference(self.repository, self.clock, development=config.development)
        self._management = Management(
            self.repository, self._configure, drain_within=config.drain_timeout, development=config.development
        )
        self.server = Server(
            config,
            self._inference,
            self._management,
            self.metrics,
            lend=self.arena.lend if self.arena else lambda _: None,
            tls=_tls(config),
        )

    async def start(self) -> None:
        """Bind the listeners and load the models; what fails undoes the rest and is raised."""
        await self.server.start()
        try:
            await asyncio.gather(*(self.repository.register(model) for model in self.models))
        except BaseException:
            await self.drain(0.0)
            raise
        gc.collect()
        gc.freeze()  # what lives as long as the server is not looked at again and again

    async def drain(self, within: float | None = None) -> None:
        """Finish what was admitted, take nothing new, end every process."""
        limit = self.config.drain_timeout if within is None else within
        await self.server.drain(limit)
        await self.repository.drain(limit)
        if self.arena is not None:
            self.arena.close()

    def _build(self, config: ModelConfig) -> Model:
        stats = ModelStats(config.name, config.version)
        alarm = LoopAlarm(asyncio.get_running_loop(), self.clock)
        batching = config.batching
        policy = policy_for(batching.rule, batching.batch_size, batching.max_batch_delay)
        batcher = Batcher(RequestQueue(config.name, config.queue_size), policy)
        scheduler = Scheduler(batcher, alarm, stats, max_attempts=config.max_attempts)
        alarm.connect(scheduler.feed)
        pool = LocalPool(config, scheduler, self.arena, self.clock, development=self.config.development)
        return Model(config, scheduler, pool, self.clock)

    def _facts(self) -> list[ModelFacts]:
        return [
            (
                model.scheduler.stats,
                len(model.scheduler.batcher.queue),
                model.scheduler.running,
                model.scheduler.batcher.fleet.size,
            )
            for model in self.repository
        ]

    async def _configure(self, parameters: dict[str, str]) -> ModelConfig:
        """Turn the parameters of a registration into settings; unknown ones are ignored, as upstream does."""
        if not parameters.get("url"):
            raise InvalidInput("Parameter url is required.")
        source = find_in_store(parameters["url"], self.config.model_store)
        values: dict[str, object] = {"path": str(source), "name": parameters.get("model_name") or name_of(source)}
        batching = {key: parameters[key] for key in ("batch_size", "max_batch_delay") if key in parameters}
        if batching:
            values["batching"] = batching
        for theirs, ours in (
            ("model_version", "version"),
            ("handler", "handler"),
            ("initial_workers", "workers"),
            ("response_timeout", "response_timeout"),
            ("startup_timeout", "startup_timeout"),
        ):
            if theirs in parameters:
                values[ours] = parameters[theirs]
        return model_config(values, "parameters")


def _tls(config: ServerConfig) -> ssl.SSLContext | None:
    if not config.certificate_file:
        return None
    context = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
    try:
        context.load_cert_chain(config.certificate_file, config.private_key_file)
    except (OSError, ssl.SSLError) as error:
        files = f"{config.certificate_file} and {config.private_key_file}"
        raise ConfigError(f"cannot use {files} for TLS: {error}") from None
    return context


def run(config: ServerConfig, models: Sequence[ModelConfig], on_started: Callable[[App], None]) -> int:
    """Serve until SIGTERM or SIGINT, then drain; the exit code."""
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(_serve(config, models, on_started))


async def _serve(config: ServerConfig, models: Sequence[ModelConfig], on_started: Callable[[App], None]) -> int:
    loop = asyncio.get_running_loop()
    stopping = asyncio.Event()
    for number in (signal.SIGTERM, signal.SIGINT):
        loop.add_signal_handler(number, stopping.set)
    app = App(config, models)
    starting = loop.create_task(app.start())
    waiting = loop.create_task(stopping.wait())
    await asyncio.wait({starting, waiting}, return_when=asyncio.FIRST_COMPLETED)
    if not starting.done():  # told to stop while models were loading
        starting.cancel()
        await asyncio.wait({starting})
        return 0
    starting.result()
    on_started(app)
    await waiting
    log.info("draining")
    await app.drain()
    log.info("stopped")
    return 0


def serve(target: Target, **settings: object) -> int:
    """Serve a Python file, a folder, or a function or class of the running program; until SIGTERM or Ctrl-C.

    Settings are those of the server and of the model by their names in a settings file (`port=9000`, `workers=2`,
    `batching={"batch_size": 8}`). Returns the exit code.
    """
    config, model = configure(target, settings, os.environ)
    set_up_logs(config.log_level, config.log_format)
    return run(config, [model], announce)


def configure(
    target: Target, settings: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[ServerConfig, ModelConfig]:
    """Sort settings given by name into the server's and the model's."""
    known = ServerConfig.__struct_fields__
    source, handler = _locate(target)
    of_model = {key: value for key, value in settings.items() if key not in known}
    of_model = {"name": name_of(source), "path": str(source), "handler": handler, **of_model}
    of_server = {key: value for key, value in settings.items() if key in known}
    return server_config({}, environment, of_server), model_config(of_model, "settings")


def _locate(target: Target) -> tuple[Path, str]:
    """Find the file of a model, and the name of the handler in it where the handler itself was given."""
    if isinstance(target, str | Path):
        return find_source(str(target)), ""
    try:
        file = Path(inspect.getfile(target))
    except TypeError:
        file = Path()
    if not file.is_file():
        raise ConfigError(f"{target!r} is not in a file that workers could import; write it into one and name that")
    if "." in target.__qualname__:
        raise ConfigError(f"{target.__qualname__} must stand at the top of {file.name}, where workers can import it")
    return file.resolve(), target.__qualname__


def announce(app: App) -> None:
    """Say where the server is: addresses to standard error, the line that scripts wait for to standard output."""
    addresses = app.server.addresses
    lines = [f"{name:<11} {address}" for name, address in addresses.items()]
    if app.config.unix_socket:
        lines.append(f"{'socket':<11} {app.config.unix_socket}")
    inference = addresses["inference"]
    lines += [f"{'try':<11} curl -X POST {inference}/predictions/{model.name} -T FILE" for model in app.models]
    if app.config.page:
        lines.append(f"{'page':<11} {inference}/")
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stdout.write("Model server started.\n")
    sys.stdout.flush()


def models_from(
    file: dict[str, object], named: Sequence[tuple[str, Path]], flags: dict[str, object]
) -> list[ModelConfig]:
    """Put together the models of the settings file and those named on the command line, flags applied to all."""
    section = file.get("models", {})
    if not isinstance(section, dict):
        raise ConfigError("models: expected settings by model name")
    for name, settings in section.items():
        if not isinstance(settings, dict):
            raise ConfigError(f"models.{name}: expected settings by name, got {settings!r}; `path` is the one it needs")
    values = {name: {"name": name, **settings} for name, settings in section.items()}
    for name, source in named:
        values[name] = {**values.get(name, {"name": name}), "path": str(source)}
    return [model_config({**settings, **flags}, f"models.{name}") for name, settings in values.items()]
