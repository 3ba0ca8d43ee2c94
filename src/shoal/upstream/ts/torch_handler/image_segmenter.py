"""ImageSegmenter: pictures in, a class for each pixel out."""

from typing import Any

import torch

from shoal.upstream.ts.torch_handler.vision_handler import VisionHandler
from shoal.upstream.vision import transforms

T = transforms()


class ImageSegmenter(VisionHandler):
    """Answers height x width x 2 numbers: the class of each pixel and its probability."""

    image_processing = T.Compose(
        [
            T.Resize(256),
            T.CenterCrop(224),
            T.ToTensor(),
            T.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ]
    )

    def postprocess(self, data: Any) -> list[Any]:
        """The likeliest class of each pixel; the model answers scores, or a mapping that holds them as `out`."""
        scores = data if isinstance(data, torch.Tensor) else data["out"]
        values, classes = torch.softmax(scores, dim=1).max(dim=1)
        return torch.stack([classes.to(values.dtype), values], dim=3).tolist()
