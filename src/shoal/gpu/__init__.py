"""Parts for handlers whose model runs on an accelerator: staging, decoding and replay, each right on a CPU too."""

from shoal.gpu.graphs import Graphs
from shoal.gpu.pictures import Pictures
from shoal.gpu.staging import Staging

__all__ = ["Graphs", "Pictures", "Staging"]
