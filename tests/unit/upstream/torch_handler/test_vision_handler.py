from pathlib import Path
from typing import Any

import pytest
import torch
from PIL import Image

from shoal.upstream import vision
from shoal.upstream.ts.torch_handler.image_classifier import ImageClassifier
from shoal.upstream.ts.torch_handler.vision_handler import VisionHandler
from shoal.upstream.ts.utils.attribution import IntegratedGradients
from shoal.upstream.ts.utils.util import PredictionException
from tests.unit.upstream.torch_handler.cases import encoded, write_model
from tests.unit.upstream.torch_handler.serving import context, default_handler


@pytest.fixture
def handler() -> VisionHandler:
    return ImageClassifier()


@pytest.mark.parametrize(
    ("row", "complaint"),
    [
        ({"data": b"hello"}, "row 1 of the batch cannot be decoded as an image: no known format, 5 bytes"),
        ({"data": encoded("RGB", 90, 90)[:900]}, "row 1 of the batch cannot be decoded as an image: .*truncated"),
        ({"body": "%%%"}, "row 1 of the batch cannot be decoded as an image: no known format"),
        ({"body": "abcde"}, "row 1 of the batch is text, and that is no base64 of an image"),
        ({}, "row 1 of the batch holds nothing; it takes an image"),
        ({"data": b""}, "row 1 of the batch holds nothing"),
        ({"body": {"b64": "x"}}, "row 1 of the batch holds a dict; it takes an image"),
        ({"body": [[1, 2], [3]]}, "row 1 of the batch holds a list; .* lists of equal length"),
    ],
)
def test_a_row_that_is_no_picture_is_named(handler: VisionHandler, row: dict[str, Any], complaint: str) -> None:
    with pytest.raises(PredictionException, match=complaint) as refused:
        handler.preprocess([{"data": encoded()}, row])
    assert refused.value.error_code == 503


def test_a_picture_that_does_not_fit_the_transform_is_named_in_the_log() -> None:
    class Colours(ImageClassifier):
        image_processing = vision.Compose([vision.ToTensor(), vision.Normalize([0.1, 0.2, 0.3], [1, 1, 1])])

    with pytest.raises(ValueError, match="for 3 channels, the image has 4") as refused:
        Colours().preprocess([{"data": encoded("RGBA", 40, 30)}])

    assert refused.value.__notes__ == ["row 0 of the batch is a PNG image of mode RGBA, (40, 30)"]


def test_a_grey_picture_suits_a_handler_with_its_own_transform() -> None:
    class Digits(ImageClassifier):
        image_processing = vision.Compose([vision.ToTensor(), vision.Normalize((0.1307,), (0.3081,))])

    batch = Digits().preprocess([{"data": encoded("L", 28, 28)}, {"body": encoded("L", 28, 28)}])

    assert batch.shape == (2, 1, 28, 28)


def test_a_transform_may_be_a_method() -> None:
    class Own(ImageClassifier):
        def image_processing(self, image: Any) -> Any:
            return torch.tensor([image.width, image.height])

    assert Own().preprocess([{"data": encoded("RGB", 7, 4)}]).tolist() == [[7, 4]]


def test_rows_without_a_name_are_taken_too(handler: VisionHandler) -> None:
    """This is how an envelope gives them."""
    named = handler.preprocess([{"data": encoded()}])

    assert torch.equal(handler.preprocess([encoded()]), named)


@pytest.fixture
def pixels() -> Any:
    before = Image.MAX_IMAGE_PIXELS
    yield before
    Image.MAX_IMAGE_PIXELS = before


@pytest.mark.parametrize("limit", [True, False])
def test_the_limit_on_pixels_is_lifted_when_the_operator_says_so(tmp_path: Path, pixels: int, limit: bool) -> None:
    described = write_model(tmp_path, "classifier")

    ImageClassifier().initialize(context(tmp_path, described, limit=limit))

    assert (pixels if limit else None) == Image.MAX_IMAGE_PIXELS


def test_a_picture_over_the_limit_is_refused(handler: VisionHandler, pixels: int) -> None:
    Image.MAX_IMAGE_PIXELS = 100

    with pytest.raises(PredictionException, match=r"an image over the limit \(limit_max_image_pixels\)"):
        handler.preprocess([{"data": encoded()}])


def test_explanations_need_scores_for_classes(tmp_path: Path) -> None:
    handler = default_handler("image_segmenter")
    told = context(tmp_path, write_model(tmp_path, "segmenter"), headers={"explain": "True"})
    handler.initialize(told)
    handler.ig = IntegratedGradients(handler.model)

    with pytest.raises(TypeError, match="one row of class scores"):
        handler.handle([{"data": encoded()}], told)


def test_attributions_are_what_each_number_added_to_the_score() -> None:
    """Of a sum of cubes each number adds its cube, less that of the baseline."""
    inputs = torch.tensor([[1.0, 2.0], [3.0, -1.0]])
    explained = IntegratedGradients(lambda x: torch.stack([x.sum(1), (x**3).sum(1)], dim=1))

    assert torch.allclose(explained.attribute(inputs, target=1, n_steps=15), inputs**3)
    assert torch.allclose(explained.attribute(inputs, target=0, n_steps=15), inputs)
    assert torch.allclose(explained.attribute(inputs, baselines=1.0, target=1, n_steps=15), inputs**3 - 1)
    assert torch.allclose(IntegratedGradients(lambda x: (x**3).sum(1)).attribute(inputs), inputs**3)
