"""Which parts of an input an answer rests on: integrated gradients, by captum where it is installed, else by these.

Gradients are averaged along the straight way from a baseline to the input, at the points of Gauss-Legendre quadrature,
and multiplied by the difference of the two.
"""

import importlib
from typing import Any

import numpy
import torch
from torch import Tensor


def integrated_gradients(model: Any) -> Any:
    """An object whose `attribute(inputs, target=..., n_steps=...)` explains an answer of the model."""
    return _captum("IntegratedGradients", IntegratedGradients)(model)


def layer_integrated_gradients(model: Any, layer: Any) -> Any:
    """The same, for the output of one layer: tokens have no gradient, their embedding has."""
    return _captum("LayerIntegratedGradients", LayerIntegratedGradients)(model, layer)


def _captum(name: str, own: Any) -> Any:
    try:
        return getattr(importlib.import_module("captum.attr"), name)
    except ImportError:
        return own


class IntegratedGradients:
    """How much each number of the input adds to one class."""

    def __init__(self, forward_func: Any) -> None:
        self.forward_func = forward_func

    def attribute(self, inputs: Tensor, baselines: Any = 0, target: Any = None, n_steps: int = 50) -> Tensor:
        """A tensor shaped like the inputs; the baseline is black unless another is given."""
        start = torch.zeros_like(inputs) if baselines is None else torch.zeros_like(inputs) + baselines
        gradient = torch.zeros_like(inputs)
        for point, weight in _points(n_steps):
            at = (start + point * (inputs - start)).detach().requires_grad_()
            with torch.enable_grad():
                chosen = _of_class(self.forward_func(at), target)
            gradient += weight * torch.autograd.grad(chosen.sum(), at)[0]
        return gradient * (inputs - start)


class LayerIntegratedGradients:
    """How much each number that a layer puts out adds to one class."""

    def __init__(self, forward_func: Any, layer: torch.nn.Module) -> None:
        self.forward_func = forward_func
        self.layer = layer

    def attribute(
        self,
        inputs: Tensor,
        baselines: Tensor,
        target: Any = None,
        additional_forward_args: Any = (),
        n_steps: int = 50,
    ) -> Tensor:
        """A tensor shaped like the output of the layer."""
        extra = additional_forward_args if isinstance(additional_forward_args, tuple) else (additional_forward_args,)
        with torch.no_grad():
            end, start = (self._layer_output(tokens, extra) for tokens in (inputs, baselines))
        gradient = torch.zeros_like(end)
        for point, weight in _points(n_steps):
            at = (start + point * (end - start)).detach().requires_grad_()
            with torch.enable_grad(), self._replaced(at):
                chosen = _of_class(self.forward_func(inputs, *extra), target)
            gradient += weight * torch.autograd.grad(chosen.sum(), at)[0]
        return gradient * (end - start)

    def _layer_output(self, tokens: Tensor, extra: tuple[Any, ...]) -> Tensor:
        seen: list[Tensor] = []
        with self.layer.register_forward_hook(lambda layer, given, output: seen.append(output)):
            self.forward_func(tokens, *extra)
        if not seen:
            raise TypeError("the layer was not called from Python: explanations need an eager model, not TorchScript")
        return seen[0]

    def _replaced(self, value: Tensor) -> Any:
        return self.layer.register_forward_hook(lambda layer, given, output: value)


def _points(steps: int) -> list[tuple[float, float]]:
    places, weights = numpy.polynomial.legendre.leggauss(steps)
    return [((1 + float(place)) / 2, float(weight) / 2) for place, weight in zip(places, weights, strict=True)]


def _of_class(output: Any, target: Any) -> Tensor:
    if not isinstance(output, Tensor) or output.ndim > 2:
        raise TypeError("explanations need a model that answers one row of class scores for each input")
    return output if output.ndim < 2 else output[:, target if target is not None else 0]
