"""Turns the bytes a person sent into an upright RGB picture, or says what is wrong with them.

Owns every rule about images both demo models share: which formats, how large, transparency, orientation.
"""

from dataclasses import dataclass
from io import BytesIO
from typing import Any

import numpy as np
from PIL import Image, ImageOps, UnidentifiedImageError

from shoal.errors import InvalidInput

FORMATS = ("JPEG", "PNG", "GIF", "WEBP", "BMP", "TIFF")
MAX_PIXELS = 50_000_000


@dataclass(frozen=True)
class Picture:
    """RGB pixels, upright; `scale` is how many pixels of the file one of them stands for."""

    image: Image.Image
    scale: float


def read_image(data: Any, enough: int) -> Picture:
    """The picture as RGB, upright, transparency on white, the first frame of several.

    `enough` is the side, in pixels, below which detail would be missed: a larger JPEG may be decoded at a half, a
    quarter or an eighth of its size, which is several times as quick.
    """
    if not isinstance(data, bytes | bytearray | memoryview):
        raise InvalidInput(f"send the bytes of an image file ({', '.join(FORMATS)})")
    try:
        image = _open(data)
        width = image.width
        _shrink(image, enough)
        scale = width / image.width
        return Picture(_upright_rgb(image), scale)
    except InvalidInput:
        raise
    except Exception as error:  # Pillow's decoders raise whatever the broken file makes them trip over
        raise InvalidInput(f"not an image, or a damaged one: {error}") from error


def _open(data: bytes | bytearray | memoryview) -> Image.Image:
    """The image with its header read and its pixels not yet decoded."""
    try:
        image = Image.open(BytesIO(data), formats=FORMATS)
    except UnidentifiedImageError as error:
        raise InvalidInput(f"not an image this model reads; it reads {', '.join(FORMATS)}") from error
    except (Image.DecompressionBombError, Image.DecompressionBombWarning) as error:
        raise InvalidInput(f"the image has more than {MAX_PIXELS:,} pixels") from error
    width, height = image.size
    if width * height > MAX_PIXELS:
        raise InvalidInput(f"the image has {width} x {height} pixels, more than {MAX_PIXELS:,}")
    return image


def _shrink(image: Image.Image, enough: int) -> None:
    """Tell the decoder how much is enough; JPEG alone takes the hint."""
    width, height = image.size
    share = enough / min(width, height)
    if share < 1:
        image.draft("RGB", (int(width * share), int(height * share)))


def _upright_rgb(image: Image.Image) -> Image.Image:
    if image.mode == "I" or image.mode.startswith("I;16"):
        image = Image.fromarray((np.asarray(image).clip(0, 65535) // 256).astype(np.uint8))
    image = ImageOps.exif_transpose(image)
    if image.has_transparency_data:
        cutout = image.convert("RGBA")
        image = Image.new("RGBA", cutout.size, "white")
        image.alpha_composite(cutout)
    return image.convert("RGB")
