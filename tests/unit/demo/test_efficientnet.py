"""Folding batch norms and the shape of the graph; `onnx` is needed to build it."""

import numpy as np
import pytest

pytest.importorskip("onnx")

from shoal.demo.efficientnet import BATCH_NORM_EPSILON, STAGES, fold


def test_a_folded_convolution_does_what_the_two_did() -> None:
    random = np.random.default_rng(0)
    weights = {
        "conv.weight": random.normal(size=(4, 3, 1, 1)).astype(np.float32),
        "norm.weight": random.normal(size=4).astype(np.float32),
        "norm.bias": random.normal(size=4).astype(np.float32),
        "norm.running_mean": random.normal(size=4).astype(np.float32),
        "norm.running_var": random.uniform(0.1, 2, size=4).astype(np.float32),
    }
    pixel = random.normal(size=3).astype(np.float32)
    plain = weights["conv.weight"][:, :, 0, 0] @ pixel
    normed = (plain - weights["norm.running_mean"]) / np.sqrt(weights["norm.running_var"] + BATCH_NORM_EPSILON)
    kernel, bias = fold(weights, "conv", "norm")
    expected = normed * weights["norm.weight"] + weights["norm.bias"]
    np.testing.assert_allclose(kernel[:, :, 0, 0] @ pixel + bias, expected, rtol=1e-5, atol=1e-5)


def test_the_network_has_sixteen_blocks() -> None:
    assert sum(stage.blocks for stage in STAGES) == 16
