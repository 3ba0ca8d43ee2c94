"""Which backend makes a model's program."""

from shoal.config.model import ModelConfig
from shoal.worker.backends import python
from shoal.worker.program import Program


def load(config: ModelConfig, worker: str) -> Program:
    """Make the program of a model by the rules its handler was written to; LoadFailed says what is wrong with it."""
    if config.flavour == "shoal":
        return python.load(config, worker)
    if config.flavour == "triton":
        from shoal.worker.backends import triton

        return triton.load(config, worker)
    from shoal.worker.backends import upstream  # late: models of our own kind start without it

    return upstream.load(config, worker)
