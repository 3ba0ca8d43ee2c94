"""Who reads the commands of a model with stages: the thread of inference between lone batches, another meanwhile."""

import socket
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from shoal.config.model import MicroBatching
from shoal.errors import ProtocolError
from shoal.wire.channel import BlockingChannel
from shoal.wire.messages import Answered, Cancel, Run, Stop, decode_report
from shoal.worker.lead import Lead
from shoal.worker.link import Inbox, Outbox
from shoal.worker.main import Loop, leads
from shoal.worker.pipeline import FEW, run_stages
from tests.serving import eventually
from tests.unit.worker.making import Doubler, body_item, config, program

Act = Callable[["Worker", bytes], None]


def nothing_more(worker: "Worker", body: bytes) -> None:
    """Do nothing besides giving the body back."""


class Worker:
    """A loop whose model has stages, with the front process's end of its socket. Bodies are given back."""

    def __init__(self, act: Act = nothing_more, decode: Act = nothing_more) -> None:
        self.sockets = socket.socketpair()
        self.sockets[0].settimeout(20)
        self.front = BlockingChannel(self.sockets[0])
        self.error: BaseException | None = None
        worker = self

        class Handler:
            def decode(self, item: Any) -> Any:
                decode(worker, bytes(item))
                return item

            def inference(self, data: Any) -> Any:
                act(worker, bytes(data[0]))
                return data

        outbox = Outbox(self.sockets[1])
        made = config(), None, Inbox(self.sockets[1]), outbox, 0, run_stages
        self.loop = Loop(program(Handler()), *made)
        assert self.loop._lead is not None
        self.is_led = False  # the thread of inference reads the commands
        self._read, self.loop._lead._read = self.loop._lead._read, self._read_there
        self.loop.start()
        self.thread = threading.Thread(target=self._live, daemon=True)
        self.thread.start()

    def _live(self) -> None:
        try:
            self.loop.run()
        except BaseException as error:
            self.error = error

    def _read_there(self) -> None:
        self.is_led = True
        try:
            self._read()
        finally:
            self.is_led = False

    def send(self, number: int, *bodies: bytes) -> None:
        self.front.send(Run(number, 0, [body_item(len(body)) for body in bodies]), bodies)

    def answered(self) -> tuple[int, bytes]:
        """Wait for the answer to a batch; gives its number and what it says."""
        frame = self.front.receive()
        assert frame is not None
        message = decode_report(frame[0])
        assert isinstance(message, Answered), message
        return message.batch, bytes(frame[1])

    def begin(self) -> None:
        """Have lone batches answered until the thread of inference reads: it must know that answers are brief."""

        def is_led_after_one() -> bool:
            self.send(1000, b"lone")
            assert self.answered() == (1000, b"lone")
            return self.waits_to_be_led()

        eventually(is_led_after_one, "the thread of inference reads", within=20)

    def waits_to_be_led(self) -> bool:
        """Whether the thread of inference reads, or does so soon."""
        end = time.monotonic() + 0.1
        while not self.is_led and time.monotonic() < end:
            time.sleep(0.001)
        return self.is_led

    def is_over(self) -> None:
        self.thread.join(20)
        assert not self.thread.is_alive()
        for each in self.sockets:
            each.close()


@contextmanager
def working(*acts: Act) -> Iterator[Worker]:
    worker = Worker(*acts)
    yield worker
    worker.front.send(Stop())
    worker.is_over()
    assert worker.error is None


def test_between_lone_batches_the_thread_of_inference_reads() -> None:
    with working() as worker:
        assert not worker.is_led
        for number in range(5):
            worker.begin()
            worker.send(number, b"%d" % number)
            assert worker.answered() == (number, b"%d" % number)


def test_while_it_runs_the_other_one_reads() -> None:
    def hears(worker: Worker, body: bytes) -> None:
        if body == b"leaves":
            assert not worker.is_led
            worker.front.send(Cancel(7, 0))
            eventually(lambda: 0 in worker.loop._batches[7].cancelled, "word of the client that left", within=20)

    with working(hears) as worker:
        worker.begin()
        worker.send(7, b"leaves")
        assert worker.answered()[0] == 7


def test_the_next_batch_is_read_and_preprocessed_while_it_runs() -> None:
    together = threading.Barrier(2, timeout=20)

    def meets(body: bytes) -> Act:
        def act(worker: Worker, own: bytes) -> None:
            if own == body:
                together.wait()

        return act

    with working(meets(b"first"), meets(b"second")) as worker:
        worker.begin()
        worker.send(1, b"first")
        worker.send(2, b"second")
        assert [worker.answered(), worker.answered()] == [(1, b"first"), (2, b"second")]
        worker.begin()


def test_after_many_the_other_one_goes_on_to_read() -> None:
    with working() as worker:
        worker.begin()
        for number in range(3):
            worker.send(number, *[b"x"] * (FEW + 1))
            assert worker.answered() == (number, b"x" * (FEW + 1))
            assert not worker.is_led


def test_a_worker_that_is_told_to_stop_there_stops() -> None:
    with working() as worker:
        worker.begin()


def test_it_ends_with_the_stream() -> None:
    worker = Worker()
    worker.begin()
    worker.sockets[0].close()
    worker.is_over()
    assert worker.error is None


def test_nonsense_that_is_read_there_ends_the_loop_as_elsewhere() -> None:
    worker = Worker()
    worker.begin()
    worker.front.send(Run(1, 5, [body_item(1)]), [b"x"])
    worker.is_over()
    assert isinstance(worker.error, ProtocolError)
    assert "no number 5" in str(worker.error)


@settings(max_examples=30, deadline=None)
@given(batches=st.lists(st.tuples(st.integers(1, FEW + 2), st.booleans()), max_size=20))
def test_everybody_is_answered_once_whoever_reads(batches: list[tuple[int, bool]]) -> None:
    """Batches of any size, some sent once all before are answered, the others at once."""
    with working() as worker:
        expected: dict[int, bytes] = {}
        answers: list[tuple[int, bytes]] = []
        for number, (size, waits) in enumerate(batches):
            bodies = [b"%d-%d." % (number, index) for index in range(size)]
            expected[number] = b"".join(bodies)
            worker.send(number, *bodies)
            while waits and len(answers) < len(expected):
                answers.append(worker.answered())
        while len(answers) < len(expected):
            answers.append(worker.answered())
        assert len(answers) == len(dict(answers))
        assert dict(answers) == expected


@pytest.mark.parametrize(
    ("fields", "is_led"),
    [
        ({}, True),
        ({"instances": 2}, False),
        ({"micro_batching": MicroBatching(parallelism={"preprocess": 2})}, True),
        ({"micro_batching": MicroBatching(parallelism={"inference": 2})}, False),
    ],
)
def test_only_who_runs_all_inference_alone_may_read(fields: dict[str, Any], is_led: bool) -> None:
    assert leads(config(**fields), program(Doubler())) is is_led


def test_where_there_are_no_stages_the_thread_that_runs_them_reads_anyway() -> None:
    assert not leads(config(), program(lambda data: data))


def test_who_asks_twice_is_heard_once_and_may_be_refused() -> None:
    near, far = socket.socketpair()
    with near, far:
        lead = Lead(near, lambda: None)
        lead.ask()
        lead.ask()
        assert lead.wait()  # after many requests nobody is listened to
        lead.may_ask = True

        assert not lead.wait()  # nobody grants it
        far.send(b"x")
        assert lead.wait()  # what came is for who waits
