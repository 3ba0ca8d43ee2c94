"""What the recogniser sees, and how its steps become text."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest
from PIL import Image

from shoal.demo.boxes import Box
from shoal.demo.images import Picture
from shoal.demo.ocr import Line, arrange, describe, fit, prepare_line, prepare_page, read_ctc

ALPHABET = ["", "a", "b", "c", " "]


def steps(*classes: int, probability: float = 0.9) -> npt.NDArray[Any]:
    """A row of probabilities per class named, the rest shared by the others."""
    table = np.full((len(classes), len(ALPHABET)), (1 - probability) / (len(ALPHABET) - 1) / 10, np.float32)
    table[np.arange(len(classes)), classes] = probability
    return table


@pytest.mark.parametrize(
    ("classes", "text"),
    [
        ((1, 2, 3), "abc"),
        ((1, 1, 1, 2), "ab"),
        ((1, 0, 1, 0, 0, 2), "aab"),
        ((0, 0, 1, 0), "a"),
        ((4, 1, 4, 2, 4), "a b"),
        ((1, 4, 0, 4, 2), "a b"),
        ((0, 0, 0), ""),
        ((4, 0, 4), ""),
    ],
)
def test_repeats_are_one_character_and_blanks_keep_them_apart(classes: tuple[int, ...], text: str) -> None:
    assert read_ctc(steps(*classes), ALPHABET)[0] == text


def test_confidence_is_the_mean_over_the_characters_kept() -> None:
    table = np.concatenate([steps(1, probability=0.8), steps(0, 0, probability=0.99), steps(2, probability=0.6)])
    text, confidence = read_ctc(table, ALPHABET)
    assert text == "ab"
    assert confidence == pytest.approx(0.7)


def test_nothing_read_is_no_confidence() -> None:
    assert read_ctc(steps(0, 0), ALPHABET) == ("", 0.0)


def test_a_blank_that_may_be_a_space_is_one() -> None:
    table = steps(1, 0, 2)
    assert read_ctc(table, ALPHABET)[0] == "ab"
    table[1] = [0.8, 0, 0, 0, 0.2]
    assert read_ctc(table, ALPHABET)[0] == "a b"


def test_a_line_is_48_high_and_padded_with_zeros_to_a_step_of_width() -> None:
    picture = Image.new("RGB", (400, 100), (255, 0, 0))
    pixels = prepare_line(picture, Box(0, 0, 400, 100))
    assert pixels.shape == (3, 48, 320)
    np.testing.assert_allclose(pixels[:, 20, 100], [-1, -1, 1])  # blue, green, red
    assert not pixels[:, :, 192:].any()


@pytest.mark.parametrize("box", [Box(3.2, 3.1, 3.4, 3.3), Box(0, 0, 100, 1), Box(0, 0, 1, 100)])
def test_a_line_of_any_shape_can_be_prepared(box: Box) -> None:
    assert prepare_line(Image.new("RGB", (100, 100)), box).shape[:2] == (3, 48)


@pytest.mark.parametrize(
    ("size", "seen"),
    [((640, 440), (640, 448)), ((320, 100), (640, 192)), ((4000, 2000), (1280, 640)), ((5000, 1), (1280, 32))],
)
def test_the_detector_sees_a_useful_size_in_multiples_of_32(size: tuple[int, int], seen: tuple[int, int]) -> None:
    assert prepare_page(Image.new("RGB", size)).shape == (1, 3, seen[1], seen[0])


def test_a_huge_picture_is_worked_on_at_a_fraction_and_says_so() -> None:
    picture = fit(Picture(Image.new("RGB", (5200, 400)), scale=2))
    assert picture.image.size == (1300, 100)
    assert picture.scale == 8


def test_guesses_and_empty_lines_are_left_out() -> None:
    box = Box(0, 0, 10, 10)
    assert arrange([Line("a", 0.4, box), Line("", 0.9, box)]) == []


def test_text_is_the_rows_one_under_the_other() -> None:
    rows = arrange(
        [
            Line("right", 0.9, Box(50, 1, 90, 11)),
            Line("left", 0.8, Box(0, 0, 40, 10)),
            Line("below", 0.7, Box(0, 20, 9, 30.4)),
        ]
    )
    answer = describe(rows)
    assert answer["text"] == "left right\nbelow"
    assert answer["lines"][2] == {"text": "below", "confidence": 0.7, "box": [0, 20, 9, 30]}
