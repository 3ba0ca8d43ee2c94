"""From the bytes a person sent to an upright RGB picture."""

from io import BytesIO
from typing import Any

import numpy as np
import pytest
from PIL import Image

from shoal.demo.images import MAX_PIXELS, read_image
from shoal.errors import InvalidInput


def encoded(image: Image.Image, format_: str = "PNG", **options: Any) -> bytes:
    stream = BytesIO()
    image.save(stream, format_, **options)
    return stream.getvalue()


@pytest.mark.parametrize("data", [b"", b"hello", b"\x89PNG\r\n\x1a\n", b"GIF89a", b"%!PS-Adobe-3.0 EPSF-3.0"])
def test_what_is_no_image_is_the_clients_mistake(data: bytes) -> None:
    with pytest.raises(InvalidInput, match="not an image"):
        read_image(data, enough=100)


@pytest.mark.parametrize("item", [{"a": 1}, "text", None, 3])
def test_what_are_no_bytes_is_the_clients_mistake(item: Any) -> None:
    with pytest.raises(InvalidInput, match="send the bytes of an image"):
        read_image(item, enough=100)


def test_a_truncated_image_is_the_clients_mistake() -> None:
    noise = Image.fromarray(np.random.default_rng(0).integers(0, 255, (64, 64, 3), np.uint8))
    with pytest.raises(InvalidInput, match="damaged"):
        read_image(encoded(noise)[:2000], enough=100)


@pytest.mark.parametrize("side", [7_200, 10_000, 16_000])
def test_an_image_of_too_many_pixels_is_refused_before_it_is_decoded(side: int) -> None:
    bomb = encoded(Image.new("1", (side, side)))
    assert side * side > MAX_PIXELS
    assert len(bomb) < 100_000
    with pytest.raises(InvalidInput, match="pixels"):
        read_image(bomb, enough=100)


@pytest.mark.parametrize(
    "image",
    [
        Image.new("RGBA", (4, 4), (200, 0, 0, 0)),
        Image.new("LA", (4, 4), (10, 0)),
        Image.new("RGBA", (4, 4), (0, 0, 0, 0)).quantize(2),
    ],
)
def test_what_is_transparent_becomes_white(image: Image.Image) -> None:
    options: dict[str, Any] = {"transparency": 0} if image.mode == "P" else {}
    picture = read_image(encoded(image, **options), enough=100)
    assert picture.image.getpixel((1, 1)) == (255, 255, 255)


def test_half_transparent_is_mixed_with_white() -> None:
    picture = read_image(encoded(Image.new("RGBA", (4, 4), (0, 0, 0, 128))), enough=100)
    assert picture.image.getpixel((1, 1)) == (127, 127, 127)


def test_an_animation_gives_its_first_frame() -> None:
    frames = [Image.new("RGB", (8, 8), colour) for colour in ("red", "blue")]
    picture = read_image(encoded(frames[0], "GIF", save_all=True, append_images=frames[1:]), enough=100)
    assert picture.image.getpixel((0, 0)) == (255, 0, 0)


def test_a_photograph_held_sideways_is_turned_upright() -> None:
    exif = Image.Exif()
    exif[0x0112] = 6  # the camera was turned: rotate by 90 degrees to the right
    picture = read_image(encoded(Image.new("RGB", (40, 20)), "JPEG", exif=exif), enough=100)
    assert picture.image.size == (20, 40)


def test_sixteen_bits_of_grey_keep_their_brightness() -> None:
    grey = Image.fromarray(np.full((4, 4), 0x8000, np.uint16))
    assert read_image(encoded(grey), enough=100).image.getpixel((0, 0)) == (128, 128, 128)


@pytest.mark.parametrize("mode", ["1", "L", "P", "RGB", "RGBA", "CMYK"])
def test_every_mode_comes_out_as_rgb(mode: str) -> None:
    format_ = "JPEG" if mode == "CMYK" else "PNG"
    assert read_image(encoded(Image.new(mode, (6, 5)), format_), enough=100).image.mode == "RGB"


def test_a_large_jpeg_is_decoded_no_larger_than_needed_and_says_so() -> None:
    picture = read_image(encoded(Image.new("RGB", (1600, 1200)), "JPEG"), enough=200)
    assert picture.image.size == (400, 300)
    assert picture.scale == 4


def test_other_formats_and_small_jpegs_keep_their_size() -> None:
    for data in (encoded(Image.new("RGB", (1600, 1200))), encoded(Image.new("RGB", (160, 120)), "JPEG")):
        assert read_image(data, enough=200).scale == 1


def test_a_view_of_shared_memory_will_do() -> None:
    assert read_image(memoryview(encoded(Image.new("RGB", (6, 5)))), enough=100).image.size == (6, 5)
