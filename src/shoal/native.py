"""Shoal's own way to start: a Python file, a folder, an archive, or a function or class of the running program."""

import inspect
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path

from shoal.app import App, run
from shoal.archive.source import find_source, name_of
from shoal.archive.store import ENDINGS
from shoal.config.load import model_config, server_config
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.errors import ConfigError
from shoal.telemetry import set_up_logs

MANIFEST = "MAR-INF/MANIFEST.json"
Target = str | Path | Callable[..., object]  # a file or folder, or a function or class of the running program


def serve(target: Target, *, watch: bool = False, **settings: object) -> int:
    """Serve a Python file, a folder, or a function or class of the running program; until SIGTERM or Ctrl-C.

    Settings are those of the server and of the model by their names in a settings file (`port=9000`, `workers=2`,
    `batching={"batch_size": 8}`). With `watch`, the model is loaded anew whenever it is saved. Returns the exit code.
    """
    config, of_model = _sorted(target, settings, os.environ)
    set_up_logs(config.log_level, config.log_format)
    models, archives = apart([of_model])
    return run(config, models, announce, archives, watch=watch)


def configure(
    target: Target, settings: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[ServerConfig, ModelConfig]:
    """Sort settings given by name into the server's and those of a model that is no archive."""
    config, of_model = _sorted(target, settings, environment)
    return config, model_config(of_model, "settings")


def apart(values: Sequence[Mapping[str, object]]) -> tuple[list[ModelConfig], list[Mapping[str, object]]]:
    """Tell settings of models that can be served as they are from those of archives, which say much themselves."""
    packed = [is_packed(Path(str(settings.get("path", "")))) for settings in values]
    models = [
        model_config(settings, f"models.{settings.get('name', '')}")
        for settings, is_archive in zip(values, packed, strict=True)
        if not is_archive
    ]
    return models, [settings for settings, is_archive in zip(values, packed, strict=True) if is_archive]


def is_packed(source: Path) -> bool:
    """Whether this is an archive, or what an archive was unpacked to."""
    if source.is_dir():
        return (source / MANIFEST).is_file()
    return source.name.lower().endswith(ENDINGS)


def _sorted(
    target: Target, settings: Mapping[str, object], environment: Mapping[str, str]
) -> tuple[ServerConfig, dict[str, object]]:
    known = ServerConfig.__struct_fields__
    source, handler = _locate(target)
    named: dict[str, object] = {"path": str(source)}
    if not is_packed(source):
        named |= {"name": name_of(source), "handler": handler}
    named |= {key: value for key, value in settings.items() if key not in known}
    of_server = {key: value for key, value in settings.items() if key in known}
    return server_config({}, environment, of_server), named


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
    addresses = app.addresses
    lines = [f"{name:<11} {address}" for name, address in addresses.items()]
    if app.config.unix_socket:
        lines.append(f"{'socket':<11} {app.config.unix_socket}")
    inference = addresses["inference"]
    lines += [f"{'try':<11} curl -X POST {inference}/predictions/{model.name} -T FILE" for model in app.repository]
    if app.config.page:
        lines.append(f"{'page':<11} {inference}/")
    if app.apis.server.dashboard:
        lines.append(f"{'dashboard':<11} {app.apis.server.dashboard}")
    sys.stderr.write("\n".join(lines) + "\n")
    sys.stdout.write("Model server started.\n")
    sys.stdout.flush()


def models_from(
    file: dict[str, object], named: Sequence[tuple[str, Path]], flags: dict[str, object]
) -> list[dict[str, object]]:
    """Put together the models of the settings file and those named on the command line, flags applied to all.

    An archive that was given no name has its own.
    """
    section = file.get("models", {})
    if not isinstance(section, dict):
        raise ConfigError("models: expected settings by model name")
    for name, settings in section.items():
        if not isinstance(settings, dict):
            raise ConfigError(f"models.{name}: expected settings by name, got {settings!r}; `path` is the one it needs")
    values: dict[str, dict[str, object]] = {name: {"name": name, **settings} for name, settings in section.items()}
    for name, source in named:
        if name:
            values[name] = {**values.get(name, {"name": name}), "path": str(source)}
        else:
            values[str(source)] = {"path": str(source)}
    return [{**settings, **flags} for settings in values.values()]
