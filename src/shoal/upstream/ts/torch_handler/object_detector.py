"""ObjectDetector: pictures in, boxes with labels and scores out."""

from typing import Any

from shoal.upstream.ts.torch_handler.vision_handler import VisionHandler
from shoal.upstream.ts.utils.util import map_class_to_label
from shoal.upstream.vision import transforms

T = transforms()


class ObjectDetector(VisionHandler):
    """Answers a list of `{label: box, "score": score}`, for scores of `threshold` and more."""

    image_processing = T.Compose([T.ToTensor()])
    threshold = 0.5

    def postprocess(self, data: Any) -> list[Any]:
        """The boxes of each row that are likely enough, in the order of the model."""
        return [self._boxes(row) for row in data]

    def _boxes(self, row: Any) -> list[dict[str, Any]]:
        boxes, classes, scores = (row[key].tolist() for key in ("boxes", "labels", "scores"))
        found = [each for each in zip(boxes, classes, scores, strict=True) if each[2] >= self.threshold]
        return [
            {**map_class_to_label([[box]], self.mapping, [[number]])[0], "score": score} for box, number, score in found
        ]
