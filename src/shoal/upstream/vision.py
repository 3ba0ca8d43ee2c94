"""Image transforms with torchvision's names, arguments and results, for machines where torchvision is not installed."""

import importlib
import logging
import sys
from collections.abc import Callable, Sequence
from enum import Enum
from typing import Any

import torch
from PIL import Image, ImageOps
from torch import Tensor

logger = logging.getLogger(__name__)


def transforms() -> Any:
    """torchvision's transforms where they can be imported, else this module, which has those that handlers need."""
    try:
        return importlib.import_module("torchvision.transforms")
    except ImportError:
        logger.info("torchvision is not installed: images are transformed by Shoal's own equivalents")
    except (RuntimeError, OSError) as error:  # installed, yet built for another torch
        logger.warning("torchvision cannot be used, images are transformed by Shoal's own equivalents: %s", error)
    return sys.modules[__name__]


class InterpolationMode(Enum):
    """How pixels between pixels are made."""

    NEAREST = "nearest"
    BILINEAR = "bilinear"
    BICUBIC = "bicubic"
    BOX = "box"
    HAMMING = "hamming"
    LANCZOS = "lanczos"


class Compose:
    """Transforms, one after the other."""

    def __init__(self, transforms: Sequence[Callable[[Any], Any]]) -> None:
        self.transforms = transforms

    def __call__(self, image: Any) -> Any:
        """Apply them."""
        for transform in self.transforms:
            image = transform(image)
        return image

    def __repr__(self) -> str:
        return "\n".join(["Compose(", *(f"    {transform}" for transform in self.transforms), ")"])


class Resize:
    """Resize to `(height, width)`; one number is the length of the shorter side, and the shape stays."""

    def __init__(
        self,
        size: int | Sequence[int],
        interpolation: InterpolationMode = InterpolationMode.BILINEAR,
        max_size: int | None = None,
        antialias: bool | None = True,
    ) -> None:
        self.size = size
        self.interpolation = interpolation
        self.max_size = max_size
        self.antialias = antialias

    def __call__(self, image: Any) -> Any:
        """The image in the new size."""
        before = _height_width(image)
        height, width = _resized(before, self.size, self.max_size)
        if before == (height, width):
            return image
        if isinstance(image, Tensor):
            return _resized_tensor(image, (height, width), self.interpolation, bool(self.antialias))
        return image.resize((width, height), Image.Resampling[self.interpolation.name])

    def __repr__(self) -> str:
        mode = self.interpolation.value
        return f"Resize(size={self.size}, interpolation={mode}, max_size={self.max_size}, antialias={self.antialias})"


class CenterCrop:
    """Cut `(height, width)`, or a square, from the middle; an image that is smaller gets black edges first."""

    def __init__(self, size: int | Sequence[int]) -> None:
        sides = [size] if isinstance(size, int) else list(size)
        self.size = (sides[0], sides[-1])

    def __call__(self, image: Any) -> Any:
        """The middle of the image."""
        height, width = self.size
        image = _padded(image, height, width)
        had_height, had_width = _height_width(image)
        top, left = round((had_height - height) / 2), round((had_width - width) / 2)
        if isinstance(image, Tensor):
            return image[..., top : top + height, left : left + width]
        return image.crop((left, top, left + width, top + height))

    def __repr__(self) -> str:
        return f"CenterCrop(size={self.size})"


class ToTensor:
    """A PIL image or a H x W x C array as a C x H x W tensor; bytes become floats from 0 to 1."""

    def __call__(self, image: Any) -> Tensor:
        """The tensor."""
        if isinstance(image, Image.Image):
            return _unit(_pixels(image))
        if hasattr(image, "__array_interface__") and image.ndim in (2, 3):
            array = torch.as_tensor(image if image.ndim == 3 else image[:, :, None])
            return _unit(array.permute(2, 0, 1).contiguous())
        raise TypeError(f"ToTensor takes a PIL image or an array of 2 or 3 dimensions, not {type(image).__name__}")

    def __repr__(self) -> str:
        return "ToTensor()"


class Normalize:
    """Take the mean from each channel and divide it by the standard deviation."""

    def __init__(self, mean: Sequence[float], std: Sequence[float], inplace: bool = False) -> None:
        self.mean = mean
        self.std = std
        self.inplace = inplace

    def __call__(self, image: Tensor) -> Tensor:
        """The normalised tensor, in place if so asked."""
        if not isinstance(image, Tensor) or not image.is_floating_point():
            kind = image.dtype if isinstance(image, Tensor) else type(image).__name__
            raise TypeError(f"Normalize takes a tensor of floats, not {kind}; pixels of more than 8 bits stay integers")
        if image.ndim < 3:
            raise ValueError(
                f"Normalize takes a tensor of channels x height x width, not of shape {tuple(image.shape)}"
            )
        channels = image.shape[-3]
        for name, values in (("mean", self.mean), ("std", self.std)):
            if len(values) not in (1, channels):
                raise ValueError(f"Normalize has a {name} for {len(values)} channels, the image has {channels}")
        mean, std = (
            torch.as_tensor(values, dtype=image.dtype, device=image.device).view(-1, 1, 1)
            for values in (self.mean, self.std)
        )
        if (std == 0).any():
            raise ValueError(f"Normalize cannot divide by a std of 0: {self.std}")
        return (image if self.inplace else image.clone()).sub_(mean).div_(std)

    def __repr__(self) -> str:
        return f"Normalize(mean={self.mean}, std={self.std})"


def _height_width(image: Any) -> tuple[int, int]:
    if isinstance(image, Tensor):
        return image.shape[-2], image.shape[-1]
    if not isinstance(image, Image.Image):
        raise TypeError(f"a PIL image or a tensor is needed, not {type(image).__name__}")
    return image.height, image.width


def _resized(now: tuple[int, int], size: int | Sequence[int], max_size: int | None) -> tuple[int, int]:
    """The height and width an image of this height and width is brought to."""
    sides = [size] if isinstance(size, int) else list(size)
    if len(sides) == 2:
        return sides[0], sides[1]
    short, long = sorted(now)
    new_short, new_long = sides[0], int(sides[0] * long / short)
    if max_size is not None and new_long > max_size:
        new_short, new_long = int(max_size * new_short / new_long), max_size
    return (new_short, new_long) if now[0] <= now[1] else (new_long, new_short)


def _resized_tensor(image: Tensor, size: tuple[int, int], mode: InterpolationMode, antialias: bool) -> Tensor:
    smooth = mode in (InterpolationMode.BILINEAR, InterpolationMode.BICUBIC)
    if not smooth and mode is not InterpolationMode.NEAREST:
        raise ValueError(f"tensors are resized by nearest, bilinear or bicubic interpolation, not {mode.value}")
    work = image if image.is_floating_point() else image.to(torch.float32)
    batched = work if work.ndim == 4 else work[None]
    out = torch.nn.functional.interpolate(
        batched, size, mode=mode.value, align_corners=False if smooth else None, antialias=antialias and smooth
    )
    out = out if image.ndim == 4 else out[0]
    if image.is_floating_point():
        return out
    if image.dtype == torch.uint8:
        out = out.clamp(0, 255)  # bicubic curves leave the range
    return out.round().to(image.dtype)


def _padded(image: Any, height: int, width: int) -> Any:
    """The image with black edges, where it is smaller than this."""
    had_height, had_width = _height_width(image)
    missing_height, missing_width = max(height - had_height, 0), max(width - had_width, 0)
    if not missing_height and not missing_width:
        return image
    left, top = missing_width // 2, missing_height // 2
    right, bottom = missing_width - left, missing_height - top
    if isinstance(image, Tensor):
        return torch.nn.functional.pad(image, (left, right, top, bottom))
    return ImageOps.expand(image, border=(left, top, right, bottom), fill=0)


_WIDE = {"I": torch.int32, "I;16": torch.int16, "F": torch.float32}


def _pixels(image: Image.Image) -> Tensor:
    if image.mode == "1":
        image = image.convert("L")
    raw = torch.frombuffer(bytearray(image.tobytes()), dtype=_WIDE.get(image.mode, torch.uint8))
    return raw.view(image.height, image.width, len(image.getbands())).permute(2, 0, 1).contiguous()


def _unit(pixels: Tensor) -> Tensor:
    return pixels.to(torch.get_default_dtype()).div(255) if pixels.dtype == torch.uint8 else pixels
