"""Staging: many bodies from the network become one batch on the device, through page-locked memory."""

import threading
from collections.abc import Sequence

import numpy as np
import torch

from shoal.errors import InvalidInput
from shoal.gpu.streams import own_stream

Body = bytes | bytearray | memoryview


class Staging:
    """Bodies that are one tensor each, of this shape and type, to a batch on the device.

    What comes in is copied once, side by side into page-locked memory, and leaves for the device as one piece. A
    thread has its own memory: what two stages stage at once cannot meet. The copy is one thread's: a team of them is
    no faster where other processes use the cores too, and waits for its slowest member.
    """

    def __init__(
        self, shape: Sequence[int], device: torch.device | str = "cpu", dtype: torch.dtype = torch.float32
    ) -> None:
        self.shape = tuple(shape)
        self.device = torch.device(device)
        self.dtype = dtype
        self.size = torch.Size(self.shape).numel() * dtype.itemsize
        self._own = threading.local()

    def __call__(self, bodies: Sequence[Body]) -> torch.Tensor | list[torch.Tensor | InvalidInput]:
        """Give the batch; where a body has another size, a list in which it is replaced by its error."""
        good = [body for body in bodies if len(body) == self.size]
        if len(good) == len(bodies):
            return self._batch(bodies)
        rows = iter(self._batch(good)) if good else iter(())
        return [next(rows) if len(body) == self.size else self._problem(body) for body in bodies]

    def _problem(self, body: Body) -> InvalidInput:
        return InvalidInput(
            f"the body has {len(body)} bytes; a tensor of shape {list(self.shape)} and type "
            f"{str(self.dtype).removeprefix('torch.')} has {self.size}"
        )

    def _batch(self, bodies: Sequence[Body]) -> torch.Tensor:
        if self.device.type != "cuda":
            return self._gather(bodies, torch.empty(len(bodies) * self.size, dtype=torch.uint8))
        with own_stream(self.device):
            return self._gather(bodies, self._locked(len(bodies))).to(self.device, non_blocking=True)

    def _gather(self, bodies: Sequence[Body], memory: torch.Tensor) -> torch.Tensor:
        for row, body in zip(memory.view(len(bodies), self.size).numpy(), bodies, strict=True):
            np.copyto(row, np.frombuffer(body, np.uint8))  # lets other threads run meanwhile
        return memory.view(self.dtype).view(len(bodies), *self.shape)

    def _locked(self, count: int) -> torch.Tensor:
        wanted = count * self.size
        memory: torch.Tensor | None = getattr(self._own, "memory", None)
        if memory is None or memory.numel() < wanted:
            memory = self._own.memory = torch.empty(wanted, dtype=torch.uint8, pin_memory=True)
        return memory[:wanted]
