"""The tables and curves that batching is explained by elsewhere, on this machine, by one command each.

    python -m benchmarks.seeds 000 --device cuda    # throughput by connections at batch sizes 1, 8, 16; by delay
    python -m benchmarks.seeds 001 --device cuda    # throughput and p99 by batch and micro-batch size; the default
    python -m benchmarks.seeds 003 --device cuda    # text recognition: no batching, dynamic batching, two instances
    python -m benchmarks.seeds 004 --device cuda    # the bare model by batch size
    python -m benchmarks.seeds --plot benchmarks/out/seed-001-cuda.json

All settings of a table are models of one server that is up from beginning to end; each is loaded in turn, every round.
JPEGs of 63 KB and 500 x 375 pixels go in, labels come out. On a GPU the networks are ResNet-152 (000), ResNet-50 (001),
both in half precision, and ResNet-101 in single precision (004); on a CPU a ResNet-18 on small pictures (64 pixels for
000, 112 for 001), and ResNet-18 as it is (004). Weights are random. Load by `shoal bench`. For 003 see text.py; on a
CPU its network has a quarter of the channels.
"""

import argparse
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from typing import Any

import yaml

from benchmarks import text as recognition
from benchmarks.curves import Panel, draw
from benchmarks.gpu import hardware, photo
from benchmarks.profiles import command_of, panels, profile
from benchmarks.report import OUT, table, write
from benchmarks.serving import ROOT, load, say, serving

DELAYS = (1, 5, 20, 50)
DEFAULT = "default"
Setting = dict[str, Any]


def settings_000(is_gpu: bool) -> dict[str, Setting]:
    """Batch sizes with a delay of 50 ms, smaller delays at a batch size of 8, and no setting at all."""

    def model(buckets: list[int]) -> str:
        given = f"depth = 152, reading = 'device', buckets = {buckets}" if is_gpu else "depth = 18, size = 64"
        return f'path = "{ROOT}/benchmarks/models_photos.py"\nworkers = 2\nparameters = {{{given}}}\n'

    made: dict[str, Setting] = {
        DEFAULT: {"batch": 0, "toml": model([1, 2, 4, 8, 16, 32, 64, 128])},
        "batch 1": {"batch": 1, "toml": model([1]) + "batching = {batch_size = 1}"},
    }
    for size, delay in [(8, 50), (16, 50), *((8, delay) for delay in DELAYS[:-1])]:
        toml = f"{model([1, 2, 4, 8, size])}batching = {{batch_size = {size}, max_batch_delay = {delay}}}"
        made[f"batch {size}, {delay} ms"] = {"batch": size, "delay": delay, "toml": toml}
    return made


def settings_001(is_gpu: bool, folder: Path) -> dict[str, Setting]:
    """A TorchServe handler without and with micro-batches, and the server's own form with no setting at all."""
    network = {"depth": 50, "size": 224} if is_gpu else {"depth": 18, "size": 112}
    plain = (8, 32, 64, 128) if is_gpu else (8, 16, 32)
    micro = [(16, 4, 2), (32, 4, 2), (16, 8, 2), (32, 8, 2)]  # batch, micro-batch, threads that read
    if is_gpu:
        micro = [(32, 4, 4), (64, 4, 4), (128, 4, 4), (64, 8, 4), (128, 8, 4), (128, 16, 4)]
        micro += [(64, 8, 8), (128, 4, 8), (128, 8, 8), (128, 8, 16)]
    made: dict[str, Setting] = {}
    for batch in plain:
        made[f"batch {batch}, no micro-batches"] = {
            "batch": batch, "micro": 0, "toml": packed(folder, network, batch, 0, 0)
        }  # fmt: skip
    for batch, size, threads in micro:
        made[f"batch {batch}, micro-batches of {size}, {threads} threads read"] = {
            "batch": batch, "micro": size, "threads": threads, "toml": packed(folder, network, batch, size, threads)
        }  # fmt: skip
    own = f'path = "{ROOT}/benchmarks/models_photos.py"\n'
    own += f"parameters = {{depth = {network['depth']}, size = {network['size']}"
    made[DEFAULT] = {"batch": 0, "micro": 0, "toml": f"{own}}}"}
    if is_gpu:
        for batch, threads in ((64, 1), (128, 2), (256, 2)):
            made[f"decoded by the GPU, batch {batch}, {threads} threads read"] = {
                "batch": batch,
                "toml": f"{own}, reading = 'device'}}\nbatching = {{batch_size = {batch}, max_batch_delay = 20}}\n"
                f"micro_batching = {{parallelism = {{preprocess = {threads}}}}}",
            }
        made[f"decoded by the GPU, {DEFAULT}"] = {"batch": 0, "toml": f"{own}, reading = 'device'}}"}
    return made


def packed(folder: Path, network: dict[str, int], batch: int, micro: int, threads: int) -> str:
    """An archive whose model-config.yaml has these settings."""
    name = f"b{batch}m{micro}t{threads}"
    buckets = sorted({1, micro} if micro else {1, 8, batch})
    config: dict[str, Any] = {"minWorkers": 1, "maxWorkers": 1, "batchSize": batch, "maxBatchDelay": 20}
    config["handler"] = {**network, "buckets": buckets}
    if micro:
        parallelism = {"preprocess": threads, "inference": 1, "postprocess": 1}
        config["micro_batching"] = {"micro_batch_size": micro, "parallelism": parallelism}
    file = folder / f"{name}.yaml"
    file.write_text(yaml.safe_dump(config))
    command = [sys.executable, "-m", "shoal", "archive", "--model-name", name, "--version", "1.0", "--force"]
    command += ["--handler", str(ROOT / "benchmarks" / "models_micro.py"), "--config-file", str(file), "--no-check"]
    command += ["--extra-files", str(ROOT / "examples" / "resnet.py"), "--export-path", str(folder)]
    subprocess.run(command, check=True, capture_output=True)
    return f'path = "{folder}/{name}.mar"'


def measure(asked: argparse.Namespace, settings: dict[str, Setting], plan: dict[str, str], keep: Any) -> None:
    """Load every setting in turn, round after round; `keep` hears of each measurement at once.

    Of 001 the best of the hand-picked ones and the default are then measured longer: two seconds of batches of 128
    differ by a tenth when one batch more is counted.
    """
    body = OUT / "photo.jpg"
    body.write_bytes(photo())
    names = {f"m{place}": name for place, name in enumerate(settings)}
    top = f"shared_memory = {2**32}\n" if asked.device == "cuda" else ""
    looks: list[dict[str, Any]] = []
    with serving({key: settings[name]["toml"] for key, name in names.items()}, top) as address:
        address.wait_for(names)
        shape: dict[str, Any] = {"window": asked.window, "windows": 3, "warmup": asked.warmup}
        for number in range(asked.rounds + (asked.finals if asked.seed == "001" else 0)):
            is_final = number >= asked.rounds
            if number == asked.rounds:
                shape = {"window": "2s", "windows": 3, "warmup": "2s"}
                best = finalists(looks)
                names = {key: name for key, name in names.items() if name in best}
            for key, name in names.items():
                url = f"http://127.0.0.1:{address.port}/predictions/{key}"
                try:
                    levels = load(url, body, plan[name], processes=asked.processes, **shape)
                except RuntimeError as error:
                    print(f"round {number + 1}, {name} is left out: {error}", flush=True)
                    continue
                for level in levels:
                    print(f"round {number + 1}, {name}, {say(level)}", flush=True)
                    latency = level["latency"]
                    row = {
                        "setting": name,
                        **{key: value for key, value in settings[name].items() if key != "toml"},
                        "final": is_final,
                        "connections": level["concurrency"],
                        "rate": level["throughput"],
                        "p50": latency["p50"],
                        "p99": latency["p99"],
                        "errors": sum(level["errors"].values()),
                    }
                    looks.append(row)
                    keep(row)


def finalists(looks: list[dict[str, Any]]) -> set[str]:
    """The default and the two hand-picked settings that looked best, of each way of reading."""
    found = sorted(medians(looks).values(), key=lambda own: float(own["rate"]), reverse=True)
    chosen = {own["setting"] for own in found if DEFAULT in own["setting"]}
    for on_device in (False, True):
        picked = [own["setting"] for own in found if own["setting"].startswith("decoded") is on_device]
        chosen.update([name for name in picked if name not in chosen][:2])
    return chosen


def medians(rows: list[dict[str, Any]]) -> dict[tuple[str, int], dict[str, Any]]:
    """What the rounds of a setting give at a number of connections."""
    groups: dict[tuple[str, int], list[dict[str, Any]]] = {}
    for row in rows:
        groups.setdefault((row["setting"], row["connections"]), []).append(row)
    return {
        key: {
            **own[0],
            **{name: statistics.median(row[name] for row in own) for name in ("rate", "p50", "p99")},
            "low": min(row["rate"] for row in own),
            "high": max(row["rate"] for row in own),
            "errors": sum(row["errors"] for row in own),
        }
        for key, own in groups.items()
    }


def report_000(rows: list[dict[str, Any]]) -> str:
    """Throughput by connections, and by delay at the fewest."""
    found = medians(rows)
    levels = sorted({connections for _, connections in found})
    main = [name for name in dict.fromkeys(row["setting"] for row in rows) if is_main(found, name, levels)]
    cells = [[name, *(cell(found.get((name, level))) for level in levels)] for name in main]
    text = "\nImages/s (p99 ms), two workers\n\n" + table(
        ["setting", *(f"{level} connections" for level in levels)], cells
    )
    delays = [(own["delay"], own) for (_, level), own in found.items() if own["batch"] == 8 and level == levels[0]]
    lines = [[f"{delay} ms", cell(own)] for delay, own in sorted(delays, key=lambda pair: pair[0])]
    lines += [[name, cell(found.get((name, levels[0])))] for name in ("batch 1", DEFAULT)]
    return (
        text
        + f"\nAt {levels[0]} connections, batch size 8, by delay\n\n"
        + table(["delay", "images/s (p99 ms)"], lines)
    )


def is_main(found: dict[tuple[str, int], dict[str, Any]], name: str, levels: list[int]) -> bool:
    """Whether a setting was measured at more than the fewest connections."""
    return any((name, level) in found for level in levels[1:])


def cell(own: dict[str, Any] | None) -> str:
    """One figure with its spread."""
    if own is None:
        return "-"
    errors = f", {own['errors']} errors" if own["errors"] else ""
    return f"{own['rate']:,.0f}, {own['low']:,.0f} to {own['high']:,.0f} ({1e3 * own['p99']:.0f}{errors})"


def report_001(rows: list[dict[str, Any]]) -> str:
    """All settings, and what micro-batches and the default are worth; then the best of them, measured longer."""
    finals = [row for row in rows if row["final"]]
    text = tables_001([row for row in rows if not row["final"]])
    return text + (f"\nThe best of them, longer\n{tables_001(finals)}" if finals else "")


def tables_001(rows: list[dict[str, Any]]) -> str:
    """A table for each way of reading, and what it says."""
    found = {name: own for (name, _), own in medians(rows).items()}
    groups = [
        [own for name, own in found.items() if name.startswith("decoded") is on_device] for on_device in (False, True)
    ]
    text = ""
    for group in filter(None, groups):
        picked = [own for own in group if DEFAULT not in own["setting"]]
        best = max(picked, key=lambda own: float(own["rate"]), default=None)
        if best is None:
            continue
        lines = [
            [own["setting"], f"{own['rate']:,.0f} ({own['low']:,.0f} to {own['high']:,.0f})", f"{1e3 * own['p50']:.0f}",
             f"{1e3 * own['p99']:.0f}", f"{own['rate'] / best['rate']:.2f}", str(own["errors"])] for own in group
        ]  # fmt: skip
        head = ["setting", "images/s", "p50 ms", "p99 ms", "of the best hand-picked", "errors"]
        text += f"\n{group[0]['connections']} connections, one worker\n\n{table(head, lines)}"
        text += worth(picked, best, [own for own in group if DEFAULT in own["setting"]])
    return text


def worth(picked: list[dict[str, Any]], best: dict[str, Any], default: list[dict[str, Any]]) -> str:
    """The sentences below a table."""
    said = []
    for batch in sorted({own["batch"] for own in picked if own.get("micro")}):
        plain = [own for own in picked if own["batch"] == batch and own.get("micro") == 0]
        split = [own for own in picked if own["batch"] == batch and own.get("micro")]
        if plain and split:
            top = max(split, key=lambda own: float(own["rate"]))
            said.append(
                f"Batch {batch}: the best micro-batches ({top['setting']}) give {top['rate'] / plain[0]['rate']:.2f} "
                f"times the throughput at {top['p99'] / plain[0]['p99']:.2f} times the p99."
            )
    said += [f"The default reaches {own['rate'] / best['rate']:.3f} of {best['setting']}." for own in default]
    return "".join(f"\n{line}\n" for line in said)


def curves(name: str, data: dict[str, Any]) -> None:
    """Draw what a table says."""
    if "profiles" in data:
        draw(name, panels(data["profiles"]))
        return
    if data["seed"] == "003":
        draw(name, recognition.panels(data))
        return
    found = medians([row for row in data["rows"] if not row["final"]])
    series: dict[str, list[tuple[float, float]]] = {}
    if data["seed"] == "000":
        levels = sorted({connections for _, connections in found})
        for (setting, level), own in found.items():
            if is_main(found, setting, levels):
                series.setdefault(setting, []).append((level, own["rate"]))
        delay = sorted(
            (own["delay"], own["rate"]) for (_, c), own in found.items() if own["batch"] == 8 and c == levels[0]
        )
        flat = {
            label: [(delay[0][0], found[label, levels[0]]["rate"]), (delay[-1][0], found[label, levels[0]]["rate"])]
            for label in ("batch 1", DEFAULT)
            if delay and (label, levels[0]) in found
        }
        draw(name, [
            Panel("throughput", "connections", "images/s", series),
            Panel(f"{levels[0]} connections, batch size 8", "delay, ms", "images/s", {"batch 8": delay, **flat}),
        ])  # fmt: skip
        return
    tail: dict[str, list[tuple[float, float]]] = {}
    for own in found.values():
        if own["batch"] and not own["setting"].startswith("decoded"):
            label = f"micro-batches of {own['micro']}, {own['threads']} threads" if own["micro"] else "no micro-batches"
            series.setdefault(label, []).append((own["batch"], own["rate"]))
            tail.setdefault(label, []).append((own["batch"], 1e3 * own["p99"]))
    ends = [batch for points in series.values() for batch, _ in points]
    for (setting, _), own in found.items():
        if setting == DEFAULT and ends:
            for curve, value in ((series, own["rate"]), (tail, 1e3 * own["p99"])):
                curve[DEFAULT] = [(min(ends), value), (max(ends), value)]
    draw(name, [
        Panel("throughput", "batch size", "images/s", series), Panel("p99", "batch size", "ms", tail)
    ])  # fmt: skip


def bare(asked: argparse.Namespace, name: str, command: str) -> bool:
    """The table of 004."""
    is_gpu = asked.device == "cuda"
    sizes = "1:256:x2" if is_gpu else "1:32:x2"
    made = profile(command_of("resnet101" if is_gpu else "resnet18", asked.device, sizes, "1s", ""))
    data = {**about(asked.seed), "profiles": {"ResNet-101" if is_gpu else "ResNet-18": made}}
    head = f"{data['machine']}; {data['date']}; `{command}`\n"
    write(name, f"{head}\n{made['markdown'].replace('# Profile', '### Profile', 1)}", json.dumps(data, indent=1))
    return True


def batched(asked: argparse.Namespace, name: str, command: str) -> bool:
    """The tables of 000 and 001, written after every figure; whether nobody stopped it."""
    is_gpu = asked.device == "cuda"
    asked.processes = asked.processes or (6 if is_gpu else 1)
    asked.window = asked.window or ("700ms" if is_gpu else "2s" if asked.seed == "001" else "1s")
    asked.warmup = asked.warmup or ("500ms" if is_gpu else "1s")
    data: dict[str, Any] = about(asked.seed)
    head = f"{data['machine']}; {data['date']}; `{command}`; medians of {asked.rounds} interleaved rounds"
    head += f" and {asked.finals} longer ones" if asked.seed == "001" and asked.finals else ""
    head += ", with their range\n"

    def keep(row: dict[str, Any]) -> None:
        data["rows"].append(row)
        text = head + (report_000 if asked.seed == "000" else report_001)(data["rows"])
        write(name, text, json.dumps(data, indent=1))

    with tempfile.TemporaryDirectory(prefix="shoal-benchmark-") as folder:
        if asked.seed == "000":
            settings = settings_000(is_gpu)
            levels = asked.connections or ("10,50,100,500,1000" if is_gpu else "10,50,100,500")
            few = levels.split(",")[0]
            plan = {one: few if own.get("delay", 50) != 50 else levels for one, own in settings.items()}
        else:
            settings = settings_001(is_gpu, Path(folder))
            plan = dict.fromkeys(settings, asked.connections or ("256" if is_gpu else "32"))
        try:
            measure(asked, settings, plan, keep)
        except KeyboardInterrupt:
            print("interrupted; what was measured is kept", flush=True)
            return False
    return True


def about(seed: str) -> dict[str, Any]:
    """What the data of a table begins with."""
    return {"machine": hardware(), "date": time.strftime("%Y-%m-%d"), "seed": seed, "rows": []}


def main() -> None:
    """Measure one table and write it down, after every figure."""
    runs = {"000": batched, "001": batched, "003": recognition.run, "004": bare}
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("seed", nargs="?", choices=list(runs))
    parser.add_argument("--device", choices=["cpu", "cuda"], default="cpu")
    parser.add_argument("--rounds", type=int, default=2)
    parser.add_argument("--finals", type=int, default=3, help="of 001: longer rounds of the best and the default")
    parser.add_argument("--connections", default="", help="comma-separated; of 001 one number")
    parser.add_argument(
        "--processes", type=int, default=0, help="of the load; 0: 1 on a CPU, 6 beside a GPU, 2 for 003"
    )
    parser.add_argument("--window", default="", help="of measuring, three for each figure")
    parser.add_argument("--warmup", default="", help="before the first window")
    parser.add_argument("--plot", type=Path, metavar="JSON", help="draw what was measured before, and nothing else")
    asked = parser.parse_args()
    if asked.plot:
        curves(asked.plot.stem, json.loads(asked.plot.read_text()))
        return
    if not asked.seed:
        parser.error(f"which table: {', '.join(runs)}")
    OUT.mkdir(exist_ok=True)
    name = f"seed-{asked.seed}-{asked.device}"
    file = OUT / f"{name}.json"
    file.unlink(missing_ok=True)  # of an earlier run
    is_whole = runs[asked.seed](asked, name, " ".join(["python -m benchmarks.seeds", *sys.argv[1:]]))
    if file.exists():
        curves(name, json.loads(file.read_text()))
        print(file.with_suffix(".md").read_text())
    sys.exit(not is_whole)


if __name__ == "__main__":
    main()
