"""ResNet from photographs and from tensors, on a GPU where there is one. The weights are random: this is about speed.

    shoal serve examples/resnet.py --handler Photos     # ResNet-50, JPEG in, label out
    shoal serve examples/resnet.py --handler Tensors    # ResNet-101 as TorchScript, 3 x 224 x 224 floats in, label out

The parameter `depth` (18, 50, 101 or 152) chooses another.
"""

import torch
from torch import nn

import shoal
from shoal.gpu import Graphs, Pictures, Staging

STAGES = {18: (2, 2, 2, 2), 50: (3, 4, 6, 3), 101: (3, 4, 23, 3), 152: (3, 8, 36, 3)}


class Block(nn.Module):
    """Two or three convolutions beside a shortcut."""

    def __init__(self, inside: int, width: int, outside: int, stride: int) -> None:
        super().__init__()
        is_basic = outside == width
        kernels = [(inside, width, 3, stride), (width, width, 3, 1)] if is_basic else [
            (inside, width, 1, 1), (width, width, 3, stride), (width, outside, 1, 1)]  # fmt: skip
        layers: list[nn.Module] = []
        for come, go, size, step in kernels:
            layers += [
                nn.Conv2d(come, go, size, step, size // 2, bias=False),
                nn.BatchNorm2d(go),
                nn.ReLU(inplace=True),
            ]
        self.layers = nn.Sequential(*layers[:-1])
        self.shortcut: nn.Module = nn.Identity()
        if stride > 1 or inside != outside:
            self.shortcut = nn.Sequential(nn.Conv2d(inside, outside, 1, stride, bias=False), nn.BatchNorm2d(outside))

    def forward(self, values: torch.Tensor) -> torch.Tensor:
        return torch.relu_(self.layers(values) + self.shortcut(values))


def resnet(depth: int) -> nn.Sequential:
    """A ResNet of 18, 50, 101 or 152 layers with 1000 classes."""
    torch.manual_seed(0)
    layers: list[nn.Module] = [nn.Conv2d(3, 64, 7, 2, 3, bias=False), nn.BatchNorm2d(64), nn.ReLU(inplace=True),
                               nn.MaxPool2d(3, 2, 1)]  # fmt: skip
    inside = 64
    for number, blocks in enumerate(STAGES[depth]):
        width = 64 * 2**number
        outside = width if depth == 18 else 4 * width
        for block in range(blocks):
            layers.append(Block(inside, width, outside, 2 if number and not block else 1))
            inside = outside
    return nn.Sequential(*layers, nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(inside, 1000)).eval()


def device_of(context: shoal.Context) -> str:
    """The GPU unless the server was told another device."""
    return "cuda" if context.device == "cpu" and torch.cuda.is_available() else context.device


class Photos(shoal.Handler):
    def initialize(self, context: shoal.Context) -> None:
        device = device_of(context)
        dtype = torch.float32 if device == "cpu" else torch.float16
        self.pictures = Pictures(device, dtype)
        model = resnet(context.parameters.get("depth", 50))
        self.model = Graphs(model, (3, 224, 224), device, dtype, channels_last=True, fused=True)

    def decode_batch(self, items: list[memoryview]) -> object:
        return self.pictures(items)

    def inference(self, batch: torch.Tensor) -> list[tuple[int, float]]:
        chances, labels = self.model(batch).float().softmax(1).max(1)
        return list(zip(labels.tolist(), chances.tolist(), strict=True))

    def encode(self, output: tuple[int, float]) -> dict[str, float]:
        return {"label": output[0], "chance": output[1]}


class Tensors(shoal.Handler):
    def initialize(self, context: shoal.Context) -> None:
        device = device_of(context)
        script = torch.jit.freeze(torch.jit.script(resnet(context.parameters.get("depth", 101)).to(device)))
        self.staging = Staging((3, 224, 224), device)
        self.model = Graphs(script, (3, 224, 224), device)

    def decode_batch(self, items: list[memoryview]) -> object:
        return self.staging(items)

    def inference(self, batch: torch.Tensor) -> list[int]:
        labels: list[int] = self.model(batch).argmax(1).tolist()
        return labels
