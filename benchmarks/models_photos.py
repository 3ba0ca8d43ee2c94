"""ResNets from photographs in the server's own form, with no setting of their own: what `benchmarks.seeds` measures.

Parameters: `depth` of the network, `size` of its picture, `reading` (`cpu` or `device`: where JPEGs are decoded),
`readers` (threads that decode one batch; 0: as many as make sense), `buckets` (batch sizes recorded on a GPU).
"""

import runpy
from pathlib import Path
from typing import Any

import torch

import shoal
from shoal.gpu import Graphs, Pictures

NETWORKS = Path(__file__).parents[1] / "examples" / "resnet.py"


class Photos(shoal.Handler):
    """A JPEG in, the number of its class out."""

    def initialize(self, context: shoal.Context) -> None:
        """Make the network; its weights are random."""
        given = context.parameters
        depth, size = given.get("depth", 50), given.get("size", 224)
        device = "cuda" if torch.cuda.is_available() else "cpu"
        torch.set_num_threads(1)
        dtype = torch.float32 if device == "cpu" else torch.float16
        reading = device if given.get("reading") == "device" else "cpu"
        self.pictures = Pictures(reading, dtype, resize=size * 8 // 7, crop=size, threads=given.get("readers", 0))
        network = runpy.run_path(str(NETWORKS))["resnet"](depth)
        chosen: dict[str, Any] = {"buckets": given["buckets"]} if "buckets" in given else {}
        self.model = Graphs(network, (3, size, size), device, dtype, channels_last=True, fused=True, **chosen)

    def decode_batch(self, items: list[memoryview]) -> object:
        """Read the photographs."""
        return self.pictures(items)

    def inference(self, batch: torch.Tensor) -> list[int]:
        """Run the network."""
        labels: list[int] = self.model(batch).argmax(1).tolist()
        return labels
