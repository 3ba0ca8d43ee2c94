"""The thread that a model lives on: what runs there, who reads the commands meanwhile, and when that changes."""

import socket
import threading
from collections.abc import Callable
from typing import Any

import pytest

from shoal.wire.channel import BlockingChannel
from shoal.wire.messages import Answered, Cancel, Run, Stop, decode_report
from shoal.worker.home import Home
from shoal.worker.items import read_native
from shoal.worker.main import Inbox, Loop, Outbox
from shoal.worker.pipeline import run_stages
from shoal.worker.program import Program, Stage, nothing_measured, nothing_to_close
from tests.unit.worker.making import body_item, config, context, home


def _raise(error: BaseException) -> None:
    raise error


def test_everything_runs_on_one_thread_that_nothing_ends() -> None:
    there = home()
    first = there.call(threading.get_ident)
    for error in (ValueError("no"), SystemExit(3), KeyboardInterrupt()):
        with pytest.raises(type(error)):
            there.call(_raise, error)
        there.start(_raise, error)

    assert there.call(threading.get_ident) == first != threading.get_ident()


def test_a_call_from_the_thread_itself_runs_at_once() -> None:
    there = home()

    assert there.call(lambda: there.call(threading.current_thread).name) == "model"


def test_what_was_put_runs_in_order_and_what_is_started_lets_others_go_first() -> None:
    ran: list[str] = []
    here = Home()
    here.pull = lambda: here.put(ran.append, "came meanwhile")
    here.put(ran.append, "first")
    here.put(here.start, ran.append, "again")
    here.put(ran.append, "second")
    here.run()

    assert ran == ["first", "second", "came meanwhile", "again"]


def test_what_is_started_where_no_job_runs_is_run_at_once() -> None:
    ran: list[str] = []
    Home().start(ran.append, "now")

    assert ran == ["now"]


@pytest.mark.parametrize("runs_before", [False, True])
def test_a_home_that_was_left_while_a_job_ran_serves_no_more(runs_before: bool) -> None:
    ran: list[str] = []
    here = Home()
    here.put(ran.append, "before")
    here.leave()
    here.put(ran.append, "after")
    if runs_before:
        here.run()
    here.serve()  # returns

    assert ran == ["before"]


class Worker:
    """A loop whose model is `act`, with the front process's end of its socket. Bodies are given back."""

    def __init__(self, act: Callable[["Worker", bytes], None], *, is_watched: bool = False) -> None:
        self.sockets = socket.socketpair()
        self.sockets[0].settimeout(20)
        self.front = BlockingChannel(self.sockets[0])
        self.ran: list[tuple[bytes, str]] = []
        self._act = act
        self._is_watched = is_watched
        self._is_made = threading.Event()
        self.thread = threading.Thread(target=self._live, name="main", daemon=True)
        self.thread.start()
        assert self._is_made.wait(20)

    def _live(self) -> None:
        stages = (
            Stage("preprocess", "read", lambda data: data, gives_rows=True),
            Stage("inference", "run", self._run, gives_rows=True),
        )
        rest = (nothing_measured, nothing_to_close, Home(), self._is_watched)
        program = Program("m", stages, read_native, context(), False, *rest)
        self.loop = Loop(program, config(), None, Inbox(self.sockets[1]), Outbox(self.sockets[1]), 0, run_stages)
        self.loop.start()
        self._is_made.set()
        self.loop.run()

    def _run(self, data: list[Any]) -> list[Any]:
        for body in data:
            self.ran.append((bytes(body), threading.current_thread().name))
            self._act(self, bytes(body))
        return data

    def send(self, number: int, body: bytes) -> None:
        self.front.send(Run(number, 0, [body_item(len(body))]), [body])

    def answered(self) -> int:
        """Wait for the answer to a batch; gives its number."""
        frame = self.front.receive()
        assert frame is not None
        message = decode_report(frame[0])
        assert isinstance(message, Answered)
        return message.batch

    def is_cancelled(self, number: int) -> bool:
        batch = self.loop._batches.get(number)
        return batch is not None and 0 in batch.cancelled

    def end(self) -> None:
        self.front.send(Stop())
        self.is_over()

    def is_over(self) -> None:
        self.thread.join(20)
        assert not self.thread.is_alive()
        for each in self.sockets:
            each.close()


def becomes(is_so: Callable[[], bool]) -> bool:
    pause = threading.Event()
    for _ in range(2000):
        if is_so():
            return True
        pause.wait(0.01)
    return False


def test_the_thread_that_reads_the_commands_runs_the_batches() -> None:
    worker = Worker(lambda worker, body: None)
    for number in (1, 2):
        worker.send(number, b"x")
        assert worker.answered() == number
    worker.end()

    assert worker.ran == [(b"x", "main")] * 2


def test_commands_are_read_while_the_model_runs_once_somebody_needs_it() -> None:
    heard: list[bool] = []

    def act(worker: Worker, body: bytes) -> None:
        if body == b"watches":
            worker.loop.read_apart()
            worker.front.send(Cancel(2, 0))
            heard.append(becomes(lambda: worker.is_cancelled(2)))

    worker = Worker(act)
    worker.send(1, b"x")
    assert worker.answered() == 1
    worker.send(2, b"watches")
    assert worker.answered() == 2
    worker.send(3, b"y")
    assert worker.answered() == 3
    worker.end()

    assert heard == [True]
    assert worker.ran == [(b"x", "main"), (b"watches", "main"), (b"y", "main")]


def test_what_was_said_before_somebody_asked_is_known_at_once() -> None:
    heard: list[bool] = []

    def act(worker: Worker, body: bytes) -> None:
        worker.front.send(Cancel(1, 0))
        worker.loop.read_apart()
        heard.append(worker.is_cancelled(1))

    worker = Worker(act)
    worker.send(1, b"x")
    assert worker.answered() == 1
    worker.end()

    assert heard == [True]


def test_another_thread_may_need_it_while_the_commands_are_waited_for() -> None:
    heard: list[bool] = []

    def act(worker: Worker, body: bytes) -> None:
        worker.front.send(Cancel(1, 0))
        heard.append(becomes(lambda: worker.is_cancelled(1)))

    worker = Worker(act)
    assert becomes(worker.loop._reading.locked)
    worker.loop.read_apart()
    worker.send(1, b"x")
    assert worker.answered() == 1
    worker.end()

    assert heard == [True] and worker.ran == [(b"x", "main")]


def test_another_thread_may_need_it_while_a_batch_runs() -> None:
    heard: list[bool] = []

    def act(worker: Worker, body: bytes) -> None:
        if body == b"x":
            other = threading.Thread(target=worker.loop.read_apart)
            other.start()
            other.join(20)
            worker.front.send(Cancel(1, 0))
            heard.append(becomes(lambda: worker.is_cancelled(1)))

    worker = Worker(act)
    worker.send(1, b"x")
    assert worker.answered() == 1
    worker.send(2, b"y")
    assert worker.answered() == 2
    worker.end()

    assert heard == [True] and [name for _, name in worker.ran] == ["main", "main"]


def test_a_program_that_is_watched_is_so_from_the_beginning() -> None:
    worker = Worker(lambda worker, body: None, is_watched=True)
    assert becomes(lambda: worker.loop._is_apart)
    worker.send(1, b"x")
    assert worker.answered() == 1
    worker.end()

    assert worker.ran == [(b"x", "main")]


@pytest.mark.parametrize("is_apart", [False, True])
def test_the_end_of_the_stream_ends_it_and_nonsense_is_raised(is_apart: bool) -> None:
    worker = Worker(lambda worker, body: None, is_watched=is_apart)
    worker.front.close()
    worker.is_over()

    raised: list[BaseException] = []
    before, threading.excepthook = threading.excepthook, lambda told: raised.append(told.exc_value or SystemExit())
    try:
        other = Worker(lambda worker, body: None, is_watched=is_apart)
        other.front.send(Run(1, 7, []))
        other.is_over()
    finally:
        threading.excepthook = before
    assert [str(error) for error in raised] == ["this worker has 1 instances, no number 7"]


def test_a_client_that_left_before_its_batch_began_is_known_to_have() -> None:
    known: list[bool] = []
    may_go = threading.Event()

    def act(worker: Worker, body: bytes) -> None:
        if body == b"first":
            assert may_go.wait(20)
        else:
            known.append(worker.is_cancelled(2))

    worker = Worker(act)
    worker.send(1, b"first")
    assert becomes(lambda: bool(worker.ran))
    worker.send(2, b"second")
    worker.front.send(Cancel(2, 0))
    may_go.set()
    assert [worker.answered() for _ in range(2)] == [1, 2]
    worker.end()

    assert known == [True]
