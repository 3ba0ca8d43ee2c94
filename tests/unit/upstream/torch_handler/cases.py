"""Pictures, models and calls that our handlers and TorchServe's are both given; `record.py` keeps what those answer."""

import base64
import io
import json
import math
from collections.abc import Mapping
from pathlib import Path
from types import MappingProxyType
from typing import Any, NamedTuple

import torch
from PIL import Image

DATA = Path(__file__).parent / "data"


def picture(mode: str, width: int, height: int) -> Image.Image:
    """A picture with edges, slopes and noise, the same on every machine."""
    values = bytes(
        (x * 7 + y * 13 + channel * 61 + (x * y * 31 + channel) % 97 + (90 if (x // 5 + y // 7) % 2 else 0)) % 256
        for y in range(height)
        for x in range(width)
        for channel in range(3)
    )
    image = Image.frombytes("RGB", (width, height), values)
    if mode == "I;16":
        numbers = b"".join(((i * 977) % 65536).to_bytes(2, "little") for i in range(width * height))
        return Image.frombytes("I;16", (width, height), numbers)
    if mode == "P":
        return image.quantize(16, method=Image.Quantize.MAXCOVERAGE, dither=Image.Dither.NONE)
    return image.convert(mode)


def encoded(mode: str = "RGB", width: int = 40, height: int = 30, form: str = "PNG") -> bytes:
    """The picture as a file."""
    file = io.BytesIO()
    picture(mode, width, height).save(file, form)
    return file.getvalue()


class Transformed(NamedTuple):
    """One transform of one picture."""

    name: str
    steps: str  # evaluated with T, the transforms
    mode: str
    width: int
    height: int
    as_tensor: bool = False


_STANDARD = "T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor()])"
_NORMAL = (
    "T.Compose([T.Resize(256), T.CenterCrop(224), T.ToTensor(), T.Normalize([.485, .456, .406], [.229, .224, .225])])"
)
TRANSFORMED = [
    *(
        Transformed(f"normal {w}x{h}", _NORMAL, "RGB", w, h)
        for w, h in [(40, 30), (30, 40), (301, 257), (5, 5), (90, 1)]
    ),
    *(
        Transformed(f"standard {mode} {w}x{h}", _STANDARD, mode, w, h)
        for mode in ("L", "RGBA", "P", "CMYK", "LA", "1", "I;16", "F", "I", "YCbCr")
        for w, h in [(37, 53)]
    ),
    Transformed("one pixel", _STANDARD, "RGB", 1, 1),
    Transformed("one pixel high, palette", _STANDARD, "P", 50, 1),
    *(
        Transformed(f"crop {size} of {w}x{h} {mode}", f"T.Compose([T.CenterCrop({size}), T.ToTensor()])", mode, w, h)
        for size, w, h, mode in [
            (20, 27, 33, "RGB"),
            (20, 33, 27, "L"),
            (20, 15, 12, "RGB"),
            (21, 14, 40, "P"),
            (21, 40, 14, "RGBA"),
            ((7, 12), 12, 7, "RGB"),
            ((11, 6), 14, 15, "RGB"),
        ]
    ),
    *(
        Transformed(f"resize {said} of {w}x{h}", f"T.Compose([T.Resize({said}), T.ToTensor()])", "RGB", w, h)
        for said, w, h in [
            ("17", 31, 23),
            ("[17]", 23, 31),
            ("(9, 21)", 31, 23),
            ("16, max_size=20", 40, 20),
            ("16, max_size=20", 20, 41),
            ("16, interpolation=T.InterpolationMode.BICUBIC", 31, 23),
            ("16, interpolation=T.InterpolationMode.NEAREST", 31, 23),
            ("16, interpolation=T.InterpolationMode.LANCZOS", 31, 23),
            ("23", 31, 23),
        ]
    ),
    *(
        Transformed(f"tensor {said} of {w}x{h}", f"T.Compose([{said}])", "RGB", w, h, as_tensor=True)
        for said, w, h in [
            ("T.Resize(17)", 31, 23),
            ("T.Resize(40)", 31, 23),
            ("T.Resize(17, antialias=False)", 31, 23),
            ("T.Resize(17, interpolation=T.InterpolationMode.BICUBIC)", 31, 23),
            ("T.Resize(17, interpolation=T.InterpolationMode.NEAREST)", 31, 23),
            ("T.CenterCrop(20)", 31, 15),
            ("T.CenterCrop((13, 40))", 31, 22),
            ("T.Normalize([.5], [.25])", 9, 8),
        ]
    ),
]


def summary(tensor: torch.Tensor) -> dict[str, Any]:
    """What is kept of a tensor: its shape, its sum, and numbers from all over it."""
    flat = tensor.double().flatten()
    places = [int(flat.numel() * (i * 0.6180339887 % 1)) for i in range(24)]
    weights = torch.arange(flat.numel(), dtype=torch.float64).mul(0.37).sin()
    return {
        "shape": list(tensor.shape),
        "dtype": str(tensor.dtype),
        "sum": float(flat.sum()),
        "weighted": float((flat * weights).sum()),  # a pixel out of its place shows here
        "values": [float(flat[place]) for place in places],
    }


def transformed(case: Transformed, transforms: Any) -> torch.Tensor:
    image: Any = picture(case.mode, case.width, case.height)
    if case.as_tensor:
        image = transforms.ToTensor()(image)
    return eval(case.steps, {"T": transforms})(image)  # type: ignore[no-any-return]


MODEL_FILES = {
    "classifier.py": """
import torch
from torch import nn


class Residual(nn.Module):
    def __init__(self):
        super().__init__()
        self.stem = nn.Conv2d(3, 8, 7, stride=8)
        self.norm = nn.BatchNorm2d(8)
        self.body = nn.Conv2d(8, 8, 3, padding=1)
        self.fc = nn.Linear(8, 7)

    def forward(self, x):
        x = torch.relu(self.norm(self.stem(x)))
        x = torch.relu(x + self.body(x))
        return self.fc(x.mean((2, 3)))
""",
    "segmenter.py": """
from collections import OrderedDict
from torch import nn


class Segmenter(nn.Module):
    def __init__(self):
        super().__init__()
        self.conv = nn.Conv2d(3, 4, 1)

    def forward(self, x):
        return OrderedDict(out=self.conv(x), aux=x)
""",
    "detector.py": """
import torch
from torch import nn


class Detector(nn.Module):
    def __init__(self):
        super().__init__()
        self.scores = nn.Parameter(torch.zeros(4))

    def forward(self, images):
        return [
            {
                "boxes": torch.arange(16.0).reshape(4, 4) * image.mean(),
                "labels": torch.tensor([1, 2, 3, 1]),
                "scores": torch.tensor([0.9, 0.5, 0.49, 0.7]) + self.scores * 0,
            }
            for image in images
        ]
""",
    "words.py": """
from torch import nn


class Words(nn.Module):
    def __init__(self):
        super().__init__()
        self.embedding = nn.EmbeddingBag(40, 4)
        self.fc = nn.Linear(4, 3)

    def forward(self, text, offsets):
        return self.fc(self.embedding(text, offsets))
""",
}
VOCABULARY = {
    word: number for number, word in enumerate(["<unk>", "the", "cat", "sat", "is", "not", "the cat", "cat sat"])
}


def write_model(folder: Path, name: str, *, script: bool = False) -> dict[str, str]:
    """Put a model and its weights, the same on every machine, into a folder; gives its lines of the manifest."""
    source = MODEL_FILES[f"{name}.py"]
    scope: dict[str, Any] = {"__name__": f"cases_{name}"}
    (folder / f"{name}.py").write_text(source)
    if script:  # torch reads the source again
        import importlib.util

        spec = importlib.util.spec_from_file_location(f"cases_{name}", folder / f"{name}.py")
        assert spec is not None and spec.loader is not None
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        scope = vars(module)
    else:
        exec(source, scope)
    kind = next(value for value in scope.values() if isinstance(value, type) and value.__module__ == f"cases_{name}")
    model = kind().eval()
    with torch.no_grad():
        for order, parameter in enumerate(model.parameters()):
            steps = torch.arange(parameter.numel(), dtype=torch.float64)
            parameter.copy_((steps * 1.7 + order).sin().reshape(parameter.shape) / math.sqrt(parameter.shape[-1] + 1))
    if script:
        torch.jit.script(model).save(str(folder / f"{name}.pt"))
        return {"serializedFile": f"{name}.pt"}
    torch.save(model.state_dict(), folder / f"{name}.pth")
    return {"modelFile": f"{name}.py", "serializedFile": f"{name}.pth"}


class Called(NamedTuple):
    """One batch for one handler."""

    name: str
    handler: str  # the module of ts.torch_handler
    model: str
    rows: list[dict[str, Any]]
    labels: Any = None
    headers: Mapping[str, str] = MappingProxyType({})
    attributes: Mapping[str, Any] = MappingProxyType({})
    script: bool = False


_BASE64 = base64.b64encode(encoded()).decode()
CALLED = [
    Called(
        "classify bytes",
        "image_classifier",
        "classifier",
        [{"data": encoded()}, {"body": bytearray(encoded("RGB", 31, 77))}],
    ),
    Called("classify TorchScript", "image_classifier", "classifier", [{"data": encoded()}], script=True),
    Called("classify base64", "image_classifier", "classifier", [{"data": _BASE64}]),
    Called("classify JPEG", "image_classifier", "classifier", [{"data": encoded("RGB", 300, 260, "JPEG")}]),
    Called(
        "classify numbers",
        "image_classifier",
        "classifier",
        [{"body": [[[0.5] * 16] * 16, [[0.1] * 16] * 16, [[1] * 16] * 16]}],
    ),
    Called("top 2", "image_classifier", "classifier", [{"data": encoded()}], attributes={"topk": 2}),
    Called(
        "labels",
        "image_classifier",
        "classifier",
        [{"data": encoded()}],
        {str(i): ["n0", f"kind {i}"] for i in range(7)},
    ),
    Called(
        "explain", "image_classifier", "classifier", [{"data": encoded(), "target": 3}], headers={"explain": "True"}
    ),
    Called("explain two", "image_classifier", "classifier", [{"data": encoded()}] * 2, headers={"explain": "True"}),
    Called("segment", "image_segmenter", "segmenter", [{"data": encoded()}, {"data": encoded("RGB", 60, 44)}]),
    Called("detect", "object_detector", "detector", [{"data": encoded()}] * 2),
    Called(
        "detect labels",
        "object_detector",
        "detector",
        [{"body": encoded()}],
        {"object_type_names": ["-", "cat", "dog", "cow"]},
    ),
    Called("detect 0.8", "object_detector", "detector", [{"data": encoded()}], attributes={"threshold": 0.8}),
    Called("detect none", "object_detector", "detector", [{"data": encoded()}], attributes={"threshold": 0.95}),
    Called("text", "text_classifier", "words", [{"data": "The <b>cat</b> sat!"}]),
    Called(
        "text bytes",
        "text_classifier",
        "words",
        [{"body": bytearray(b"The c\xc3\xa1t isn't")}],
        {"0": "a", "1": "b", "2": "c"},
    ),
    Called("text of one word", "text_classifier", "words", [{"data": "cat"}], attributes={"ngrams": 1}),
    Called(
        "text explain", "text_classifier", "words", [{"data": "the cat sat", "target": 2}], headers={"explain": "True"}
    ),
]


def prepare(folder: Path, case: Called) -> dict[str, str]:
    """The folder of a model for this call; gives its lines of the manifest."""
    if case.labels is not None:
        (folder / "index_to_name.json").write_text(json.dumps(case.labels))
    if case.handler == "text_classifier":
        torch.save(VOCABULARY, folder / "source_vocab.pt")
    return write_model(folder, case.model, script=case.script)


def kept(answers: list[Any]) -> Any:
    """Answers as they are kept: large ones as a summary."""
    if answers[0] and isinstance(answers[0], list) and isinstance(answers[0][0], list):
        return summary(torch.tensor(answers))
    return answers


CLEANED = [
    "I can't've done it; y'all'd've, HE'LL've and won't: o'clock 'cause ma'am shan't sha'n't",
    "It's John's: they're what're we'd've how'd'y so's let's there'd where'd who'll've",
    "Don't DON'T dOn't here's she'd the'd isn't ain't needn't mustn't've",
    "<p>Caf\u00e9 na\u00efve &amp; \u00c5ngstr\u00f6m</p> &#39;x&#39; &#x27; a<b \u65e5\u672c \ufb01ne x\u00b2",
    'He said: "hi" (ok); a.b,c! d? e-f <br />g  h\ti\nj',
    "I've I'd i'm You've to've might've must've why've when's",
]
CLEANERS = [
    "_expand_contractions",
    "_remove_html_tags",
    "_remove_accented_characters",
    "_remove_punctuation",
    "_tokenize",
]
