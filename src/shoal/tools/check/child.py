"""The process that holds the model while it is checked: user code stays out of the tool, and its death is a result.

Batches go through the worker's own reading, stages and writing, and what a front process would hear is held against
what each sample was told alone.
"""

from collections.abc import Sequence

import msgspec

from shoal.payload import Buffer
from shoal.tools.bare import batch_of, channel_of_parent, loaded, pipeline_of
from shoal.tools.check.judge import Heard, Judge
from shoal.tools.check.messages import Loaded, LoadToJudge, RunThese, Verdict, Verdicts, decode_order
from shoal.tools.samples import Sample
from shoal.wire.messages import Answered, Ended, Failure, Piece, Pieces
from shoal.worker.program import Program
from shoal.worker.proof import Tolerance

ALIKE = "all samples have one answer"  # the text of a batch's first verdict, where mixing them up could not be seen
NOTHING = Failure("handler", "it got no answer at all")


def main() -> None:
    """Entry point: SOCKET_FD PARENT_PID."""
    channel = channel_of_parent()
    received = channel.receive()
    load = decode_order(received[0]) if received else None
    if not isinstance(load, LoadToJudge):
        return
    program = loaded(channel, load, "check")
    if program is None:
        return
    channel.send(Loaded(program.handler))
    bench = Bench(program, load.samples, Judge(Tolerance(load.relative, load.absolute)))
    while received := channel.receive():
        order = decode_order(received[0])
        if isinstance(order, RunThese):
            channel.send(bench.run(order.samples))


class Bench:
    """Runs batches of one program and judges them."""

    def __init__(self, program: Program, samples: Sequence[Sample], judge: Judge) -> None:
        self._pipeline = pipeline_of(program)
        self._samples = samples
        self._judge = judge

    def run(self, numbers: Sequence[int]) -> Verdicts:
        """Run one batch; of no samples: say whether their answers can be told apart."""
        if not numbers:
            return Verdicts([Verdict("same", "" if self._judge.are_told_apart() else ALIKE)])
        chosen = [self._samples[number] for number in numbers]
        ear = Ear(len(chosen))
        self._pipeline.submit(batch_of(chosen, ear))
        return Verdicts([self._judge.judge(number, heard) for number, heard in zip(numbers, ear.heard(), strict=True)])


class Ear:
    """Hears what a front process would; a stream counts as the sum of its pieces."""

    is_gone = False

    def __init__(self, count: int) -> None:
        self._bodies = [bytearray() for _ in range(count)]
        self._heads: list[Piece | None] = [None] * count
        self._failures: list[Failure | None] = [None] * count
        self._failure: Failure | None = None

    def send(self, message: msgspec.Struct, data: Sequence[Buffer] = ()) -> None:
        """Take a report of the pipeline."""
        if isinstance(message, Answered):
            count, types = len(message.sizes), message.content_types
            kinds = types if len(types) == count else types * count
            heads = enumerate(zip(message.sizes, kinds, strict=True))
            self._take([Piece(index, True, size, kind) for index, (size, kind) in heads], data)
        elif isinstance(message, Pieces):
            self._take(message.pieces, data)
        elif isinstance(message, Ended):
            self._failure = message.failure

    def _take(self, pieces: Sequence[Piece], data: Sequence[Buffer]) -> None:
        whole = memoryview(b"".join(bytes(each) for each in data))
        at = 0
        for piece in pieces:
            self._bodies[piece.index] += whole[at : at + piece.size]
            at += piece.size
            self._failures[piece.index] = self._failures[piece.index] or piece.failure
            self._heads[piece.index] = self._heads[piece.index] or piece

    def heard(self) -> list[Heard]:
        """Give what each place was told."""
        return [self._at(place) for place in range(len(self._bodies))]

    def _at(self, place: int) -> Heard:
        head, failure = self._heads[place], self._failures[place]
        if failure is not None or head is None:
            return failure or self._failure or NOTHING
        return bytes(self._bodies[place]), head.content_type, head


if __name__ == "__main__":
    main()
