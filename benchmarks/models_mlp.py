"""A model whose cost per item falls with the batch on a CPU: a wide MLP, where reading the weights is the work."""

import numpy

import shoal

WIDTH, LAYERS = 2048, 3


class Mlp(shoal.Handler):
    """Three layers of 2048, random weights, one thread."""

    def initialize(self, context: shoal.Context) -> None:
        """Draw the weights."""
        draw = numpy.random.default_rng(0)
        self.weights = [draw.standard_normal((WIDTH, WIDTH), dtype=numpy.float32) * 0.02 for _ in range(LAYERS)]

    def handle(self, data: list[dict[str, bytes]], context: shoal.Context) -> list[dict[str, float]]:
        """Run the whole batch at once; the first value of each row's output is its answer."""
        rows = numpy.stack([numpy.resize(numpy.frombuffer(row["body"], numpy.uint8), WIDTH) for row in data])
        out = rows.astype(numpy.float32) / 255
        for weights in self.weights:
            out = numpy.maximum(out @ weights, 0)
        return [{"value": float(value)} for value in out[:, 0]]
