"""`shoal check`: does the bare model answer in batches as it answers alone? No server is needed."""

import sys
from collections.abc import Sequence
from typing import Any

import click
import msgspec

from shoal.console import err
from shoal.errors import InvalidInput
from shoal.tools import units
from shoal.tools.check.messages import decode_report
from shoal.tools.check.trial import SIZES, Checked, Trial, load
from shoal.tools.profile.measure import holding
from shoal.tools.profile.source import overrides_of, settings_of
from shoal.tools.samples import Sample, read_samples
from shoal.worker.proof import ABSOLUTE, RELATIVE, Tolerance

CHILD = "shoal.tools.check.child"
LARGEST = 4096
MOST_SHOWN = 16  # numbers of an order


@click.command(context_settings={"max_content_width": 100})
@click.argument("model")
@click.option("-i", "--input", "inputs", multiple=True, required=True, help="A file, a folder of files, or JSON text.")
@click.option("--content-type", default="", help="Of the input, where its name does not tell.")
@click.option("--batch-sizes", default="", metavar="LIST", help="As 2,8 or 2:64:x2.  [default: 2,3,4,8,16]")
@click.option(
    "--tolerance",
    type=click.FloatRange(0, 1),
    default=RELATIVE,
    show_default=True,
    help="How far numbers may be apart, as a part of them.",
)
@click.option("--seed", type=int, default=1, show_default=True, help="Of the orders that are shuffled.")
@click.option("--time-limit", type=units.DURATION, default="2m", help="For all of it.  [default: 2m]")
@click.option("--handler", default="", help="Name of the class or function, where it is not found by itself.")
@click.option("--device", default="", help="What the handler is told to use: cpu, cuda:0.  [default: cpu]")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="For the handler.")
@click.option("--json", "is_json", is_flag=True, help="Print what was found as JSON.")
def check(model: str, inputs: tuple[str, ...], is_json: bool, **options: Any) -> None:
    """Check that MODEL (a Python file, a folder or an archive) answers in batches as it answers alone.

    Every input is run alone, twice; then all of them in batches of several sizes and orders. Answers that differ, are
    missing, or are another input's are told, and the exit code is 1.

    \b
    Examples:
      shoal check model.py --input cat.jpg --input dog.jpg
      shoal check resnet.mar --input pictures/ --tolerance 0.01
    """
    samples = read_samples(inputs, options["content_type"])
    sizes = _sizes(options["batch_sizes"])
    overrides = overrides_of(options)
    tolerance = Tolerance(options["tolerance"], min(ABSOLUTE, options["tolerance"]))
    found = _checked(model, overrides, samples, sizes, tolerance, options["seed"], options["time_limit"])
    if is_json:
        click.echo(msgspec.json.format(msgspec.json.encode(found), indent=2).decode())
    else:
        _show(found)
    if not found.is_fine:
        sys.exit(1)


def _sizes(text: str) -> list[int]:
    sizes = sorted({size for size in units.levels(text, "--batch-sizes") if size > 1}) if text else list(SIZES)
    if not sizes or sizes[-1] > LARGEST:
        raise InvalidInput(f"--batch-sizes: a batch that is checked has 2 to {LARGEST} items, got {text!r}")
    return sizes


def _checked(
    model: str,
    overrides: dict[str, Any],
    samples: list[Sample],
    sizes: Sequence[int],
    tolerance: Tolerance,
    seed: int,
    within: float,
) -> Checked:
    found = Checked(model)
    with settings_of(model, overrides) as config, holding(config, CHILD, decode_report) as holder:
        with err.status(f"loading {config.name}"):
            found.handler = load(holder, config, samples, tolerance)
        with err.status("alone") as status:
            trial = Trial(holder, samples, found, within=within)
            trial.run(sizes, seed, lambda size: status.update(f"batches of {size}" if size > 1 else "alone"))
    return found


def _show(found: Checked) -> None:
    click.echo(f"{found.model}: {found.handler}, {found.samples} input{'s' * (found.samples != 1)}")
    for text in found.refused:
        click.echo(f"fails alone, and is left out: {text}")
    for row in found.rows:
        what = "alone, again: " if row.size == 1 else f"batches of {row.size}: {row.batches} orders, "
        end = "all as alone" if not row.wrong else f"{row.wrong} not as alone"
        end = end.replace("as alone", "as before") if row.size == 1 else end
        click.echo(f"{what}{row.answers} answers, {end}")
        for each in found.differences:
            if each.size == row.size:
                numbers = " ".join(map(str, each.order[:MOST_SHOWN])) + (" ..." if len(each.order) > MOST_SHOWN else "")
                order = f", order {numbers}" if len(each.order) > 1 else ""
                click.echo(f"  place {each.place} of {each.size}{order}: {each.sample}: {each.text}")
    for note in found.notes:
        click.echo(f"note: {note}")
    click.echo(_verdict(found))


def _verdict(found: Checked) -> str:
    if not found.rows or not found.rows[0].answers:
        return "NOT CHECKED: no input was answered alone"
    if found.is_fine:
        return "fine: it answers in batches as it answers alone"
    if found.rows[0].wrong:
        return "NOT FINE: it does not give the same answer twice, even alone"
    return "NOT FINE: do not batch it as it is"
