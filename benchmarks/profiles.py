"""The bare model by batch size with `shoal profile`: TorchScript ResNets, and the demo's classifier where it can run.

    python -m benchmarks.profiles                    # on a CPU: ResNet-18 and the demo's model, 1 minute
    python -m benchmarks.profiles --device cuda      # ResNet-18 and ResNet-101, 1 to 256
    python -m benchmarks.profiles bees --onnx efficientnet-lite0.onnx    # without a network
    python -m benchmarks.profiles --plot benchmarks/out/profiles.json

The ResNets are written as TorchScript from the definition in examples/resnet.py, single precision, random weights.
Each profile is one command, which is printed; `profiles.md` and `.json` hold them all.
"""

import argparse
import json
import runpy
import shlex
import subprocess
import sys
import time
from importlib.util import find_spec
from pathlib import Path
from typing import Any

from benchmarks.curves import Panel, draw
from benchmarks.models_image import BEE
from benchmarks.report import OUT, machine, write
from benchmarks.serving import ROOT


def torchscript(depth: int) -> Path:
    """Write a ResNet of this depth as a TorchScript file, once."""
    file = OUT / f"resnet{depth}.pt"
    if not file.exists():
        import torch

        network = runpy.run_path(str(ROOT / "examples" / "resnet.py"), run_name="resnet")["resnet"](depth)
        OUT.mkdir(exist_ok=True)
        torch.jit.script(network).save(str(file))
    return file


def tensor() -> Path:
    """Write one request: 3 x 224 x 224 floats."""
    import torch

    file = OUT / "tensor.bin"
    OUT.mkdir(exist_ok=True)
    file.write_bytes(torch.randn(3, 224, 224, generator=torch.Generator().manual_seed(7)).numpy().tobytes())
    return file


def command_of(name: str, device: str, sizes: str, seconds: str = "1s", goal: str = "", onnx: str = "") -> list[str]:
    """The command for a model: `bees`, or `resnet` and its depth."""
    if name == "bees":
        model = ["src/shoal/demo/bees.py", "--input", str(BEE.relative_to(ROOT))]
        if onnx:
            model += ["--parameter", f"model={onnx}", "--parameter", "labels=src/shoal/demo/imagenet_labels.txt"]
    else:
        file = torchscript(int(name.removeprefix("resnet")))
        model = ["benchmarks/models_script.py", "--parameter", f"file={_short(file)}", "--input", _short(tensor())]
    options = ["--device", device, "--batch-sizes", sizes, "--seconds", seconds]
    return [
        "profile",
        *model,
        *options,
        *(("--latency-goal", goal) if goal else ()),
        "-o",
        _short(OUT / f"profile-{name}"),
    ]


def _short(path: Path) -> str:
    return str(path.relative_to(ROOT))


def profile(command: list[str], within: float = 600) -> dict[str, Any]:
    """Run `shoal profile`; give what it wrote."""
    print("$", shlex.join(["shoal", *command]), flush=True)
    done = subprocess.run(
        [sys.executable, "-m", "shoal", *command], cwd=ROOT, timeout=within, text=True, capture_output=True
    )
    print(done.stdout, done.stderr, flush=True)
    base = ROOT / command[-1]
    if done.returncode:
        raise RuntimeError(f"shoal profile ended with {done.returncode}: {done.stderr.strip()[-1000:]}")
    found: dict[str, Any] = json.loads(base.with_suffix(".json").read_text())
    return found | {"command": shlex.join(["shoal", *command]), "markdown": base.with_suffix(".md").read_text()}


def panels(profiles: dict[str, dict[str, Any]]) -> list[Panel]:
    """Items a second and milliseconds an item by batch size."""
    rows = {name: made["rows"] for name, made in profiles.items()}
    return [
        Panel("throughput of the bare model", "batch size", "items/s",
              {name: [(row["size"], row["per_second"]) for row in own] for name, own in rows.items()}),
        Panel("time per item", "batch size", "ms",
              {name: [(row["size"], 1e3 * row["per_item"]) for row in own] for name, own in rows.items()}),
    ]  # fmt: skip


def main() -> None:
    """Profile what was asked for and write it down, after every model."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("models", nargs="*", help="bees, resnet18, resnet50, resnet101, resnet152")
    parser.add_argument("--device", default="cpu", help="cpu or cuda")
    parser.add_argument("--batch-sizes", default="")
    parser.add_argument("--seconds", default="1s")
    parser.add_argument("--latency-goal", default="")
    parser.add_argument("--onnx", default="", metavar="FILE", help="of the demo's model, where it cannot be fetched")
    parser.add_argument("--plot", type=Path, metavar="JSON", help="draw what was measured before, and nothing else")
    asked = parser.parse_args()
    if asked.plot:
        draw("profiles", panels(json.loads(asked.plot.read_text())["profiles"]))
        return
    is_gpu = asked.device != "cpu"
    sizes = asked.batch_sizes or ("1:256:x2" if is_gpu else "1:32:x2")
    names = asked.models or (["resnet18", "resnet101"] if is_gpu else ["resnet18", "bees"])
    if "bees" in names and find_spec("onnxruntime") is None:
        names.remove("bees")
        print("bees is left out: onnxruntime is not installed", flush=True)
    command = " ".join(["python -m benchmarks.profiles", *sys.argv[1:]])
    data: dict[str, Any] = {"machine": machine(), "date": time.strftime("%Y-%m-%d"), "profiles": {}}
    text, failed = f"{data['machine']}; {data['date']}; `{command}`\n", False
    for name in names:
        try:
            made = profile(command_of(name, asked.device, sizes, asked.seconds, asked.latency_goal, asked.onnx))
        except (RuntimeError, subprocess.SubprocessError) as error:
            failed = True
            print(f"{name} is left out: {error}", flush=True)
            continue
        data["profiles"][name] = made
        text += f"\n`{made['command']}`\n\n{made['markdown'].replace('# Profile', '### Profile', 1)}"
        write("profiles", text, json.dumps(data, indent=1))
    draw("profiles", panels(data["profiles"]))
    print(text)
    sys.exit(failed)


if __name__ == "__main__":
    main()
