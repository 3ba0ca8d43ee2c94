"""Warm-up: the samples of a configuration, run through the program before anybody may call it."""

from collections.abc import Sequence
from math import prod
from pathlib import Path, PurePath
from typing import Any

import msgspec
import numpy as np

from shoal import tensor
from shoal.config.model import ModelConfig
from shoal.errors import LoadFailed
from shoal.payload import Buffer
from shoal.wire.messages import Failure, Item, PartHead, Pieces, Run
from shoal.worker.backends import tensors
from shoal.worker.batch import Batch
from shoal.worker.pipeline import run_stages
from shoal.worker.program import Program

FOLDER = "warmup"  # in the model's folder
EMPTY_STRING = bytes(4)  # an element of no length


def run(config: ModelConfig, program: Program) -> None:
    """Run every sample on every instance; LoadFailed where one fails."""
    for sample in config.settings.get("model_warmup", []):
        items, data = requests(sample, config)
        for _ in range(int(sample.get("count", 0)) or 1):
            for instance in range(config.instances):
                if failure := _run(program, Run(0, instance, items), data):
                    name = sample.get("name", "")
                    raise LoadFailed(
                        f"warm-up sample {name!r} of model {config.name!r} failed: {failure.message}", failure.traceback
                    )


def requests(sample: dict[str, Any], config: ModelConfig) -> tuple[list[Item], bytes]:
    """Make the requests of a sample, `batch_size` of one row each, and the bytes behind them."""
    is_batched = config.interface is not None and config.interface.max_batch_size > 0
    heads, bodies = [], []
    for name, given in sample.get("inputs", {}).items():
        datatype = given["data_type"].removeprefix("TYPE_").replace("STRING", "BYTES")
        dims = [int(dim) for dim in given.get("dims", [])]
        body = _data(name, datatype, prod(dims), given, sample, config)
        shape = [1, *dims] if is_batched else dims
        heads.append(PartHead(name, tensor.part_type(datatype, shape), len(body)))
        bodies.append(body)
    count = max(1, int(sample.get("batch_size", 1)))
    return [Item(heads, b"warm-up") for _ in range(count)], b"".join(bodies) * count


def _data(
    name: str, datatype: str, count: int, given: dict[str, Any], sample: dict[str, Any], config: ModelConfig
) -> bytes:
    width = tensor.WIDTHS[datatype]
    if file := given.get("input_data_file"):
        return _read(str(file), name, sample, config)
    if given.get("random_data") and width:
        return _random(datatype, count)
    return bytes(width * count) if width else EMPTY_STRING * count


def _random(datatype: str, count: int) -> bytes:
    """Numbers that mean something: small integers, fractions between 0 and 1."""
    draw, dtype = np.random.default_rng(), tensors.DTYPES[datatype]
    if datatype == "BF16":
        return bytes((draw.random(count, np.float32).view(np.uint32) >> 16).astype(dtype))
    if datatype.startswith("FP"):
        return bytes(draw.random(count).astype(dtype))
    return bytes(draw.integers(0, 2 if datatype == "BOOL" else 128, count).astype(dtype))


def _read(file: str, name: str, sample: dict[str, Any], config: ModelConfig) -> bytes:
    path = PurePath(file)
    where = f"warm-up sample {sample.get('name', '')!r} of model {config.name!r}"
    if path.is_absolute() or ".." in path.parts:
        raise LoadFailed(f"{where}: input_data_file of '{name}' must lie in {FOLDER}/, got {file!r}")
    try:
        return (Path(config.path).absolute().parent / FOLDER / path).read_bytes()
    except OSError as error:
        raise LoadFailed(f"{where}: the data of '{name}' cannot be read: {error}") from error


def _run(program: Program, run: Run, data: bytes) -> Failure | None:
    ear = _Ear()
    batch = Batch(run, memoryview(data), ear)
    (cut,) = batch.slices(0)
    run_stages(cut, program.stages, program, None)
    if batch.failure is not None:
        return batch.failure
    return next((outcome for outcome in batch.outcomes if isinstance(outcome, Failure)), ear.failure)


class _Ear:
    """Hears what a stream of answers says."""

    is_gone = False

    def __init__(self) -> None:
        self.failure: Failure | None = None

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        """Keep the first failure."""
        if isinstance(message, Pieces):
            failures = [piece.failure for piece in message.pieces if piece.failure]
            self.failure = self.failure or next(iter(failures), None)
