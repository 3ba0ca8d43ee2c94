"""`shoal models`: what a running server serves, and the management of it."""

import contextlib
import json
import time
from collections.abc import Mapping, Sequence
from typing import Any

import click
from rich.console import Group
from rich.live import Live
from rich.table import Table
from rich.text import Text

from shoal.console import err, out
from shoal.tools.calls import ServerFailed, site_of
from shoal.tools.management import Management, ModelRow
from shoal.tools.units import DURATION, show, show_bytes

DEFAULT = "http://127.0.0.1:8081"
WIDE = {"max_content_width": 100}


@click.group(context_settings=WIDE, invoke_without_command=True)
@click.option("--url", default=DEFAULT, show_default=True, help="The server's management address.")
@click.option("--token", envvar="MANAGEMENT_TOKEN", default="", help="Management key.  [or MANAGEMENT_TOKEN]")
@click.option("-k", "--insecure", is_flag=True, help="Take any certificate.")
@click.pass_context
def models(context: click.Context, url: str, token: str, insecure: bool) -> None:
    """List and manage the models of a running server; without a command, list them.

    \b
    Examples:
      shoal models
      shoal models register resnet.mar --workers 2
      shoal models scale resnet 4
      shoal models replace resnet-2.mar --name resnet
      shoal models --url http://10.0.0.7:8081 watch
    """
    context.obj = Management(site_of(url, verifies=not insecure), token)
    if context.invoked_subcommand is None:
        context.invoke(show_list)


@models.command("list")
@click.option("--json", "as_json", is_flag=True, help="For programs.")
@click.pass_obj
def show_list(server: Management, as_json: bool = False) -> None:
    """List all versions of all models."""
    rows = server.rows()
    if as_json:
        click.echo(json.dumps([{field: getattr(row, field) for field in row.__struct_fields__} for row in rows]))
    elif rows:
        out().print(_table(rows))
    else:
        click.echo(f"{server.url} has no models")


@models.command()
@click.argument("name")
@click.argument("version", default="")
@click.option("--json", "as_json", is_flag=True, help="Everything the server says.")
@click.pass_obj
def describe(server: Management, name: str, version: str, as_json: bool) -> None:
    """Tell of one model: its default VERSION, another one, or `all`."""
    found = server.describe(name, version)
    if as_json:
        click.echo(json.dumps(found, indent=1))
        return
    for facts in found:
        out().print(_description(facts))


@models.command()
@click.argument("url")
@click.option("--name", default="", help="What it is called.  [default: its own name]")
@click.option("--version", default="", help="Where it has none of its own.  [default: 1.0]")
@click.option("--workers", type=click.IntRange(0, 10_000), metavar="N", help="[default: as many as there are]")
@click.option("--handler", default="", help="In place of the archive's own.")
@click.pass_obj
def replace(server: Management, url: str, name: str, version: str, workers: int | None, handler: str) -> None:
    """Load a version beside the one that serves and let it take its place; no request fails.

    One that cannot be loaded changes nothing.
    """
    told = {"replace": "true", "model_name": name, "model_version": version, "handler": handler}
    told |= {} if workers is None else {"initial_workers": str(workers)}
    with err.status(f"loading {url}"):
        said = server.register(url, {key: value for key, value in told.items() if value})
    click.echo(said)


@models.command()
@click.argument("name")
@click.argument("version")
@click.argument("weight", type=click.FloatRange(0, 100), metavar="PERCENT")
@click.pass_obj
def canary(server: Management, name: str, version: str, weight: float) -> None:
    """Send a VERSION so many PERCENT of the requests that name none; it loses them if it is worse. 0 ends it."""
    click.echo(server.share(name, version, weight))


@models.command()
@click.argument("url")
@click.option("--name", default="", help="What it is to be called.  [default: its own name]")
@click.option("--version", default="", help="Where it has none of its own.  [default: 1.0]")
@click.option("--workers", type=click.IntRange(0, 10_000), metavar="N", help="Processes to start.")
@click.option("--batch-size", type=click.IntRange(1, 65536), metavar="N", help="With TorchServe's meaning.")
@click.option("--max-batch-delay", type=click.IntRange(0, 3_600_000), metavar="MS", help="With TorchServe's meaning.")
@click.option("--handler", default="", help="In place of the archive's own.")
@click.pass_obj
def register(server: Management, /, url: str, name: str, version: str, handler: str, **numbers: int | None) -> None:
    """Register a model: a name in the server's model store, or an address it may fetch from."""
    words = {"workers": "initial_workers"}
    told = {words.get(key, key): str(value) for key, value in numbers.items() if value is not None}
    texts = {"model_name": name, "model_version": version, "handler": handler}
    told |= {key: value for key, value in texts.items() if value}
    with err.status(f"loading {url}"):
        said = server.register(url, told)
    click.echo(said)


@models.command()
@click.argument("name")
@click.argument("workers", type=click.IntRange(0, 10_000), metavar="N")
@click.option("--version", default="", help="Of the model.  [default: its default one]")
@click.pass_obj
def scale(server: Management, name: str, workers: int, version: str) -> None:
    """Have N workers for a model; 0 stops all of them."""
    with err.status(f"scaling {name}"):
        said = server.scale(name, version, workers)
    click.echo(said)


@models.command()
@click.argument("name")
@click.argument("version", default="")
@click.pass_obj
def remove(server: Management, name: str, version: str) -> None:
    """Take a model, or one VERSION of it, away; what it was given is finished first."""
    click.echo(server.remove(name, version))


@models.command("default")
@click.argument("name")
@click.argument("version")
@click.pass_obj
def set_default(server: Management, name: str, version: str) -> None:
    """Choose the VERSION that a bare name means."""
    click.echo(server.set_default(name, version))


@models.command()
@click.option("--interval", type=DURATION, default="1s", help="Between two looks.  [default: 1s]")
@click.option("--count", type=click.IntRange(1), metavar="N", help="Looks before it ends.  [default: until Ctrl-C]")
@click.pass_obj
def watch(server: Management, interval: float, count: int | None) -> None:
    """Keep a table of the models up to date, with answers per second."""
    console = out()
    before: dict[tuple[str, str], tuple[float, int]] = {}
    looks = 0
    rows = server.rows()  # a server that is not there is said before the screen is taken
    live = Live(console=console, auto_refresh=False)
    try:
        with live if console.is_terminal else contextlib.nullcontext():
            while True:
                now = time.monotonic()
                rates = {_key(row): _rate(before.get(_key(row)), now, row.answered) for row in rows}
                before = {_key(row): (now, row.answered) for row in rows}
                picture = _picture(server.url, rows, rates)
                if console.is_terminal:
                    live.update(picture, refresh=True)
                else:
                    console.print(picture)
                looks += 1
                if looks == count:
                    return
                time.sleep(interval)
                rows = server.rows()
    except KeyboardInterrupt:
        return
    except ServerFailed as error:
        raise ServerFailed(f"the server left: {error}") from None


def _rate(before: tuple[float, int] | None, now: float, answered: int) -> float:
    """Answers per second since the last look; a counter that went back belongs to a new server."""
    if before is None or now <= before[0] or answered < before[1]:
        return 0.0
    return (answered - before[1]) / (now - before[0])


def _key(row: ModelRow) -> tuple[str, str]:
    return row.name, row.version


def _picture(url: str, rows: Sequence[ModelRow], rates: Mapping[tuple[str, str], float]) -> Group:
    head = Text(f"{url}  {time.strftime('%H:%M:%S')}", style="dim")
    return Group(head, _table(rows, rates) if rows else Text("no models"))


def _table(rows: Sequence[ModelRow], rates: Mapping[tuple[str, str], float] | None = None) -> Table:
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    left = ("model", "version", "state", "last error")
    middle = ("workers", "waiting", "batch size", "answered", "failed", "memory")
    has_errors = any(row.problem for row in rows)
    for name in ("model", "version", "state", *middle, *(["answers/s"] if rates is not None else [])):
        drawn.add_column(name, justify="left" if name in left else "right", no_wrap=True)
    if has_errors:
        drawn.add_column("last error")
    for row in rows:
        cells = [
            *(row.name, row.version + (" *" if row.is_default else ""), row.state, f"{row.ready}/{row.workers}"),
            *map(str, (row.waiting, row.batch_size, row.answered, row.failed)),
            show_bytes(row.memory),
            *([show(rates.get(_key(row), 0.0))] if rates is not None else []),
            *([row.problem] if has_errors else []),
        ]
        drawn.add_row(*map(Text, cells), style="" if row.ready and row.ready == row.workers else "yellow")
    return drawn


def _description(facts: Mapping[str, Any]) -> Table:
    """The plain facts, one a row; what is nested is told by `--json`."""
    drawn = Table.grid(padding=(0, 2))
    for name, value in facts.items():
        if isinstance(value, str | int | float) and value != "":
            drawn.add_row(Text(name, style="bold"), Text(str(value)))
    for name in ("rollout", "canary"):
        if told := facts.get(name):
            words = (f"{key} {value}" for key, value in told.items() if isinstance(value, str | int | float))
            drawn.add_row(Text(name, style="bold"), Text(", ".join(words)))
    for worker in facts.get("workers") or []:
        memory = show_bytes(int(worker.get("memoryUsage", 0)))
        told = f"{worker.get('status', '')}, pid {worker.get('pid', '?')}, {memory}"
        if worker.get("lastError"):
            told += f", last error: {worker['lastError']}"
        drawn.add_row(Text(f"worker {worker.get('id', '')}", style="bold"), Text(told))
    return drawn
