"""The demo's image classifier: EfficientNet-Lite0 over the 1000 ImageNet classes, with a bee-or-ant view of them.

The view is two of the 1000 classes compared with each other and nothing more: shown a cat, it still picks one of the
two, and `is_insect` says not to believe it.
"""

from pathlib import Path
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

import shoal
from shoal.demo.assets import ensure
from shoal.demo.images import read_image
from shoal.demo.session import open_session

IMAGE_SIZE = 224
CROP = IMAGE_SIZE / (IMAGE_SIZE + 32)
BEE, ANT = 309, 310
PLAUSIBLE = 0.05  # a bee among flowers may hold a twentieth of the whole; what is neither holds a thousandth
TOP = 5

Array = npt.NDArray[Any]


class Bees(shoal.Handler):
    """An image in, its label and the five likeliest out. Parameters: `model`, the ONNX file; `labels`, its names."""

    def initialize(self, context: Any) -> None:
        """Open the model, fetching it first where the configuration names no file."""
        model, labels = context.parameters.get("model"), context.parameters.get("labels")
        if not model or not labels:
            assets = ensure()
            model, labels = model or assets.classifier, labels or assets.labels
        self.labels = Path(labels).read_text("utf-8").splitlines()
        self.session = open_session(str(model), context.device)

    def decode(self, item: Any) -> Array:
        """Bytes of an image to what the network sees."""
        return prepare(item)

    def inference(self, batch: list[Array]) -> list[Array]:
        """One run for the whole batch."""
        (logits,) = self.session.run(["logits"], {"image": np.stack(batch)})
        return list(logits)

    def encode(self, output: Array) -> dict[str, Any]:
        """Logits to names."""
        return describe(output, self.labels)


def prepare(data: Any) -> Array:
    """The middle of the image as float32 [3, 224, 224], scaled as these weights were trained: (x - 127) / 128."""
    image = read_image(data, enough=2 * IMAGE_SIZE).image
    width, height = image.size
    side = max(round(min(width, height) * CROP), 1)
    left, top = (width - side) // 2, (height - side) // 2
    middle = image.crop((left, top, left + side, top + side)).resize((IMAGE_SIZE, IMAGE_SIZE), Image.Resampling.BICUBIC)
    pixels = (np.asarray(middle, np.float32) - 127) / 128
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))


def describe(logits: Array, labels: list[str]) -> dict[str, Any]:
    """The answer as a person reads it."""
    probabilities = softmax(logits)
    best = np.argsort(-probabilities, kind="stable")[:TOP]
    top = [{"label": labels[index], "probability": round(float(probabilities[index]), 4)} for index in best]
    bee, ant = softmax(logits[[BEE, ANT]])
    return {
        **top[0],
        "top": top,
        "bees_or_ants": {"bee": round(float(bee), 4), "ant": round(float(ant), 4)},
        "is_insect": bool(probabilities[[BEE, ANT]].sum() >= PLAUSIBLE),
    }


def softmax(logits: Array) -> Array:
    """Logits to probabilities, without overflow."""
    powers = np.exp(logits.astype(np.float64) - logits.max())
    total: Array = powers / powers.sum()
    return total
