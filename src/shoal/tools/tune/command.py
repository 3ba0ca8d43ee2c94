"""`shoal tune`: finds the settings of a model that do best under a load, by trying them."""

import asyncio
import signal
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import click
import msgspec
import uvloop
from rich.table import Table

from shoal.archive.source import find_source, name_of
from shoal.config.load import read_file
from shoal.console import err, out
from shoal.errors import ConfigError, InvalidInput
from shoal.tools import machine, units
from shoal.tools.bench import plan as loads
from shoal.tools.bench.plan import Settings
from shoal.tools.bench.tensors import read_shapes
from shoal.tools.files import base_of, check_writable
from shoal.tools.profile.source import overrides_of
from shoal.tools.reports import write_report
from shoal.tools.samples import Sample, read_samples
from shoal.tools.tune.goal import Goals, read_goals, show_figures
from shoal.tools.tune.hosts import Host, Native, Triton, triton_model
from shoal.tools.tune.page import to_html
from shoal.tools.tune.report import COLUMNS, Report, bought_lines, cells, report_of, to_markdown
from shoal.tools.tune.setting import Setting, setting_of
from shoal.tools.tune.space import DELAYS, LIMITS, Space
from shoal.tools.tune.trials import Plan, Run
from shoal.tools.tune.tuner import Found, Tuner

INTERRUPTED = 130
LISTENERS = ("port", "management_port", "metrics_port", "grpc_port", "unix_socket", "host", "management_host")


@click.command(context_settings={"max_content_width": 100})
@click.argument("model")
@click.option("-i", "--input", "inputs", multiple=True, help="A file, a folder, or JSON text.")
@click.option("--content-type", default="", help="Of the input, where its name does not tell.")
@click.option("--tensors", type=click.Choice(["json", "binary"]), help="Of a Triton model: made up.")
@click.option("--shape", "shapes", multiple=True, metavar="NAME=1,3,..", help="Of such a tensor.")
@click.option("-g", "--goal", "goals", multiple=True, help="p99=50ms, memory=2GB; else throughput=max.")
@click.option("-c", "--concurrency", default="32", help="Closed loop: requests at once.  [default: 32]")
@click.option("-r", "--rate", default="", help="Open loop: requests per second.")
@click.option("--batch-sizes", default="", metavar="LIST", help="Batch limits to try.  [default: 1:256:x2]")
@click.option("--delays", default="", metavar="LIST", help="Waits for one, ms.  [default: 1,5,20,50]")
@click.option("--workers", default="", metavar="LIST", help="Processes to try.  [default: to the cores]")
@click.option("--instances", default="1,2", metavar="LIST", help="Threads in each to try.  [default: 1,2]")
@click.option("--window", type=units.DURATION, default="2s", help="A look at a setting, at most.  [default: 2s]")
@click.option("--warmup", type=units.DURATION, default="500ms", help="Before each look.  [default: 500ms]")
@click.option("--time-limit", type=units.DURATION, default="5m", help="For everything.  [default: 5m]")
@click.option("--timeout", type=units.DURATION, default="30s", help="Of a request.  [default: 30s]")
@click.option("--start-timeout", type=units.DURATION, default="2m", help="Of a server's start.  [default: 2m]")
@click.option("--config", "config_file", default="", metavar="FILE", help="Settings file that has MODEL's section.")
@click.option("--handler", default="", help="Class or function, if not found by itself.")
@click.option("--device", default="", help="cpu, cuda:0.  [default: cpu]")
@click.option("-p", "--parameter", "parameters", multiple=True, metavar="NAME=VALUE", help="For the handler.")
@click.option("-o", "--output", default="", metavar="NAME", help="Write NAME.md, .json, .html and .png.")
def tune(model: str, output: str, **options: Any) -> None:
    """Find the batching, workers and stages that serve MODEL best, by short loads on a real server.

    The default is measured first and beside the best at the end; where it is as good, that is what it says.

    \b
    Examples:
      shoal tune model.py --input cat.jpg --goal p99=50ms
      shoal tune resnet.mar --input pictures/ --concurrency 64 --output report
      shoal tune cats --config shoal.toml --input cat.jpg --rate 200 --goal p99=20ms
      shoal tune repository/detector --tensors binary
    """
    goals = read_goals(options["goals"], is_open=bool(options["rate"]))
    concurrency = "" if options["rate"] else options["concurrency"]
    steps = loads.steps(concurrency, options["rate"], "", "poisson", 1)
    if len(steps) != 1:
        raise InvalidInput("a model is tuned for one load; give one --concurrency or one --rate")
    space = _space(options)
    if output:
        check_writable(base_of(output))
    host = _host(model, options)
    samples = _samples(host, goals, options)
    shapes = read_shapes(options["shapes"])
    how = (steps[0], goals, _look(options), options["start_timeout"], options["tensors"], shapes)
    found = _tuned(Plan(host, samples, *how), space, options["time_limit"])
    if not found.trials.runs:
        raise InvalidInput(f"{model} was not measured: {found.stopped}")
    report = report_of(host, goals, steps[0].label, _body(samples), found)
    _show(report)
    if output:
        _write(report, base_of(output))
    if found.stopped == "interrupted":
        sys.exit(INTERRUPTED)
    if not report.verdict.is_met:
        sys.exit(1)


def _samples(host: Host, goals: Goals, options: dict[str, Any]) -> list[Sample]:
    samples = read_samples(options["inputs"], options["content_type"])
    is_triton = isinstance(host, Triton)
    if bool(samples) == bool(options["tensors"]) or (options["tensors"] and not is_triton):
        made_up = "; or --tensors json" if is_triton else ""
        raise InvalidInput(f"say what to send: --input FILE, FOLDER or JSON text{made_up}")
    if is_triton and "memory" in goals.limits:
        raise InvalidInput("--goal memory: a server in Triton's place does not tell its workers' memory")
    return samples


def _body(samples: Sequence[Sample]) -> str:
    if not samples:
        return "tensors made up"
    size = sum(len(sample.body) for sample in samples) // len(samples)
    return f"{samples[0].name if len(samples) == 1 else f'{len(samples)} files'}, {size} bytes"


def _look(options: dict[str, Any]) -> Settings:
    return Settings(window=options["window"], warmup=options["warmup"], timeout=options["timeout"], processes=1)


def _space(options: dict[str, Any]) -> Space:
    workers = [1 << power for power in range(8) if 1 << power <= max(2, machine.cores())]
    return Space(
        limits=sorted(units.levels(options["batch_sizes"], "--batch-sizes")) if options["batch_sizes"] else LIMITS,
        delays=_delays(options["delays"]) if options["delays"] else DELAYS,
        workers=sorted(units.levels(options["workers"], "--workers")) if options["workers"] else workers,
        instances=sorted(units.levels(options["instances"], "--instances")),
    )


def _delays(text: str) -> list[float]:
    try:
        found = sorted({float(word) for word in text.split(",")})
    except ValueError:
        found = [-1.0]
    if found[0] < 0 or found[-1] > 3_600_000:
        raise InvalidInput(f"--delays are milliseconds such as 1,5,20; got {text!r}")
    return found


def _host(model: str, options: dict[str, Any]) -> Host:
    """Find the model, and how it is served."""
    more = overrides_of(options)
    if not options["config_file"]:
        source = find_source(model)
        if (folder := triton_model(source)) is not None:
            return Triton(folder)
        return Native(name_of(source), {}, {"path": str(source), **more}, Setting())
    path = options["config_file"]
    file = read_file(path)
    section = file.pop("models", {})
    if not isinstance(section, dict) or not isinstance(section.get(model), dict):
        known = ", ".join(section) if isinstance(section, dict) else ""
        raise ConfigError(f"{path} has no model {model!r}; it has: {known or 'none'}")
    server = {key: value for key, value in file.items() if key not in LISTENERS}
    settings = {**section[model], **more}
    if "path" in settings:
        settings["path"] = str(find_source(str(settings["path"]), str(file.get("model_store", ""))))
    return Native(model, server, settings, setting_of(settings))


def _tuned(plan: Plan, space: Space, limit: float) -> Found:
    def on_run(run: Run) -> None:
        told = show_figures(run.figures) if run.figures else run.problem
        look = "" if run.look == 1 else f" (look {run.look})"
        err.print(f"{run.began:5.0f} s  {run.setting.label}{look}: {told}", markup=False, soft_wrap=True)

    async def tuning() -> Found:
        tuner = Tuner(plan, space, limit, on_run)
        loop = asyncio.get_running_loop()
        for number in (signal.SIGINT, signal.SIGTERM):
            loop.add_signal_handler(number, tuner.stopping.set)
        await tuner.run()
        return tuner.found

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        return runner.run(tuning())


def _show(report: Report) -> None:
    printed = out()
    drawn = Table(box=None, pad_edge=False, header_style="bold")
    for name in COLUMNS:
        drawn.add_column(name, justify="left" if name in ("setting", "") else "right", no_wrap=True)
    for row in report.rows[:10]:
        drawn.add_row(*cells(row))
    printed.print(drawn)
    for line in bought_lines(report):
        printed.print(line, markup=False, soft_wrap=True)
    early = f"; ended early: {report.problem}" if report.problem else ""
    told = f"{len(report.runs)} looks at {len(report.rows)} settings in {report.seconds:.0f} s{early}"
    printed.print(told, markup=False, soft_wrap=True)
    printed.print(report.verdict.words, markup=False, soft_wrap=True, style="bold")
    if not report.verdict.is_default:
        printed.print(f"\n{next(iter(report.files.values()))}", markup=False, end="")


def _write(report: Report, base: Path) -> None:
    files: dict[str, str | bytes] = {
        "md": to_markdown(report),
        "json": msgspec.json.encode(report) + b"\n",
        "html": to_html(report),
    }
    write_report("tune", base, files)
