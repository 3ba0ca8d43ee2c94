"""`shoal bench`: loads a server and says what it does under it; or compares two such reports."""

import asyncio
import contextlib
import signal
import sys
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import uvloop
from rich.table import Table

from shoal.archive.source import find_source
from shoal.console import err, out
from shoal.errors import InvalidInput, ServingError
from shoal.tools import machine, units
from shoal.tools.bench import compare as comparing
from shoal.tools.bench import plan, text
from shoal.tools.bench.live import View
from shoal.tools.bench.page import to_html
from shoal.tools.bench.plan import Settings, Step
from shoal.tools.bench.results import Report
from shoal.tools.bench.rpc import is_rpc, rpc_target, with_made_up, with_messages
from shoal.tools.bench.runner import Runner
from shoal.tools.bench.target import (
    Target,
    check,
    is_address,
    read_headers,
    request_of,
    serving,
    target_of,
    with_tensors,
)
from shoal.tools.bench.tensors import read_shapes
from shoal.tools.files import base_of, check_writable
from shoal.tools.reports import write_report
from shoal.tools.samples import Sample, read_samples

INTERRUPTED = 130


@click.command(context_settings={"max_content_width": 100})
@click.argument("target", required=False)
@click.option("-m", "--model", default="", help="Name, where the address has no path.")
@click.option("-i", "--input", "inputs", multiple=True, help="A file, a folder of files, or JSON text.")
@click.option("--content-type", default="", help="Of the input, where its name does not tell.")
@click.option("--tensors", type=click.Choice(["json", "binary"]), help="Make v2 tensors up from the metadata.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,..", help="Of such a tensor.")
@click.option("-H", "--header", "headers", multiple=True, metavar="'NAME: VALUE'", help="Added to requests.")
@click.option("--token", envvar="INFERENCE_TOKEN", default="", help="Inference key.  [or INFERENCE_TOKEN]")
@click.option("-k", "--insecure", is_flag=True, help="Take any certificate.")
@click.option("-c", "--concurrency", default="", help="Closed loop: 1,8 or 1:64:x2.  [default: 1,8,64]")
@click.option("-r", "--rate", default="", help="Open loop: requests per second, as 100,200.")
@click.option("--arrivals", type=click.Choice(["poisson", "constant"]), default="poisson", help="Of an open loop.")
@click.option("--burst", type=click.IntRange(1, 100_000), default=1, metavar="N", help="Requests that come at once.")
@click.option("--trace", default="", metavar="FILE", help="Open loop: arrivals in seconds, one a line.")
@click.option("--window", type=units.DURATION, default="2s", help="Of measuring.  [default: 2s]")
@click.option("--warmup", type=units.DURATION, default="1s", help="Before the first window.  [default: 1s]")
@click.option("--stability", default="5%", help="Of three windows in a row.  [default: 5%]")
@click.option(
    "--max-windows", type=click.IntRange(1, 10_000), default=10, metavar="N", help="Of a level.  [default: 10]"
)
@click.option("--timeout", type=units.DURATION, default="30s", help="Of a request.  [default: 30s]")
@click.option(
    "--connections",
    type=click.IntRange(1, 60_000),
    default=1000,
    metavar="N",
    help="Most of an open loop.  [default: 1000]",
)
@click.option(
    "--processes", type=click.IntRange(1, 64), metavar="N", help="That make the load.  [default: half the cores]"
)
@click.option("--serve", "arguments", default="", metavar="FLAGS", help="For the server of a MODEL: '--workers 2'.")
@click.option("-o", "--output", default="", metavar="NAME", help="Write NAME.md, .csv, .json, .png and .html.")
@click.option("--compare", nargs=2, metavar="A.json B.json", help="Compare two reports; no load is made.")
def bench(target: str | None, compare: tuple[str, str] | None, **options: Any) -> None:
    """Load TARGET, a server's URL or a model's file, and show throughput, latency and how it batched.

    \b
    Examples:
      shoal bench http://127.0.0.1:8080/predictions/cats --input cat.jpg
      shoal bench model.py --input '{"x": 1}' --concurrency 1:64:x2 --output report
      shoal bench http://127.0.0.1:8080 -m cats -i pictures/ --rate 100,200 --burst 4
      shoal bench grpc://127.0.0.1:7070 --model cats --input cat.jpg
      shoal bench --compare before.json after.json
    """
    if compare is not None:
        _compare(*compare)
        return
    if target is None:
        raise click.UsageError(
            "Missing argument 'TARGET': an address or a model's file; or use --compare A.json B.json"
        )
    steps = plan.steps(options["concurrency"], options["rate"], options["trace"], options["arrivals"], options["burst"])
    settings = _settings(options)
    samples = read_samples(options["inputs"], options["content_type"])
    if bool(samples) == bool(options["tensors"]):
        raise InvalidInput("say what to send: --input FILE, FOLDER or JSON text; or --tensors json")
    if options["output"]:
        check_writable(base_of(options["output"]))
    with _target(target, options) as aimed:
        if is_rpc(target):
            shapes = read_shapes(options["shapes"])
            aimed, samples = (
                with_made_up(aimed, shapes, settings.timeout)
                if options["tensors"]
                else with_messages(aimed, samples, settings.timeout)
            )
        elif options["tensors"]:
            aimed, sample = with_tensors(aimed, read_shapes(options["shapes"]), options["tensors"])
            samples = [sample]
        if not is_rpc(target):
            check(aimed, samples[0], settings.timeout)
        report = _run(aimed, samples, settings, steps)
    _show(report)
    if options["output"] and report.levels:
        _write(report, base_of(options["output"]))
    _leave(report, options["output"])


def _settings(options: dict[str, Any]) -> Settings:
    return Settings(
        window=options["window"],
        warmup=options["warmup"],
        stability=units.percent(options["stability"]),
        most_windows=options["max_windows"],
        timeout=options["timeout"],
        connections=options["connections"],
        processes=options["processes"] or max(1, min(4, machine.cores() // 2)),
    )


@contextlib.contextmanager
def _target(name: str, options: dict[str, Any]) -> Iterator[Target]:
    headers = read_headers(options["headers"], options["token"])
    how = {"verifies": not options["insecure"], "tensors": bool(options["tensors"])}
    if is_rpc(name):
        yield rpc_target(name, options["model"], headers, verifies=not options["insecure"])
        return
    if is_address(name):
        yield target_of(name, options["model"], headers, **how)
        return
    source = find_source(name)
    with contextlib.ExitStack() as stack:
        with err.status(f"starting a server for {source.name}"):
            url, model = stack.enter_context(serving(str(source), options["arguments"]))
        yield target_of(url, options["model"] or model, headers, **how)


def _run(target: Target, samples: Sequence[Sample], settings: Settings, steps: Sequence[Step]) -> Report:
    requests = [request_of(target, sample) for sample in samples]
    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        findings = runner.run(_load(target, requests, settings, steps))
    names = [sample.name for sample in samples]
    size = sum(len(sample.body) for sample in samples) // len(samples)
    body = f"{names[0]}, {size} bytes" if len(names) == 1 else f"{len(names)} files of {size} bytes on average"
    return Report(
        target=target.url,
        body=body,
        settings={
            "window": f"{settings.window:g} s",
            "warm-up": f"{settings.warmup:g} s",
            "stability": f"{100 * settings.stability:g} %",
            "processes": str(settings.processes),
        },
        machine=machine.facts(),
        levels=findings.levels,
        problem=findings.problem,
    )


async def _load(target: Target, requests: list[bytes], settings: Settings, steps: Sequence[Step]) -> Any:
    running = Runner(target.site, requests, settings, lambda *heard: view.on_slice(*heard), target.block)
    view = View(err, settings, running.findings.levels)
    loop = asyncio.get_running_loop()
    for number in (signal.SIGINT, signal.SIGTERM):
        loop.add_signal_handler(number, running.stopping.set)
    with view:
        await running.run(steps)
    return running.findings


def _show(report: Report) -> None:
    if not report.levels:
        return
    printed = out()
    printed.print(text.level_table(report.levels))
    for level in report.levels:
        for line in (*text.server_lines(level), *text.error_lines(level), *text.note_lines(level)):
            printed.print(line, markup=False, soft_wrap=True)


def _write(report: Report, base: Path) -> None:
    files: dict[str, str | bytes] = {
        "md": text.to_markdown(report),
        "csv": text.to_csv(report),
        "json": msgspec.json.encode(report) + b"\n",
        "html": to_html(report),
    }
    write_report("bench", base, files)


def _leave(report: Report, output: str) -> None:
    """Say what went wrong in one line, and leave with a code that says so too."""
    if not report.problem:
        if not any(level.answered for level in report.levels):
            raise ServingError(f"{report.target} answered no request: {_errors(report)}")
        return
    kept = f"; the results so far are in {base_of(output)}.json" if output and report.levels else ""
    err.print("[bold red]error:[/] ", end="")
    err.print(f"{report.problem}{kept}", markup=False, soft_wrap=True)
    sys.exit(INTERRUPTED if report.problem == "interrupted" else 1)


def _errors(report: Report) -> str:
    counts: dict[str, int] = {}
    for level in report.levels:
        for kind, count in level.errors.items():
            counts[kind] = counts.get(kind, 0) + count
    return ", ".join(f"{count} {kind}" for kind, count in counts.items()) or "nothing came back"


def _compare(before: str, after: str) -> None:
    changes = comparing.compare(comparing.read_report(before), comparing.read_report(after))
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in ("load", "figure", before, after, "change", "95 % interval", "verdict"):
        drawn.add_column(name, justify="left" if name in ("load", "figure", "verdict") else "right", no_wrap=True)
    styles = {"better": "green", "worse": "red", "no difference shown": ""}
    for change in changes:
        write = units.show if change.figure == "answers/s" else units.show_ms
        name = change.figure if change.figure == "answers/s" else f"{change.figure} ms"
        drawn.add_row(
            *(change.label, name, write(change.before), write(change.after), _signed(change.change)),
            f"{_signed(change.low)} to {_signed(change.high)}",
            change.verdict,
            style=styles[change.verdict],
        )
    out().print(drawn)


def _signed(share: float) -> str:
    return f"{100 * share:+.1f} %"
