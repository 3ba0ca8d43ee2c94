"""Nvjpeg: baseline JPEGs decoded by the GPU's own engines, on the caller's stream.

torchvision's decoder runs on a stream of its own with the priority of any other: beside a model that fills the GPU its
small kernels come last, and decoding takes as long again as inference. Here the stream is the caller's, who can give it
priority. The library comes with torch; where it is missing, or the GPU has no such engine, there is no decoder.
"""

import ctypes
import threading
from collections.abc import Sequence

import numpy as np
import torch

LIBRARIES = ("libnvjpeg.so.13", "libnvjpeg.so.12")
HARDWARE, RGB = 3, 3
IMAGE = np.dtype([("channel", np.uint64, 4), ("pitch", np.uint64, 4)])  # nvjpegImage_t
QUICK = {  # functions that only read a header: they are called without letting other threads run
    "nvjpegJpegStreamParseHeader": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_size_t, ctypes.c_void_p),
    "nvjpegDecodeBatchedSupported": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
    "nvjpegJpegStreamGetFrameDimensions": (ctypes.c_void_p, ctypes.c_void_p, ctypes.c_void_p),
}


class Nvjpeg:
    """One decoder; calls from several threads take turns."""

    def __init__(self) -> None:
        name = _name()
        self._library, quick = ctypes.CDLL(name), ctypes.PyDLL(name)
        for function, types in QUICK.items():
            getattr(quick, function).argtypes = types
        self._parse = quick.nvjpegJpegStreamParseHeader
        self._supported = quick.nvjpegDecodeBatchedSupported
        self._dimensions = quick.nvjpegJpegStreamGetFrameDimensions
        self._handle, self._state, self._stream = ctypes.c_void_p(), ctypes.c_void_p(), ctypes.c_void_p()
        self._check("nvjpegCreateEx", HARDWARE, None, None, 0, ctypes.byref(self._handle))
        self._check("nvjpegJpegStateCreate", self._handle, ctypes.byref(self._state))
        self._check("nvjpegJpegStreamCreate", self._handle, ctypes.byref(self._stream))
        self._lock = threading.Lock()
        self._size = 0  # of the batch it is prepared for

    def sizes(self, addresses: Sequence[int], lengths: Sequence[int]) -> list[tuple[int, int] | None]:
        """Give height and width of each body that the engines can decode; None for the others."""
        width, height, answer = ctypes.c_uint(), ctypes.c_uint(), ctypes.c_int()
        to_width, to_height, to_answer = map(ctypes.addressof, (width, height, answer))
        parse, supported, dimensions = self._parse, self._supported, self._dimensions
        handle, stream = self._handle, self._stream
        found: list[tuple[int, int] | None] = []
        with self._lock:
            for address, length in zip(addresses, lengths, strict=True):
                is_bad = (
                    parse(handle, address, length, stream)
                    or supported(handle, stream, to_answer)
                    or answer.value
                    or dimensions(stream, to_width, to_height)
                )
                found.append(None if is_bad else (height.value, width.value))
        return found

    def decode(self, addresses: Sequence[int], lengths: Sequence[int], into: torch.Tensor) -> None:
        """Decode bodies of one size into a tensor (bodies, 3, height, width), on the current stream."""
        count, channels, height, width = into.shape
        planes = np.arange(count * channels, dtype=np.uint64).reshape(count, channels) * np.uint64(height * width)
        images = np.zeros(count, IMAGE)
        images["channel"][:, :channels] = planes + np.uint64(into.data_ptr())
        images["pitch"][:, :channels] = width
        bodies, sizes = np.array(addresses, np.uint64), np.array(lengths, np.uint64)
        pointers = [ctypes.c_void_p(array.ctypes.data) for array in (bodies, sizes, images)]
        stream = ctypes.c_void_p(torch.cuda.current_stream(into.device).cuda_stream)
        with self._lock:
            size, self._size = self._size, 0  # after a failure it is prepared anew
            if size != count:
                self._check("nvjpegDecodeBatchedInitialize", self._handle, self._state, count, 1, RGB)
            self._check("nvjpegDecodeBatched", self._handle, self._state, *pointers, stream)
            self._size = count

    def _check(self, name: str, *arguments: object) -> None:
        if status := getattr(self._library, name)(*arguments):
            raise RuntimeError(f"{name} gave status {status}")


def _name() -> str:
    for name in LIBRARIES:
        try:
            ctypes.CDLL(name)
        except OSError:
            continue
        return name
    raise RuntimeError(f"none of {', '.join(LIBRARIES)} is installed")
