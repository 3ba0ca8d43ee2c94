"""A model that takes a little more memory with every request, and can lose its device."""

import os
import sys
from types import SimpleNamespace
from typing import Any

import shoal


class Wearing:
    def initialize(self, context: shoal.Context) -> None:
        switch = context.parameters.get("switch", "")
        if switch and os.path.exists(switch):
            raise RuntimeError("it does not come up any more")
        self.kept: list[bytearray] = []
        if context.parameters.get("fills_device"):  # a stand-in for torch on a GPU, whose memory fills up
            cuda = SimpleNamespace(is_initialized=lambda: True, memory_reserved=lambda: 2**20 * len(self.kept))
            sys.modules["torch"] = SimpleNamespace(cuda=cuda)  # type: ignore[assignment]  # as much of it as is asked

    def inference(self, data: list[Any]) -> list[Any]:
        for item in data:
            self.kept.append(bytearray(64 * 1024))
            if bytes(item) == b"lose the device":
                lose()
        return data


def lose() -> None:
    raise RuntimeError("CUDA error: device-side assert triggered")
