"""ImageClassifier: pictures in, the likeliest labels out."""

from typing import Any

import torch

from shoal.upstream.ts.handler_utils.timer import timed
from shoal.upstream.ts.torch_handler.vision_handler import VisionHandler
from shoal.upstream.ts.utils.util import map_class_to_label
from shoal.upstream.vision import transforms

T = transforms()


class ImageClassifier(VisionHandler):
    """Answers `{label: probability}` for the `topk` likeliest classes."""

    topk = 5
    image_processing = T.Compose(
        [
            T.Resize(256),
            T.CenterCrop(224),
            T.ToTensor(),
            T.Normalize(mean=[0.485, 0.456, 0.406], std=[0.229, 0.224, 0.225]),
        ]
    )

    def set_max_result_classes(self, topk: int) -> None:
        """Choose how many classes an answer holds."""
        self.topk = topk

    def get_max_result_classes(self) -> int:
        """How many classes an answer holds."""
        return self.topk

    @timed
    def postprocess(self, data: Any) -> list[Any]:
        """The likeliest classes of each row; all of them, where the model has fewer than `topk`."""
        likely = torch.softmax(data, dim=1)
        values, classes = torch.topk(likely, min(self.topk, likely.shape[1]), dim=1)
        return map_class_to_label(values.tolist(), self.mapping, classes.tolist())
