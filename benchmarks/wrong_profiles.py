"""What a kept profile that is wrong costs: throughput of the default rule with it, over that without any profile.

    python -m benchmarks.wrong_profiles                  500 profiles, about a minute

Profiles are drawn at random: one to five sizes, 0.3 to 60 ms each. The server is simulated: five cost curves, 2 to 60
clients that come straight back, after 40 answers to each of them. Results go to benchmarks/out/.
"""

import argparse
import json
import random
import statistics
import sys
import time
from collections.abc import Mapping
from dataclasses import asdict, dataclass

from rich.progress import track

from benchmarks.policy_sim import Simulation, Workload, World, curve
from benchmarks.report import machine, table, write
from shoal.core.adaptive import Adaptive

CURVES = ("h200", "flat", "rtx3090", "dented", "weak")
CLIENTS = (2, 5, 10, 60)
SIZES = (1, 2, 3, 4, 5, 6, 7, 8, 12, 16, 32, 64)
BEFORE, COUNTED = 40, 80  # answers to each client
SHOWN = 10


@dataclass(frozen=True)
class Loss:
    """One profile and what it made of the throughput."""

    ratio: float
    curve: str
    clients: int
    profile: Mapping[int, float]  # seconds by rows


def drawn(draw: random.Random) -> dict[int, float]:
    """A profile that has nothing to do with any model."""
    return {draw.choice(SIZES): 10 ** draw.uniform(-3.5, -1.2) for _ in range(draw.randint(1, 5))}


def answered(world: World, policy: Adaptive) -> float:
    """Answers a second once it had time to learn."""
    simulation = Simulation(world, policy)
    simulation.run(BEFORE * world.workload.clients)
    return simulation.run(COUNTED * world.workload.clients).throughput


def main() -> None:
    """Measure and print."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--count", type=int, default=500, help="profiles")
    parser.add_argument("--seed", type=int, default=7)
    args = parser.parse_args()
    draw = random.Random(args.seed)
    losses = []
    for number in track(range(args.count), "profiles"):
        name, clients, profile = draw.choice(CURVES), draw.choice(CLIENTS), drawn(draw)
        world = World(curve(name), Workload("closed", clients), seed=number)
        ratio = answered(world, Adaptive(256, profile)) / answered(world, Adaptive())
        losses.append(Loss(ratio, name, clients, profile))
    losses.sort(key=lambda loss: loss.ratio)
    ratios = [loss.ratio for loss in losses]
    rows = [
        [
            f"{loss.ratio:.3f}",
            loss.curve,
            str(loss.clients),
            ", ".join(f"{rows}: {1e3 * seconds:.1f}" for rows, seconds in sorted(loss.profile.items())),
        ]
        for loss in losses[:SHOWN]
    ]
    command = " ".join(["python -m benchmarks.wrong_profiles", *sys.argv[1:]])
    text = (
        f"{len(losses)} profiles: {sum(ratio < 0.9 for ratio in ratios)} below 0.9, "
        f"{sum(ratio < 0.97 for ratio in ratios)} below 0.97, {ratios[0]:.3f} the least, "
        f"{statistics.median(ratios):.3f} in the middle.\n"
        f"{machine()}; {time.strftime('%Y-%m-%d')}; `{command}`\n\n"
        + table(["ratio", "curve", "clients", "profile, ms by rows"], rows)
    )
    write("wrong-profiles", text, json.dumps([asdict(loss) for loss in losses], indent=1))
    print(text)


if __name__ == "__main__":
    main()
