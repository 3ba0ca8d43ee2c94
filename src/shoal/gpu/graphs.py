"""Graphs: a model whose kernels are recorded once for each bucket of rows and replayed without Python in between."""

import threading
from collections.abc import Callable, Sequence

import torch
from torch.jit.frontend import FrontendError

from shoal.gpu.streams import own_stream

BUCKETS = (1, 2, 4, 8, *range(16, 129, 16), *range(160, 257, 32))
WARM_UP = 3  # runs before recording: libraries choose their kernels and allocate in them


class Graphs:
    """A model of one batched input and one batched output. On a CPU it is simply called.

    A batch is padded to the next bucket; what the padding gives is cut off. More rows than the largest bucket run in
    several rounds. Calls may come from several threads: each batch goes through whole before the next. On a GPU `fused`
    makes one kernel of a convolution and what follows it; TorchScript must be able to compile the model.
    """

    def __init__(
        self,
        model: Callable[[torch.Tensor], torch.Tensor],
        shape: Sequence[int],
        device: torch.device | str = "cpu",
        dtype: torch.dtype = torch.float32,
        *,
        channels_last: bool = False,
        fused: bool = False,
        buckets: Sequence[int] = BUCKETS,
    ) -> None:
        self.device = torch.device(device)
        self.dtype = dtype
        self.buckets = sorted(set(buckets))
        if not self.buckets or self.buckets[0] < 1:
            raise ValueError(f"buckets are numbers of rows, 1 or more, got {list(buckets)}")
        self._format = torch.channels_last if channels_last else torch.contiguous_format
        if isinstance(model, torch.nn.Module):
            model.eval().to(self.device, dtype).to(memory_format=self._format)  # type: ignore[call-overload]
            if fused and self.device.type == "cuda":
                model = fuse(model)
        self._model = model
        self._lock = threading.Lock()
        self._recorded: dict[int, tuple[torch.cuda.CUDAGraph, torch.Tensor, torch.Tensor]] = {}
        if self.device.type == "cuda":
            self._record(tuple(shape))

    def __call__(self, batch: torch.Tensor | Sequence[torch.Tensor]) -> torch.Tensor:
        """Run the model on a batch; rows given one by one are stacked first. The output is complete when it returns."""
        rows = batch if isinstance(batch, torch.Tensor) else torch.stack(list(batch))
        with torch.inference_mode():
            if not self._recorded:
                return self._model(rows.to(self.device, self.dtype, memory_format=self._format))
            with self._lock, own_stream(self.device):
                largest = self.buckets[-1]
                outputs = [self._replay(rows[start : start + largest]) for start in range(0, len(rows), largest)]
                return outputs[0] if len(outputs) == 1 else torch.cat(outputs)

    def _replay(self, rows: torch.Tensor) -> torch.Tensor:
        count = len(rows)
        graph, static_input, static_output = self._recorded[next(size for size in self.buckets if size >= count)]
        static_input[:count].copy_(rows, non_blocking=True)
        graph.replay()
        return static_output[:count].clone()

    def _record(self, shape: tuple[int, ...]) -> None:
        pool = None
        with torch.inference_mode(), own_stream(self.device):
            for size in reversed(self.buckets):  # the largest first: the others fit into its memory
                example = torch.zeros(size, *shape, device=self.device, dtype=self.dtype)
                if len(shape) == 3:
                    example = example.to(memory_format=self._format)
                for _ in range(WARM_UP):
                    self._model(example)
                torch.cuda.synchronize(self.device)
                graph = torch.cuda.CUDAGraph()
                with torch.cuda.graph(graph, pool=pool, stream=torch.cuda.current_stream(self.device)):
                    output = self._model(example)
                pool = pool or graph.pool()
                self._recorded[size] = (graph, example, output)


def fuse(model: torch.nn.Module) -> torch.nn.Module:
    """Fold norms into their convolutions, and additions and ReLUs into the same kernels."""
    try:
        script = model if isinstance(model, torch.jit.ScriptModule) else torch.jit.script(model)
    except (RuntimeError, FrontendError) as error:
        name = type(model).__name__
        raise ValueError(
            f"{name} cannot be fused, TorchScript does not compile it; leave `fused` out: {error}"
        ) from error
    made: torch.nn.Module = torch.jit.optimize_for_inference(script)
    return made
