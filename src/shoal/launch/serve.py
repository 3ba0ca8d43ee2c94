"""`shoal serve` and `shoal demo`: a server of Shoal's own, in the foreground."""

import os
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any

import click
from rich.progress import Progress

from shoal import app, native
from shoal.archive.source import find_source, name_of
from shoal.config.load import read_file, server_config
from shoal.config.model import ModelConfig
from shoal.config.server import ServerConfig
from shoal.console import err
from shoal.demo import assets
from shoal.errors import ConfigError
from shoal.telemetry import set_up_logs


class ServeCommand(click.Command):
    """`--models A=x B=y`: one flag, several values, as TorchServe has it."""

    def parse_args(self, ctx: click.Context, args: list[str]) -> list[str]:
        """Repeat the flag before each of its values; a value is NAME=PATH."""
        spread: list[str] = []
        is_inside = False
        for arg in args:
            if is_inside and "=" in arg and not arg.startswith("-"):
                spread += ["--models", arg] if spread[-1] != "--models" else [arg]
                continue
            is_inside = arg == "--models"
            spread.append(arg)
        return super().parse_args(ctx, spread)


@click.command(cls=ServeCommand)
@click.argument("target", required=False)
@click.option("--model-store", help="Folder that models are looked up in, also by the management API.")
@click.option(
    "--models",
    multiple=True,
    metavar="NAME=PATH ...",
    help="Models to load: a Python file, a folder or an archive each.",
)
@click.option("--handler", help="Name of the class or function in the file, where it is not found by itself.")
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Inference.  [default: 8080]")
@click.option("--management-port", type=int, help="Management, on loopback.  [default: 8081]")
@click.option("--metrics-port", type=int, help="Prometheus metrics.  [default: 8082]")
@click.option("--frontends", type=int, help="Processes that accept connections and speak with clients.  [default: 1]")
@click.option("--workers", type=int, help="Processes for each model.  [default: 1]")
@click.option("--instances", type=int, help="Threads in each process that share the loaded model.  [default: 1]")
@click.option(
    "--batch-size", type=int, help="Most rows of a batch, with TorchServe's meaning; leave out to let Shoal decide."
)
@click.option("--max-batch-delay", type=float, help="ms to wait for a full batch, with TorchServe's meaning.")
@click.option("--config", "config_file", help="Settings file: .toml, .yaml or .json.")
@click.option(
    "--watch", is_flag=True, help="Load a model anew when its file or folder is saved; the old code serves until then."
)
@click.option("--development", is_flag=True, default=None, help="Show handlers' tracebacks in error bodies.")
@click.option("--log-format", type=click.Choice(["plain", "json"]), help="How logs are written.")
def serve(target: str | None, models: tuple[str, ...], config_file: str | None, watch: bool, **flags: Any) -> None:
    """Serve TARGET (a Python file, a folder or an archive), or the models named by --models and --config."""
    file = read_file(config_file) if config_file else {}
    per_model = _model_flags(flags)
    config = server_config(file, os.environ, flags)
    named = _named(target, models, config.model_store)
    values = native.models_from(file, named, per_model)
    if not values and not config.model_store:
        raise ConfigError("nothing to serve: name a Python file (shoal serve model.py), or use --models NAME=PATH")
    start(config, *native.apart(values), watch=watch)


@click.command()
@click.option("--host", help="Address to listen on.  [default: 127.0.0.1]")
@click.option("--port", type=int, help="Where the page is.  [default: 8080]")
@click.option("--management-port", type=int, help="Management, on loopback.  [default: 8081]")
@click.option("--metrics-port", type=int, help="Prometheus metrics.  [default: 8082]")
def demo(**flags: Any) -> None:
    """Serve two real models with a page to try them: what is in a picture, and the text in it."""
    config = server_config({"page": True}, os.environ, flags)
    with Progress(console=err, transient=True) as progress:
        ready = assets.ensure(progress)
    folder = Path(assets.__file__).parent
    start(
        config,
        [
            ModelConfig(
                name="bees",
                path=str(folder / "bees.py"),
                parameters={"model": str(ready.classifier), "labels": str(ready.labels)},
            ),
            ModelConfig(
                name="ocr",
                path=str(folder / "ocr.py"),
                parameters={"detector": str(ready.detector), "recogniser": str(ready.recogniser)},
            ),
        ],
    )


def start(
    config: ServerConfig,
    models: Sequence[ModelConfig],
    archives: Sequence[Mapping[str, object]] = (),
    *,
    watch: bool = False,
) -> None:
    """Run a server in the foreground until it is told to stop."""
    set_up_logs(config.log_level, config.log_format)
    sys.exit(app.run(config, models, native.announce, archives, watch=watch))


def _model_flags(flags: dict[str, Any]) -> dict[str, Any]:
    """Take out of the flags what belongs to models rather than to the server."""
    size, delay = flags.pop("batch_size"), flags.pop("max_batch_delay")
    if delay is not None and size is None:
        raise ConfigError("--max-batch-delay means nothing without --batch-size; without both, Shoal decides by itself")
    values = {name: flags.pop(name) for name in ("handler", "workers", "instances")}
    if size is not None:
        values["batching"] = {"batch_size": size} | ({} if delay is None else {"max_batch_delay": delay})
    return {name: value for name, value in values.items() if value is not None}


def _named(target: str | None, models: tuple[str, ...], model_store: str) -> list[tuple[str, Path]]:
    named = []
    if target is not None:
        source = find_source(target)
        named.append(("" if native.is_packed(source) else name_of(source), source))
    for model in models:
        name, equals, path = model.partition("=")
        if not equals or not path:
            raise ConfigError(f"--models takes NAME=PATH, got {model!r}")
        named.append((name, find_source(path, model_store)))
    return named
