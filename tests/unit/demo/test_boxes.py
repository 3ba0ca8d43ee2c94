"""Lines of text in a probability map made by hand."""

from typing import Any

import numpy as np
import numpy.typing as npt
import pytest

from shoal.demo.boxes import Box, find_boxes, reading_order


def page(*cores: tuple[int, int, int, int], probability: float = 0.9) -> npt.NDArray[Any]:
    """A map of 200 x 300 with a rectangle of text for each core (left, top, right, bottom)."""
    map_ = np.zeros((200, 300), np.float32)
    for left, top, right, bottom in cores:
        map_[top:bottom, left:right] = probability
    return map_


def test_an_empty_map_has_no_lines() -> None:
    assert find_boxes(page()) == []


def test_a_box_is_its_core_grown_by_its_area_over_its_perimeter() -> None:
    (box,) = find_boxes(page((50, 60, 150, 70)))
    margin = 1.6 * 100 * 10 / 220
    assert box == Box(50 - margin, 60 - margin, 150 + margin, 70 + margin)


def test_each_component_is_one_line() -> None:
    boxes = find_boxes(page((10, 10, 100, 18), (10, 40, 200, 48), (150, 10, 280, 18)))
    assert len(boxes) == 3


def test_a_core_whose_rows_hang_together_sideways_stays_one_line() -> None:
    shape = page((10, 10, 40, 14), (60, 10, 90, 14), (10, 14, 90, 18), (10, 18, 20, 22), (80, 18, 90, 22))
    assert len(find_boxes(shape)) == 1


def test_pixels_that_touch_by_a_corner_belong_together() -> None:
    assert len(find_boxes(page((10, 10, 20, 15), (20, 15, 30, 20)))) == 1
    assert len(find_boxes(page((10, 10, 20, 15), (21, 15, 30, 20)))) == 2


def test_the_end_of_a_row_does_not_touch_the_start_of_the_next() -> None:
    assert len(find_boxes(page((290, 10, 300, 15), (0, 15, 10, 20)))) == 2


def test_specks_and_faint_smears_are_no_lines() -> None:
    assert find_boxes(page((10, 10, 12, 12))) == []
    assert find_boxes(page((10, 10, 100, 20), probability=0.4)) == []


@pytest.mark.parametrize("seed", range(5))
def test_components_agree_with_a_flood_fill(seed: int) -> None:
    mask = np.random.default_rng(seed).random((24, 30)) < 0.35
    from_flood = flood(mask)
    big = np.kron(mask, np.ones((4, 4))).astype(np.float32)  # so that no component is a speck
    assert len(find_boxes(big)) == from_flood


def flood(mask: npt.NDArray[Any]) -> int:
    left = {(int(row), int(column)) for row, column in np.argwhere(mask)}
    count = 0
    while left:
        count += 1
        edge = [left.pop()]
        while edge:
            row, column = edge.pop()
            near = {(row + down, column + right) for down in (-1, 0, 1) for right in (-1, 0, 1)} & left
            left -= near
            edge.extend(near)
    return count


def test_a_box_is_scaled_and_cut_at_the_borders() -> None:
    assert Box(-5, 10, 60, 30).scaled(2, 0.5).within(100, 100) == Box(0, 5, 100, 15)


def test_rows_are_read_from_the_top_and_each_from_the_left() -> None:
    boxes = [Box(100, 52, 150, 72), Box(10, 0, 50, 20), Box(10, 50, 60, 70), Box(200, 4, 250, 22)]
    assert reading_order(boxes) == [[1, 3], [2, 0]]


def test_lines_that_overlap_a_little_are_still_two_rows() -> None:
    assert reading_order([Box(0, 0, 90, 20), Box(0, 14, 90, 34)]) == [[0], [1]]


def test_no_boxes_have_no_rows() -> None:
    assert reading_order([]) == []
