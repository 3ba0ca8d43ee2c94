"""A bare model: batches go through the worker's own reading, stages and writing, and no front process is there."""

import gc
import socket
import sys
from collections.abc import Sequence
from typing import Protocol

import msgspec

from shoal import heap
from shoal.config.kinds import convert
from shoal.config.model import ModelConfig
from shoal.errors import LoadFailed
from shoal.payload import Buffer
from shoal.tools.samples import Sample
from shoal.tools.words import Load, Unloadable
from shoal.wire.channel import BlockingChannel
from shoal.wire.messages import Item, PartHead, Run
from shoal.worker.backends import choice
from shoal.worker.batch import Batch
from shoal.worker.pipeline import Inline
from shoal.worker.program import Program
from shoal.worker.template import die_with


class Ear(Protocol):
    """Hears what a front process would."""

    is_gone: bool

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        """Take a report of the pipeline."""
        ...


def channel_of_parent() -> BlockingChannel:
    """Give the way to the tool whose process we are, which is not outlived: SOCKET_FD and PARENT_PID are our words.

    Memory is kept as a worker keeps it.
    """
    fd, parent = map(int, sys.argv[1:3])
    die_with(parent)
    heap.keep(heap.WORKER)
    heap.share()
    return BlockingChannel(socket.socket(fileno=fd))


def loaded(channel: BlockingChannel, load: Load, purpose: str) -> Program | None:
    """Load the model that the first word names; None where it cannot be, which the tool is told."""
    try:
        program = choice.load(convert(load.config, ModelConfig), purpose)
    except LoadFailed as error:
        channel.send(Unloadable(str(error), error.traceback))
        return None
    gc.collect()
    gc.freeze()  # as a worker does: to look through a loaded model takes long
    return program


def pipeline_of(program: Program) -> Inline:
    """Give what runs batches of a program one after the other; nobody counts or cancels them."""
    return Inline(program, None, lambda batch: None, lambda: None)


def batch_of(samples: Sequence[Sample], ear: Ear) -> Batch:
    """Make a batch of samples, as a front process would send it."""
    items = [Item([PartHead("body", sample.content_type, len(sample.body))]) for sample in samples]
    return Batch(Run(1, 0, items), memoryview(b"".join(sample.body for sample in samples)), ear)
