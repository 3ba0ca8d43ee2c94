"""Pictures: JPEG and other image bodies to a normalised batch on the device, several pieces of it at a time.

On a GPU with JPEG engines these decode; on another, torchvision's decoder where it is installed; what neither can read
is read by Pillow. Pieces matter on a GPU too: beside a model that fills it, one decoder mostly waits its turn.
"""

import io
import os
import warnings
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from queue import SimpleQueue

import numpy as np
import torch
from PIL import Image
from torch.nn.functional import interpolate

from shoal.errors import InvalidInput
from shoal.gpu.nvjpeg import Nvjpeg
from shoal.gpu.staging import Body
from shoal.gpu.streams import FIRST, own_stream

try:
    from torchvision.io import ImageReadMode, decode_jpeg
except ImportError:
    decode_jpeg = None

warnings.filterwarnings("ignore", message="The given buffer is not writable")  # it is only ever read
IMAGENET = ((0.485, 0.456, 0.406), (0.229, 0.224, 0.225))
JPEG = b"\xff\xd8\xff"
MAX_PIXELS = 178_956_970  # what Pillow calls a bomb
PIECES = 4  # of a batch that are read at once on a GPU,
ENGINES = 8  # by so many decoders in all: a handler may read two batches at once
LEAST = 8  # bodies of a piece there
MOST = 2  # of a piece on a CPU: their pixels stay in its cache, and no thread ends long after the others

Group = tuple[
    list[int], torch.Tensor
]  # places, and their pictures of one size: (places, 3, height, width), 8 bits each


class Pictures:
    """Bodies to a batch: the shorter side to `resize`, the middle `crop` square of it, each channel normalised."""

    def __init__(
        self,
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        *,
        resize: int = 256,
        crop: int = 224,
        mean: Sequence[float] = IMAGENET[0],
        std: Sequence[float] = IMAGENET[1],
        threads: int = 0,
    ) -> None:
        if crop > resize:
            raise ValueError(f"a square of {crop} cannot be cut from a picture resized to {resize}")
        self.device = torch.device(device)
        self.dtype = dtype
        self.resize = resize
        self.crop = crop
        scale = torch.tensor([1 / (255 * value) for value in std], dtype=torch.float32)
        shift = torch.tensor([-middle / value for middle, value in zip(mean, std, strict=True)], dtype=torch.float32)
        self._scale = scale.view(1, 3, 1, 1).to(self.device)
        self._shift = shift.view(1, 3, 1, 1).to(self.device)
        is_gpu = self.device.type == "cuda"
        self._pieces = threads or (PIECES if is_gpu else min(8, os.cpu_count() or 1))
        readers = max(self._pieces, ENGINES) if is_gpu else self._pieces
        self._engines = engines(readers, self.device) if is_gpu else None
        self._threads = ThreadPoolExecutor(readers, "pictures")

    def __call__(self, bodies: Sequence[Body]) -> torch.Tensor | list[torch.Tensor | InvalidInput]:
        """Give the batch; where a body is no picture, a list in which it is replaced by its error."""
        batch = torch.empty(len(bodies), 3, self.crop, self.crop, device=self.device, dtype=self.dtype)
        size = max(LEAST, -(-len(bodies) // self._pieces)) if self.device.type == "cuda" else MOST
        starts = range(0, len(bodies), size)
        pieces = [(batch[start : start + size], bodies[start : start + size]) for start in starts]
        run = self._threads.map if self._pieces > 1 and len(pieces) > 1 else map  # one at a time: on this thread
        errors = [error for made in run(lambda piece: self._fill(*piece), pieces) for error in made]
        if not any(errors):
            return batch
        return [error or row for error, row in zip(errors, batch, strict=True)]

    def _fill(self, rows: torch.Tensor, bodies: Sequence[Body]) -> list[InvalidInput | None]:
        """Make the rows of a piece; give what was wrong with each body."""
        errors: list[InvalidInput | None] = [None] * len(bodies)
        with torch.inference_mode(), own_stream(self.device, FIRST):
            groups, rest = self._decode(bodies) if self.device.type == "cuda" else ([], list(range(len(bodies))))
            for places, pictures in groups:
                made = self._shape(pictures)
                if len(places) == len(bodies):
                    rows.copy_(made)
                else:
                    rows[torch.tensor(places, device=self.device)] = made
            for place in rest:
                picture = self._open(bodies[place])
                if isinstance(picture, InvalidInput):
                    errors[place] = picture
                else:
                    rows[place] = self._normalised(picture[None].to(self.device, non_blocking=True))[0]
        return errors

    def _decode(self, bodies: Sequence[Body]) -> tuple[list[Group], list[int]]:
        """Decode on the device; give the pictures of each size together, and the places of what it cannot read."""
        rest = [place for place, body in enumerate(bodies) if bytes(body[:3]) != JPEG]
        skipped = set(rest)
        places = [place for place in range(len(bodies)) if place not in skipped]
        jpegs = [torch.frombuffer(bodies[place], dtype=torch.uint8) for place in places]
        if self._engines is None:
            read = decode_together(jpegs, self.device)
            rest += [place for place, picture in zip(places, read, strict=True) if picture is None]
            return [([place], one[None]) for place, one in zip(places, read, strict=True) if one is not None], rest
        engine = self._engines.get()
        try:
            groups, unread = decode_with(engine, jpegs, self.device)
        finally:
            self._engines.put(engine)
        found = [([places[index] for index in indices], pictures) for indices, pictures in groups]
        return found, rest + [places[index] for index in unread]

    def _open(self, body: Body) -> torch.Tensor | InvalidInput:
        """Let Pillow read a picture and give the square of it, 8 bits each; the rest is not resized."""
        try:
            with Image.open(io.BytesIO(body)) as picture:
                if picture.width * picture.height > MAX_PIXELS:
                    return InvalidInput(f"the picture has {picture.width} x {picture.height} pixels, which is too many")
                picture.draft("RGB", (self.resize, self.resize))
                size, (top, left) = self._sizes(picture.height, picture.width)
                down, across = picture.height / size[0], picture.width / size[1]
                box = (left * across, top * down, (left + self.crop) * across, (top + self.crop) * down)
                whole = picture if picture.mode == "RGB" else picture.convert("RGB")
                pixels = np.array(whole.resize((self.crop, self.crop), Image.Resampling.BILINEAR, box))
        except (OSError, ValueError, SyntaxError, Image.DecompressionBombError) as error:
            return InvalidInput(f"the body is no picture that can be read: {error}")
        return torch.from_numpy(pixels).permute(2, 0, 1)

    def _shape(self, pictures: torch.Tensor) -> torch.Tensor:
        """Resize, crop and normalise pictures of one size."""
        height, width = pictures.shape[2:]
        size, (top, left) = self._sizes(height, width)
        values = pictures.to(torch.float32)
        if size != (height, width):
            values = interpolate(values, size=size, mode="bilinear", antialias=True, align_corners=False)
        return self._normalised(values[:, :, top : top + self.crop, left : left + self.crop])

    def _sizes(self, height: int, width: int) -> tuple[tuple[int, int], tuple[int, int]]:
        """The height and width that a picture is resized to, and where in it the square begins: from above, left."""
        short = min(height, width)
        size = (round(height * self.resize / short), round(width * self.resize / short))
        return size, ((size[0] - self.crop) // 2, (size[1] - self.crop) // 2)

    def _normalised(self, pictures: torch.Tensor) -> torch.Tensor:
        return torch.addcmul(self._shift, pictures.to(torch.float32), self._scale).to(self.dtype)


def engines(count: int, device: torch.device) -> "SimpleQueue[Nvjpeg] | None":
    """Decoders on the GPU's JPEG engines, each tried once; None where there are no such engines."""
    buffer = io.BytesIO()
    Image.new("RGB", (64, 64)).save(buffer, "JPEG")
    example = [torch.frombuffer(bytearray(buffer.getvalue()), dtype=torch.uint8)]
    made: SimpleQueue[Nvjpeg] = SimpleQueue()
    try:
        for _ in range(count):
            with own_stream(device):
                engine = Nvjpeg()
                if not decode_with(engine, example, device)[0]:
                    return None
            made.put(engine)
    except RuntimeError:
        return None
    return made


def decode_with(engine: Nvjpeg, jpegs: Sequence[torch.Tensor], device: torch.device) -> tuple[list[Group], list[int]]:
    """Decode with one engine; give the pictures of each size together, and the places of what it does not read."""
    addresses, lengths = [jpeg.data_ptr() for jpeg in jpegs], [len(jpeg) for jpeg in jpegs]
    places: dict[tuple[int, int] | None, list[int]] = {}
    for place, size in enumerate(engine.sizes(addresses, lengths)):
        places.setdefault(size, []).append(place)
    unread = places.pop(None, [])
    groups: list[Group] = []
    for size, same in places.items():
        assert size is not None
        into = torch.empty(len(same), 3, *size, dtype=torch.uint8, device=device)
        try:
            engine.decode([addresses[place] for place in same], [lengths[place] for place in same], into)
        except RuntimeError:
            unread += same  # one of them is broken: Pillow will say which, and read the others
        else:
            groups.append((same, into))
    return groups, unread


def decode_together(jpegs: Sequence[torch.Tensor], device: torch.device) -> list[torch.Tensor | None]:
    """Decode with torchvision; None for what it does not read."""
    if decode_jpeg is None:
        return [None] * len(jpegs)
    try:
        return list(decode_jpeg(list(jpegs), mode=ImageReadMode.RGB, device=device))
    except RuntimeError:
        if len(jpegs) == 1:
            return [None]
        middle = len(jpegs) // 2
        return decode_together(jpegs[:middle], device) + decode_together(jpegs[middle:], device)
