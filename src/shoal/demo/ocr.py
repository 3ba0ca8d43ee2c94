"""The demo's text recognition: PP-OCRv4 finds the lines of a picture, PP-OCRv4 reads them.

The lines of all pictures of a batch are read together, grouped by width; a line is padded to a width that follows from
itself alone, so its reading does not depend on the company it travels in.
"""

import math
from collections import defaultdict
from dataclasses import dataclass
from typing import Any

import numpy as np
import numpy.typing as npt
from PIL import Image

import shoal
from shoal.demo.assets import ensure
from shoal.demo.boxes import Box, find_boxes, reading_order
from shoal.demo.images import Picture, read_image
from shoal.demo.session import open_session

MAX_SIDE, MIN_SIDE = 1280, 640  # of the picture the detector sees; its time grows with the area
STEP = 32  # the detector wants multiples of it
LINE_HEIGHT = 48
WIDTH_STEP = 160  # lines are padded to a multiple of it
MAX_WIDTH = 1920  # longer lines are squeezed
LINES_PER_RUN = 4
MAX_LINES = 300
MIN_CONFIDENCE = 0.5
BLANK = 0
SHY_SPACE = 0.1  # inside words it stays under a hundredth

Array = npt.NDArray[Any]


@dataclass(frozen=True)
class Line:
    """One line as it was read, and where."""

    text: str
    confidence: float
    box: Box


class Ocr(shoal.Handler):
    """A picture in, its lines of text out. Parameters: `detector` and `recogniser`, the two ONNX files."""

    def initialize(self, context: Any) -> None:
        """Open both models, fetching them first where the configuration names no files."""
        detector, recogniser = context.parameters.get("detector"), context.parameters.get("recogniser")
        if not detector or not recogniser:
            assets = ensure()
            detector, recogniser = detector or assets.detector, recogniser or assets.recogniser
        self.detector = open_session(str(detector), context.device)
        self.recogniser = open_session(str(recogniser), context.device)
        characters = self.recogniser.get_modelmeta().custom_metadata_map["character"].splitlines()
        self.alphabet = ["", *characters, " "]

    def decode(self, item: Any) -> Picture:
        """Bytes of an image to a picture no larger than is useful."""
        return fit(read_image(item, enough=MAX_SIDE))

    def inference(self, batch: list[Picture]) -> list[list[list[Line]]]:
        """For each picture its rows of lines; the pictures are searched one by one, their lines read together."""
        found = [self._find(picture.image) for picture in batch]
        crops = [prepare_line(picture.image, box) for picture, boxes in zip(batch, found, strict=True) for box in boxes]
        readings = iter(self._read(crops))
        pages = [
            [Line(*next(readings), box.scaled(picture.scale, picture.scale)) for box in boxes]
            for picture, boxes in zip(batch, found, strict=True)
        ]
        return [arrange(lines) for lines in pages]

    def encode(self, output: list[list[Line]]) -> dict[str, Any]:
        """Rows of lines to the text as a person would copy it, and the lines one by one."""
        return describe(output)

    def _find(self, picture: Image.Image) -> list[Box]:
        pixels = prepare_page(picture)
        (maps,) = self.detector.run(None, {"x": pixels})
        scale_x, scale_y = picture.width / pixels.shape[3], picture.height / pixels.shape[2]
        boxes = [box.scaled(scale_x, scale_y).within(picture.width, picture.height) for box in find_boxes(maps[0, 0])]
        return sorted(boxes, key=lambda box: box.top)[:MAX_LINES]

    def _read(self, crops: list[Array]) -> list[tuple[str, float]]:
        """The text and confidence of each crop, in the order given."""
        by_width: dict[int, list[int]] = defaultdict(list)
        for index, crop in enumerate(crops):
            by_width[crop.shape[2]].append(index)
        readings: dict[int, tuple[str, float]] = {}
        for same_width in by_width.values():
            for begin in range(0, len(same_width), LINES_PER_RUN):
                indices = same_width[begin : begin + LINES_PER_RUN]
                (steps,) = self.recogniser.run(None, {"x": np.stack([crops[index] for index in indices])})
                readings |= {index: read_ctc(each, self.alphabet) for index, each in zip(indices, steps, strict=True)}
        return [readings[index] for index in range(len(crops))]


def fit(picture: Picture) -> Picture:
    """The picture at a whole fraction of its size, as small as leaves the detector all it can use."""
    image = picture.image
    factor = max(image.size) // MAX_SIDE
    return Picture(image.reduce(factor), picture.scale * factor) if factor > 1 else picture


def prepare_page(picture: Image.Image) -> Array:
    """What the detector sees: the picture at a size where text can be found, float32 [1, 3, height, width]."""
    longest = max(picture.size)
    scale = min(max(longest, MIN_SIDE), MAX_SIDE) / longest
    width, height = (max(round(side * scale / STEP), 1) * STEP for side in picture.size)
    return _normalise(picture.resize((width, height), Image.Resampling.BILINEAR))[None]


def prepare_line(picture: Image.Image, box: Box) -> Array:
    """What the recogniser sees of a line: 48 pixels high, zeros on the right up to the next step of width."""
    left, top = int(box.left), int(box.top)
    crop = picture.crop((left, top, max(round(box.right), left + 1), max(round(box.bottom), top + 1)))
    width = min(max(round(crop.width * LINE_HEIGHT / crop.height), 1), MAX_WIDTH)
    padded = np.zeros((3, LINE_HEIGHT, math.ceil(width / WIDTH_STEP) * WIDTH_STEP), np.float32)
    padded[:, :, :width] = _normalise(crop.resize((width, LINE_HEIGHT), Image.Resampling.BILINEAR))
    return padded


def read_ctc(steps: Array, alphabet: list[str]) -> tuple[str, float]:
    """The text of [steps, classes] probabilities, and the mean probability of its characters.

    Of each step the likeliest class; repeats are one character, the blank between two of them keeps them apart. The
    model, brought up on Chinese, is shy of spaces: a blank that might well be one is taken for it.
    """
    best = steps.argmax(axis=1)
    space = len(alphabet) - 1
    best[(best == BLANK) & (steps[:, space] > SHY_SPACE)] = space
    is_new = np.concatenate([[True], best[1:] != best[:-1]]) & (best != BLANK)
    is_letter = is_new & (best != space)
    if not is_letter.any():
        return "", 0.0
    text = "".join(alphabet[index] for index in best[is_new])
    return " ".join(text.split()), float(steps.max(axis=1)[is_letter].mean())


def arrange(lines: list[Line]) -> list[list[Line]]:
    """Rows of lines in reading order; what reads as nothing, or as a guess, is left out."""
    kept = [line for line in lines if line.text and line.confidence >= MIN_CONFIDENCE]
    return [[kept[index] for index in row] for row in reading_order([line.box for line in kept])]


def describe(rows: list[list[Line]]) -> dict[str, Any]:
    """The answer as JSON has it."""
    return {
        "text": "\n".join(" ".join(line.text for line in row) for row in rows),
        "lines": [
            {
                "text": line.text,
                "confidence": round(line.confidence, 4),
                "box": [round(edge) for edge in (line.box.left, line.box.top, line.box.right, line.box.bottom)],
            }
            for row in rows
            for line in row
        ],
    }


def _normalise(picture: Image.Image) -> Array:
    """RGB to the blue-green-red order of these models, -1..1, channels first."""
    pixels = np.asarray(picture, np.float32)[:, :, ::-1] / 127.5 - 1
    return np.ascontiguousarray(pixels.transpose(2, 0, 1))
