"""The parts for accelerators, on a CPU: what they compute is the same wherever they run."""

import io
import threading
from typing import Any

import numpy as np
import pytest
import torch
from PIL import Image

from shoal.errors import InvalidInput
from shoal.gpu import Graphs, Pictures, Staging
from shoal.gpu import pictures as reading
from shoal.gpu.graphs import fuse


def encoded(width: int, height: int, kind: str = "PNG", colour: int = 0) -> bytes:
    pixels = np.random.default_rng(colour).integers(0, 256, (height, width, 3), dtype=np.uint8)
    buffer = io.BytesIO()
    Image.fromarray(pixels).save(buffer, kind)
    return buffer.getvalue()


def by_hand(body: bytes, resize: int, crop: int) -> Any:
    """Pillow's own resampling, the middle square, ImageNet's mean and deviation."""
    with Image.open(io.BytesIO(body)) as picture:
        short = min(picture.size)
        size = (round(picture.width * resize / short), round(picture.height * resize / short))
        pixels = np.asarray(picture.convert("RGB").resize(size, Image.Resampling.BILINEAR), dtype=np.float32)
    top, left = (size[1] - crop) // 2, (size[0] - crop) // 2
    cut = pixels[top : top + crop, left : left + crop].transpose(2, 0, 1) / 255
    mean, std = np.array([0.485, 0.456, 0.406]), np.array([0.229, 0.224, 0.225])
    return (cut - mean[:, None, None]) / std[:, None, None]


@pytest.mark.parametrize(("width", "height"), [(40, 30), (30, 40), (33, 33), (20, 64)])
def test_a_picture_is_resized_cropped_and_normalised(width: int, height: int) -> None:
    body = encoded(width, height)

    batch = Pictures(resize=16, crop=14)([body])

    assert isinstance(batch, torch.Tensor)
    assert np.abs(batch[0].numpy() - by_hand(body, 16, 14)).max() < 0.02  # Pillow rounds to 8 bits in between


@pytest.mark.parametrize("mode", ["L", "P", "RGBA", "CMYK"])
def test_a_picture_of_other_channels_is_read_in_three(mode: str) -> None:
    with Image.open(io.BytesIO(encoded(40, 30))) as picture:
        buffer = io.BytesIO()
        picture.convert(mode).save(buffer, "TIFF")

    batch = Pictures(resize=16, crop=14)([buffer.getvalue()])

    assert isinstance(batch, torch.Tensor)
    assert np.abs(batch[0].numpy() - by_hand(buffer.getvalue(), 16, 14)).max() < 0.02


def test_pictures_of_several_sizes_keep_their_places() -> None:
    bodies = [encoded(20 + 3 * (n % 3), 24, colour=n) for n in range(17)]
    pictures = Pictures(resize=16, crop=16, threads=4)

    together = pictures([memoryview(body) for body in bodies])

    assert isinstance(together, torch.Tensor)
    for row, body in zip(together, bodies, strict=True):
        alone = pictures([body])
        assert isinstance(alone, torch.Tensor) and torch.equal(row, alone[0])


@pytest.mark.parametrize(("threads", "is_here"), [(1, True), (2, False)])
def test_one_thread_is_the_callers_own_so_that_several_callers_read_at_once(threads: int, is_here: bool) -> None:
    class Watched(Pictures):
        def _open(self, body: Any) -> Any:
            readers.add(threading.get_ident())
            return super()._open(body)

    readers: set[int] = set()
    batch = Watched(threads=threads)([encoded(40, 30)] * 6)

    assert isinstance(batch, torch.Tensor) and len(batch) == 6
    assert (readers == {threading.get_ident()}) is is_here


def test_a_body_that_is_no_picture_is_its_own_error_alone() -> None:
    good = encoded(20, 20, "JPEG")
    made = Pictures(resize=16, crop=16)([good, b"", good[:200], b"\xff\xd8\xff nothing", good])

    assert [type(row) for row in made] == [torch.Tensor, InvalidInput, InvalidInput, InvalidInput, torch.Tensor]
    assert "no picture" in str(made[1])


@pytest.mark.parametrize("pixels", [100, 399])
def test_a_picture_of_too_many_pixels_is_refused_before_it_is_decoded(
    pixels: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(reading, "MAX_PIXELS", pixels)

    (made,) = Pictures(resize=16, crop=16)([encoded(20, 20)])

    assert str(made) == "the picture has 20 x 20 pixels, which is too many"


def test_a_square_larger_than_the_picture_cannot_be_asked_for() -> None:
    with pytest.raises(ValueError, match="cannot be cut"):
        Pictures(resize=224, crop=256)


def test_staged_bodies_are_the_rows_of_a_batch() -> None:
    rows = [np.full((2, 3), n, np.float32) for n in range(5)]

    batch = Staging((2, 3))([memoryview(row.tobytes()) for row in rows])

    assert isinstance(batch, torch.Tensor)
    assert batch.shape == (5, 2, 3)
    assert np.array_equal(batch.numpy(), np.stack(rows))


def test_a_body_of_another_size_is_its_own_error_alone() -> None:
    row = np.arange(6, dtype=np.int64)

    made = Staging((6,), dtype=torch.int64)([row.tobytes(), b"short", row.tobytes()])

    assert isinstance(made, list)
    assert isinstance(made[2], torch.Tensor) and torch.equal(made[2], torch.arange(6))
    assert str(made[1]) == "the body has 5 bytes; a tensor of shape [6] and type int64 has 48"


def test_a_model_takes_a_batch_or_rows_and_is_only_evaluated() -> None:
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 2, 3), torch.nn.Dropout(0.5))
    graphs = Graphs(model, (3, 8, 8), channels_last=True)
    batch = torch.randn(4, 3, 8, 8)

    assert torch.allclose(graphs(batch), graphs(list(batch)))
    assert not graphs(batch).requires_grad
    assert torch.allclose(graphs(batch), graphs(batch))


@pytest.mark.parametrize("buckets", [(), (0, 4)])
def test_buckets_are_numbers_of_rows(buckets: tuple[int, ...]) -> None:
    with pytest.raises(ValueError, match="numbers of rows"):
        Graphs(torch.nn.Identity(), (1,), buckets=buckets)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_fused_model_gives_the_same_and_has_no_norms_left() -> None:
    torch.manual_seed(0)
    norm = torch.nn.BatchNorm2d(4)
    torch.nn.init.constant_(norm.weight, 0.3)
    model = torch.nn.Sequential(torch.nn.Conv2d(3, 4, 3), norm, torch.nn.ReLU()).eval()
    batch = torch.randn(2, 3, 8, 8)

    fused = fuse(model)

    assert isinstance(fused, torch.jit.ScriptModule)
    assert "batch_norm" not in str(fused.graph)
    with torch.inference_mode():
        assert torch.allclose(fused(batch), model(batch), atol=1e-5)


@pytest.mark.filterwarnings("ignore:.torch.jit:DeprecationWarning")
def test_a_model_that_cannot_be_compiled_says_so_when_it_is_to_be_fused() -> None:
    class Odd(torch.nn.Module):
        def forward(self, *rows: torch.Tensor) -> object:
            return {row: str(row) for row in rows}

    with pytest.raises(ValueError, match="Odd cannot be fused, TorchScript does not compile it"):
        fuse(Odd())
