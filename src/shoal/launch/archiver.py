"""`shoal archive`: writes model archives with torch-model-archiver's options, and looks at what goes in first."""

import os
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import click
from rich.filesize import decimal
from rich.progress import BarColumn, DownloadColumn, Progress, TextColumn
from rich.table import Table

from shoal.archive import checks, pack
from shoal.archive.checks import Finding
from shoal.archive.manifest import MANIFEST
from shoal.console import err
from shoal.errors import InvalidInput

COLOURS = {"error": "bold red", "warning": "yellow", "fine": "green"}
FORMATS = ["default", "zip-store", "tgz", "no-archive"]


@click.command()
@click.option("--model-name", required=True, help="Name of the model and of the archive.")
@click.option("-v", "--version", help="Version of the model. [required without --model-path]")
@click.option("--handler", required=True, help="Python file, FILE.py:FUNCTION, or a built-in handler's name.")
@click.option("--serialized-file", help="Weights: .pt, .pth, .onnx, ...")
@click.option("--model-file", help="Python file with the model's class, for weights that are a state dict.")
@click.option("--extra-files", help="Comma-separated files, patterns, and folders, whose contents are added.")
@click.option("--model-path", help="Multi Model Server's form: pack this whole folder; the handler is in it.")
@click.option(
    "--runtime", type=click.Choice(["python", "python2", "python3", "LSP"]), default="python", show_default=True
)
@click.option("--export-path", default="", help="Folder the archive is written to.  [default: this one]")
@click.option("--archive-format", "form", type=click.Choice(FORMATS), default="default", show_default=True)
@click.option("-f", "--force", is_flag=True, help="Replace an archive that is there.")
@click.option("-r", "--requirements-file", help="Packages of this model, in pip's form.")
@click.option("-c", "--config-file", help="Settings of this model: model-config.yaml.")
@click.option("--no-check", is_flag=True, help="Write it without importing the handler or reading the settings.")
def archive(export_path: str, form: Any, force: bool, no_check: bool, **options: Any) -> None:
    """Write a model archive that TorchServe, Multi Model Server and Shoal can serve."""
    try:
        parcel = _parcel(**options)
        target = pack.target_of(parcel, export_path, form)
        if target.exists() and not force:
            pack.write(parcel, target, form)  # says why it does not
        if not no_check:
            _check(parcel, options)
        _write(parcel, target, form, force)
    except InvalidInput as error:
        raise click.ClickException(str(error)) from None
    _show(parcel, target)


def _parcel(model_name: str, version: str | None, handler: str, **options: Any) -> pack.Parcel:
    model_path, runtime = options.pop("model_path"), options.pop("runtime")
    given = {name: value for name, value in options.items() if value}
    if model_path:
        if given or version:
            names = ", ".join("--" + name.replace("_", "-") for name in [*given, *(["version"] if version else [])])
            raise InvalidInput(f"--model-path packs a whole folder for Multi Model Server; it does not go with {names}")
        if runtime == "LSP":
            raise InvalidInput("--runtime LSP does not go with --model-path")
        return pack.mms_parcel(model_name, model_path, handler, runtime=runtime)
    if not version:
        raise click.UsageError("Missing option '-v' / '--version'.")
    if runtime in ("LSP", "python2"):
        reason = "handlers in C++ are not supported" if runtime == "LSP" else "it belongs to --model-path"
        raise InvalidInput(f"--runtime {runtime}: {reason}")
    return pack.torchserve_parcel(model_name, version, handler, runtime=runtime, **given)


def _check(parcel: pack.Parcel, options: dict[str, Any]) -> None:
    failed = []
    for finding in _findings(parcel, options):
        err.print(f"[{COLOURS[finding.level]}]{finding.level}:[/] ", end="")
        err.print(finding.text, markup=False, soft_wrap=True)
        failed += [finding] if finding.level == "error" else []
    if failed:
        raise InvalidInput("nothing was written; --no-check writes it anyway")


def _findings(parcel: pack.Parcel, options: dict[str, Any]) -> Iterator[Finding]:
    handler = parcel.manifest["model"]["handler"]
    is_built_in = handler in pack.BUILT_IN
    if path := options["serialized_file"]:
        has_model_file = bool(options["model_file"])
        yield from checks.check_weights(Path(path), has_model_file=has_model_file, is_built_in=is_built_in)
    if path := options["requirements_file"]:
        yield from checks.check_requirements(Path(path), parcel.members)
    if path := options["config_file"]:
        yield from checks.check_settings(Path(path))
    if is_built_in:
        yield Finding("fine", f"handler {handler}: built in")
    else:
        with err.status(f"importing {handler}"):
            finding = checks.check_handler(handler, parcel.members)
        yield finding


def _write(parcel: pack.Parcel, target: Path, form: Any, force: bool) -> None:
    total = sum(path.stat().st_size for path in parcel.members.values()) + len(parcel.manifest_bytes)
    columns = (TextColumn("{task.description}"), BarColumn(), DownloadColumn())
    with Progress(*columns, console=err, transient=True) as progress:
        task = progress.add_task(target.name, total=total)
        on_bytes: Callable[[int], None] = lambda count: progress.advance(task, count)  # noqa: E731
        pack.write(parcel, target, form, force=force, on_bytes=on_bytes)


def _show(parcel: pack.Parcel, target: Path) -> None:
    table = Table.grid(padding=(0, 2))
    table.add_column(justify="right")
    for member, path in parcel.members.items():
        table.add_row(decimal(path.stat().st_size), member)
    table.add_row(decimal(len(parcel.manifest_bytes)), MANIFEST)
    err.print(table)
    size = f" ({decimal(target.stat().st_size)})" if target.is_file() else ""
    click.echo(f"{os.path.normpath(target)}{size}")
