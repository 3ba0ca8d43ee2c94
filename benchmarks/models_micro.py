"""A TorchServe handler that reads photographs, with and without micro-batches; `benchmarks.seeds` packs it.

Its model-config.yaml says `handler: {depth, size, buckets}` and, for micro-batches, `micro_batching`.
"""

from typing import Any

import torch
from resnet import resnet  # type: ignore[import-not-found]  # examples/resnet.py, which is packed beside it
from ts.handler_utils.micro_batching import MicroBatching  # type: ignore[import-not-found]

from shoal.gpu import Graphs, Pictures


class Photos:
    """A JPEG in, the number of its class out."""

    def initialize(self, context: Any) -> None:
        """Make the network; its weights are random."""
        settings = context.model_yaml_config
        given = settings["handler"]
        size = given["size"]
        device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.set_num_threads(1)
        dtype = torch.float32 if device == "cpu" else torch.float16
        self.pictures = Pictures("cpu", dtype, resize=size * 8 // 7, crop=size, threads=1)
        self.model = Graphs(
            resnet(given["depth"]),
            (3, size, size),
            device,
            dtype,
            channels_last=True,
            fused=True,
            buckets=given["buckets"],
        )
        if micro := settings.get("micro_batching"):
            self.handle = MicroBatching(self, micro["micro_batch_size"], micro["parallelism"])  # type: ignore[method-assign]

    def preprocess(self, data: list[dict[str, Any]]) -> Any:
        """Read the photographs."""
        return self.pictures([row.get("data") or row["body"] for row in data])

    def inference(self, batch: Any) -> list[int]:
        """Run the network."""
        labels: list[int] = self.model(batch).argmax(1).tolist()
        return labels

    def postprocess(self, labels: list[int]) -> list[int]:
        """Answer with the numbers."""
        return labels

    def handle(self, data: list[dict[str, Any]], context: Any) -> list[int]:
        """One step after the other."""
        return self.postprocess(self.inference(self.preprocess(data)))
