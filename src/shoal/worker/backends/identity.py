"""The identity backend: outputs are inputs, in the order of the configuration; slow on request."""

import time
from collections.abc import Sequence
from typing import Any

from shoal.config.model import ModelConfig
from shoal.errors import LoadFailed
from shoal.worker.backends import tensors, triton
from shoal.worker.backends.tensors import Call, Tensors
from shoal.worker.program import Program, Stage


def load(config: ModelConfig) -> Program:
    """Make the program of an identity model."""
    interface = config.interface
    if interface is None or len(interface.inputs) != len(interface.outputs):
        raise LoadFailed(f"model {config.name!r} of the identity backend needs as many outputs as inputs")
    for given, taken in zip(interface.inputs, interface.outputs, strict=True):
        if given.datatype != taken.datatype:
            raise LoadFailed(
                f"model {config.name!r}: output '{taken.name}' must be {given.datatype} as input '{given.name}' is, "
                f"got {taken.datatype}"
            )
    names = [(given.name, taken.name) for given, taken in zip(interface.inputs, interface.outputs, strict=True)]
    batches = Tensors()
    milliseconds = triton.number(config.settings, "execute_delay_ms", 0)
    multiplier = triton.number(config.settings, "instance_wise_delay_multiplier", 0)

    def wait(calls: list[Call]) -> list[Call]:
        times = multiplier * max(batches.instance, 1) if multiplier else 1
        time.sleep(milliseconds * times / 1000)
        return calls

    stages = (
        Stage("preprocess", "identity (reading)", _as_they_are, gives_rows=False),
        Stage("inference", "identity", wait, gives_rows=False),
        Stage("postprocess", "identity (writing)", lambda calls: _answers(calls, names), gives_rows=True),
    )
    return Program("identity", stages, tensors.read, batches, wants_headers=True)


def _as_they_are(calls: list[Call]) -> list[Call]:
    return calls


def _answers(calls: Sequence[Call], names: Sequence[tuple[str, str]]) -> list[Any]:
    return [
        tensors.answer(
            [
                (output, received.datatype, received.shape, received.data)
                for given, output in names
                if call.wants(output) and (received := call.inputs.get(given)) is not None
            ]
        )
        for call in calls
    ]
