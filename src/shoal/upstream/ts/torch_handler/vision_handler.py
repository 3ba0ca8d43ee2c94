"""VisionHandler: pictures in, one tensor out. Subclasses say how a picture is transformed and what the output means."""

import base64
import binascii
import io
from typing import Any

import torch
from PIL import Image, UnidentifiedImageError

from shoal.upstream.ts.handler_utils.timer import timed
from shoal.upstream.ts.torch_handler.base_handler import BaseHandler
from shoal.upstream.ts.utils.attribution import integrated_gradients
from shoal.upstream.ts.utils.util import PredictionException

STEPS = 15  # of integrated gradients
UNREADABLE = 503  # the status of a batch that cannot be predicted


class VisionHandler(BaseHandler):
    """Rows hold a picture as bytes, as base64 text, or as nested lists of numbers that are taken as they are."""

    image_processing: Any
    ig: Any = None

    def initialize(self, context: Any) -> None:
        """Load the model; lift the limit on the size of pictures if the operator did."""
        super().initialize(context)
        self.ig = integrated_gradients(self.model)
        if context.system_properties.get("limit_max_image_pixels") is False:
            Image.MAX_IMAGE_PIXELS = None

    @timed
    def preprocess(self, data: Any) -> Any:
        """All pictures of the batch, transformed, as one tensor on the device."""
        return torch.stack([self._tensor(row, number) for number, row in enumerate(data)]).to(self.device)

    def _tensor(self, row: Any, number: int) -> Any:
        value = (row.get("data") or row.get("body")) if isinstance(row, dict) else row
        if isinstance(value, str):
            value = _decoded(value, number)
        if isinstance(value, bytes | bytearray | memoryview):
            image = _opened(value, number)
            try:
                return self.image_processing(image)
            except (TypeError, ValueError, RuntimeError) as error:
                error.add_note(
                    f"row {number} of the batch is a {image.format} image of mode {image.mode}, {image.size}"
                )
                raise
        try:
            return torch.as_tensor(value, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError) as error:
            kind = "holds nothing" if value is None else f"holds a {type(value).__name__}"
            raise _bad(
                number, f"{kind}; it takes an image, base64 of one, or numbers in lists of equal length"
            ) from error

    def get_insights(self, tensor_data: Any, _: Any, target: Any = 0) -> Any:
        """How much each number of the pictures adds to the score of one class, in nested lists."""
        return self.ig.attribute(tensor_data, target=target, n_steps=STEPS).tolist()


def _decoded(text: str, number: int) -> bytes:
    try:
        return base64.b64decode(text)
    except (binascii.Error, ValueError) as error:
        raise _bad(number, f"is text, and that is no base64 of an image: {error}") from error


def _opened(value: Any, number: int) -> Image.Image:
    try:
        image = Image.open(io.BytesIO(value))
        image.load()
    except Image.DecompressionBombError as error:
        raise _bad(number, f"is an image over the limit (limit_max_image_pixels): {error}") from error
    except Exception as error:  # Pillow's readers raise what they come across
        reason = "no known format" if isinstance(error, UnidentifiedImageError) else error
        raise _bad(number, f"cannot be decoded as an image: {reason}, {len(value)} bytes") from error
    return image


def _bad(number: int, what: str) -> PredictionException:
    return PredictionException(f"row {number} of the batch {what}", UNREADABLE)
