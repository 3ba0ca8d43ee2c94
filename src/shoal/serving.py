"""`serve`: a server from Python, for a file, a folder, or a handler that the program itself defines."""

import inspect
import logging
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import msgspec

from shoal.app import App, run
from shoal.archive import find_source, name_of
from shoal.config.load import model_config, server_config
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.errors import ConfigError
from shoal.telemetry import set_up_logs

log = logging.getLogger("shoal")
Target = str | Path | type | Callable[..., Any]
BATCHING = ("policy", "batch_size", "max_batch_delay")


def serve(target: Target, **options: Any) -> int:
    """Serve a file, folder, handler class or function until SIGTERM or Ctrl-C; gives the exit code.

    Options are those of the settings file, the server's and the model's alike (`port=8000`, `workers=2`,
    `batch_size=8`); an unknown one is refused. Workers import the file that defines the handler, so a script calls
    this under `if __name__ == "__main__":`.
    """
    server, model = configure(target, options)
    set_up_logs(server.log_level, server.log_format)
    return run(server, [model], _announce)


def configure(target: Target, options: Mapping[str, Any]) -> tuple[ServerConfig, ModelConfig]:
    """Sort options into the settings of a server and of the one model it serves."""
    path, handler = locate(target)
    fields = {field.name for field in msgspec.structs.fields(ServerConfig)}
    for_server = {key: value for key, value in options.items() if key in fields}
    for_model = {key: value for key, value in options.items() if key not in fields and key not in BATCHING}
    batching = {key: options[key] for key in BATCHING if options.get(key) is not None}
    if "max_batch_delay" in batching and "batch_size" not in batching:
        raise ConfigError("max_batch_delay means nothing without batch_size; without both, Shoal decides by itself")
    values: dict[str, Any] = {"name": name_of(path), "path": str(path), "handler": handler, **for_model}
    if batching:
        values["batching"] = batching
    return server_config({}, {}, for_server), model_config(values, "options")


def locate(target: Target) -> tuple[Path, str]:
    """Find the file of a model, and the name of the handler in it where the handler itself was given."""
    if isinstance(target, str | Path):
        return find_source(str(target)), ""
    name = getattr(target, "__qualname__", "")
    try:
        file = inspect.getsourcefile(inspect.unwrap(target))
    except TypeError:
        file = None
    if not name or not file or not Path(file).is_file():
        raise ConfigError(f"{target!r} is not in a file that workers could import; write it into one and name that")
    if "." in name:
        raise ConfigError(f"{name} must stand at the top of {Path(file).name}: workers import it from there by name")
    return Path(file).resolve(), name


def _announce(app: App) -> None:
    for model in app.models:
        log.info("serving %s on %s/predictions/%s", model.path, app.server.addresses[0], model.name)
