"""A network that reads words: a ResNet over a grey picture, then letters by CTC; as TorchScript, with random weights.

    python -m benchmarks.models_text FILE [--channels 512]

A picture of 32 x 100 pixels becomes 26 columns, each with 36 letters and digits and the blank. Nothing straightens the
picture, and no recurrent layer follows the convolutions. The blocks are those of examples/resnet.py.
"""

import argparse
import runpy
from pathlib import Path
from typing import Any

import torch
from torch import nn

from benchmarks.serving import ROOT

PICTURE = (1, 32, 100)
COLUMNS, CLASSES = 26, 37


def convolution(inside: int, outside: int, size: int = 3, stride: Any = 1, padding: Any = 1) -> list[nn.Module]:
    """A convolution and what follows each."""
    return [
        nn.Conv2d(inside, outside, size, stride, padding, bias=False),
        nn.BatchNorm2d(outside),
        nn.ReLU(inplace=True),
    ]


class Recogniser(nn.Module):
    """Pictures in, scores of every class for every column out."""

    def __init__(self, channels: int = 512) -> None:
        super().__init__()
        block = runpy.run_path(str(ROOT / "examples" / "resnet.py"), run_name="resnet")["Block"]
        eighth, quarter, half = channels // 8, channels // 4, channels // 2

        def blocks(count: int, inside: int, outside: int) -> list[nn.Module]:
            return [block(width, outside, outside, 1) for width in (inside, *[outside] * (count - 1))]

        self.features = nn.Sequential(
            *convolution(1, eighth // 2),
            *convolution(eighth // 2, eighth),
            nn.MaxPool2d(2),
            *blocks(1, eighth, quarter),
            *convolution(quarter, quarter),
            nn.MaxPool2d(2),
            *blocks(2, quarter, half),
            *convolution(half, half),
            nn.MaxPool2d(2, (2, 1), (0, 1)),  # from here on only the height shrinks
            *blocks(5, half, channels),
            *convolution(channels, channels),
            *blocks(3, channels, channels),
            *convolution(channels, channels, 2, (2, 1), (0, 1)),
            *convolution(channels, channels, 2, 1, 0),
        )
        self.letters = nn.Linear(channels, CLASSES)

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """Read the pictures."""
        columns = self.features(pictures).mean(2).transpose(1, 2)
        scores: torch.Tensor = self.letters(columns)
        return scores


def main() -> None:
    """Write the network to a file."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("file", type=Path)
    parser.add_argument("--channels", type=int, default=512, help="of the last convolutions")
    asked = parser.parse_args()
    torch.manual_seed(0)
    network = Recogniser(asked.channels).eval()
    traced: Any = torch.jit.trace(network, torch.rand(2, *PICTURE))  # type: ignore[no-untyped-call]
    given = tuple(traced(torch.rand(3, *PICTURE)).shape)
    if given != (3, COLUMNS, CLASSES):
        raise SystemExit(f"three pictures must give 3 x {COLUMNS} x {CLASSES} scores, got {given}")
    torch.jit.freeze(traced).save(str(asked.file))


if __name__ == "__main__":
    main()
