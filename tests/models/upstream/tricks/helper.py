"""Values of every kind that a handler may give."""

from collections.abc import Callable
from typing import Any


def a_tensor() -> Any:
    import torch

    return torch.tensor([1.0, 2.0])


def a_numpy_number() -> Any:
    import numpy

    return numpy.float32(1)


KINDS: dict[str, Callable[[], Any]] = {
    "bytes": lambda: b"\x00\xff",
    "bytearray": lambda: bytearray(b"array"),
    "text": lambda: "caf\u00e9",
    "none": lambda: None,
    "number": lambda: 7,
    "nested": lambda: {"a": {"b": [1, 2.5, True]}, "\u00e9": []},
    "nan": lambda: [float("nan")],
    "object": object,
    "set": lambda: {1},
    "tensor": a_tensor,
    "numpy": a_numpy_number,
    "long": lambda: "x" * 1000,
}
