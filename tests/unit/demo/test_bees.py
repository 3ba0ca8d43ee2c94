"""What the classifier's network sees, and what its numbers are called."""

from io import BytesIO

import numpy as np
import pytest
from PIL import Image

from shoal.demo.assets import LABELS
from shoal.demo.bees import ANT, BEE, describe, prepare, softmax

NAMES = LABELS.read_text("utf-8").splitlines()


def png(image: Image.Image) -> bytes:
    stream = BytesIO()
    image.save(stream, "PNG")
    return stream.getvalue()


def test_there_are_1000_different_names_in_imagenets_order() -> None:
    assert len(NAMES) == len(set(NAMES)) == 1000
    known = {
        0: "tench",
        207: "golden retriever",
        282: "tiger cat",
        309: "bee",
        310: "ant",
        967: "espresso",
        999: "toilet tissue",
    }
    assert {index: NAMES[index] for index in known} == known


def test_pixels_are_scaled_as_the_weights_were_trained() -> None:
    pixels = prepare(png(Image.new("RGB", (300, 300), (255, 127, 0))))
    assert pixels.shape == (3, 224, 224)
    assert pixels.dtype == np.float32
    np.testing.assert_allclose(pixels[:, 100, 100], [1.0, 0.0, -127 / 128])


def test_the_middle_seven_eighths_of_the_shorter_side_are_seen() -> None:
    image = Image.new("RGB", (512, 256), "black")
    image.paste("white", (512 // 2 - 112, 128 - 112, 512 // 2 + 112, 128 + 112))
    np.testing.assert_array_equal(prepare(png(image)), np.ones((3, 224, 224), np.float32))


@pytest.mark.parametrize("size", [(1, 1), (1, 4000), (3000, 2)])
def test_any_shape_of_picture_will_do(size: tuple[int, int]) -> None:
    assert prepare(png(Image.new("RGB", size))).shape == (3, 224, 224)


def test_the_five_likeliest_are_named_in_order() -> None:
    logits = np.zeros(1000, np.float32)
    logits[[282, 285, 281, 287, 904]] = [14, 13, 12, 11, 10]
    answer = describe(logits, NAMES)
    assert [each["label"] for each in answer["top"]] == ["tiger cat", "Egyptian cat", "tabby", "lynx", NAMES[904]]
    assert answer["label"] == "tiger cat"
    assert answer["probability"] == pytest.approx(softmax(logits)[282], abs=1e-4)
    assert answer["is_insect"] is False


def test_bees_or_ants_compares_the_two_alone() -> None:
    logits = np.zeros(1000, np.float32)
    logits[BEE], logits[ANT] = 12, 10
    answer = describe(logits, NAMES)
    assert answer["bees_or_ants"] == {"bee": pytest.approx(0.8808), "ant": pytest.approx(0.1192)}
    assert answer["is_insect"] is True


def test_softmax_survives_large_logits() -> None:
    np.testing.assert_allclose(softmax(np.array([1e4, 1e4, -1e4], np.float32)), [0.5, 0.5, 0.0])
