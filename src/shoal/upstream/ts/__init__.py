"""TorchServe's package as its handlers see it."""

__version__ = "0.12.0"
