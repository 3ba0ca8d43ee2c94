"""`shoal profile`: how fast the bare model is at each batch size, without a server."""

import sys
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import click
from rich.progress import BarColumn, Progress, TaskID, TextColumn, TimeElapsedColumn

from shoal.config.profile import beside
from shoal.console import err, out
from shoal.errors import InvalidInput
from shoal.tools import units
from shoal.tools.files import base_of, check_writable, write_whole
from shoal.tools.profile import report
from shoal.tools.profile.measure import Measured, holding, load, measure
from shoal.tools.profile.rules import SIZES, Limits
from shoal.tools.profile.source import overrides_of, settings_of
from shoal.tools.reports import write_report
from shoal.tools.samples import Sample, read_samples

LARGEST = 65536


@click.command(context_settings={"max_content_width": 100})
@click.argument("model")
@click.option("-i", "--input", "inputs", multiple=True, required=True, help="A file, a folder of files, or JSON text.")
@click.option("--content-type", default="", help="Of the input, where its name does not tell.")
@click.option("--batch-sizes", default="", metavar="LIST", help="As 1,8,32 or 1:256:x2.  [default: 1:256:x2]")
@click.option("--latency-goal", type=units.DURATION, help="The longest a batch may take, as 50ms.")
@click.option("--seconds", type=units.DURATION, default="1s", help="For the runs of each size.  [default: 1s]")
@click.option("--time-limit", type=units.DURATION, default="2m", help="For all sizes.  [default: 2m]")
@click.option(
    "--warmup", type=click.IntRange(1, 10_000), default=3, metavar="N", help="First runs left out.  [default: 3]"
)
@click.option("--handler", default="", help="Name of the class or function, where it is not found by itself.")
@click.option("--device", default="", help="What the handler is told to use: cpu, cuda:0.  [default: cpu]")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="For the handler.")
@click.option("-o", "--output", default="", metavar="NAME", help="Write NAME.md, NAME.json and NAME.png.")
@click.option("--keep", is_flag=True, help="Keep the result beside the model, as NAME.profile.json.")
def profile(model: str, inputs: tuple[str, ...], output: str, keep: bool, **options: Any) -> None:
    """Measure MODEL (a Python file, a folder or an archive) at growing batch sizes, without a server.

    It stops when memory, time or the list of sizes ends, shows the knee, and with --latency-goal the best batch
    within it.

    \b
    Examples:
      shoal profile model.py --input cat.jpg
      shoal profile resnet.mar --input pictures/ --latency-goal 50ms
      shoal profile model.py --input '{"x": 1}' --batch-sizes 1:64:x4 --output report
    """
    samples = read_samples(inputs, options["content_type"])
    sizes = _sizes(options["batch_sizes"])
    limits = Limits(options["seconds"], 5, options["warmup"], options["time_limit"])
    if output:
        check_writable(base_of(output))
    found, is_interrupted = _measured(model, overrides_of(options), samples, sizes, limits)
    made = report.profile_of(model, [sample.name for sample in samples], found, options["latency_goal"] or 0.0)
    if not made.rows:
        raise InvalidInput(f"{model} could not be measured: {made.stopped or 'interrupted before the first size'}")
    _show(made)
    _write(made, output, Path(model).absolute() if keep else None)
    if is_interrupted:
        sys.exit(130)


def _sizes(text: str) -> list[int]:
    sizes = sorted(units.levels(text, "--batch-sizes")) if text else list(SIZES)
    if sizes[-1] > LARGEST:
        raise InvalidInput(f"--batch-sizes: a batch has {LARGEST} items at most, got {sizes[-1]}")
    return sizes


def _measured(
    model: str, overrides: dict[str, Any], samples: list[Sample], sizes: list[int], limits: Limits
) -> tuple[Measured, bool]:
    """Measure; the second value says that Ctrl-C ended it."""
    with settings_of(model, overrides) as config, holding(config) as holder:
        with err.status(f"loading {config.name}"):
            found = load(holder, config, samples)
        try:
            with _progress(len(sizes)) as (bar, task):

                def on_run(size: int, done: float) -> None:
                    bar.update(task, completed=sizes.index(size) + done, description=f"batch size {size}")

                measure(holder, found, sizes, limits, on_run)
        except KeyboardInterrupt:
            found.stopped = "interrupted"
            return found, True
    return found, False


@contextmanager
def _progress(count: int) -> Iterator[tuple[Progress, TaskID]]:
    columns = (TextColumn("{task.description}"), BarColumn(), TimeElapsedColumn())
    with Progress(*columns, console=err, transient=True, disable=not err.is_terminal) as bar:
        yield bar, bar.add_task("warming up", total=count)


def _show(made: report.Profile) -> None:
    printed = out()
    printed.print(
        f"{made.model}: {made.handler} on {made.device}, {units.show_bytes(made.memory)} resident", markup=False
    )
    printed.print(report.table(made))
    for text in report.findings(made):
        printed.print(text, markup=False, soft_wrap=True)


def _write(made: report.Profile, output: str, kept: Path | None) -> None:
    if kept is not None:
        click.echo(f"kept {write_whole(beside(kept), report.to_json(made))}")
    if not output:
        return
    files: dict[str, str | bytes] = {"md": report.to_markdown(made), "json": report.to_json(made)}
    write_report("profile", base_of(output), files)
