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
from shoal.worker.link import Inbox, Outbox
from shoal.worker.main import Loop
from shoal.worker.pipeline import run_stages
from shoal.worker.program import Program, Stage, nothing_measured, nothing_to_close
from tests.serving import eventually
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

    def __init__(self, act: Callable[["Worker", bytes], None], *, is_watched: bool = False, instances: int = 1) -> None:
        self.sockets = socket.socketpair()
        self.sockets[0].settimeout(20)
        self.front = BlockingChannel(self.sockets[0])
        self.ran: list[tuple[bytes, str]] = []
        self._act = act
        self._is_watched = is_watched
        self._config = config(instances=instances)
        self._is_made = threading.Event()
        self.thread = threading.Thread(target=self._live, name="main", daemon=True)
        self.thread.start()
        assert self._is_made.wait(20)

    def _live(self) -> None:
        self.home = Home()
        stages = (
            Stage("preprocess", "read", lambda data: data, gives_rows=True),
            Stage("inference", "run", lambda data: self.home.call(self._run, data), gives_rows=True),
        )
        rest = (nothing_measured, nothing_to_close, self.home, self._is_watched)
        program = Program("m", stages, read_native, context(), False, *rest)
        self.inbox = Inbox(self.sockets[1])
        self.loop = Loop(program, self._config, None, self.inbox, Outbox(self.sockets[1]), 0, run_stages)
        self.loop.start()
        self._is_made.set()
        self.loop.run()

    def _run(self, data: list[Any]) -> list[Any]:
        for body in data:
            self.ran.append((bytes(body), threading.current_thread().name))
            self._act(self, bytes(body))
        return data

    def ask(self, number: int, body: bytes = b"x") -> None:
        """Send a batch and wait for its answer, which must be a good one."""
        self.send(number, body)
        assert self.answered() == number

    def send(self, number: int, body: bytes) -> None:
        self.front.send(Run(number, 0, [body_item(len(body))]), [body])

    def answered(self) -> int:
        """Wait for the answer to a batch; gives its number."""
        frame = self.front.receive()
        assert frame is not None
        message = decode_report(frame[0])
        assert isinstance(message, Answered), message
        return message.batch

    def is_cancelled(self, number: int) -> bool:
        batch = self.loop._batches.get(number)
        return batch is not None and 0 in batch.cancelled

    def hears_while_it_runs(self, number: int) -> None:
        """Cancel the batch at hand and wait for its model to know."""
        self.front.send(Cancel(number, 0))
        eventually(lambda: self.is_cancelled(number), "word of the client that left", within=20)

    def end(self) -> None:
        self.front.send(Stop())
        self.is_over()

    def is_over(self) -> None:
        self.thread.join(20)
        assert not self.thread.is_alive()
        for each in self.sockets:
            each.close()


def here(work: Callable[[], None]) -> None:
    work()


def elsewhere(work: Callable[[], None]) -> None:
    other = threading.Thread(target=work)
    other.start()
    other.join(20)
    assert not other.is_alive()


def test_the_thread_that_reads_the_commands_runs_the_batches() -> None:
    worker = Worker(lambda worker, body: None)
    worker.ask(1)
    worker.ask(2)
    worker.end()

    assert worker.ran == [(b"x", "main")] * 2 and not worker.loop._is_apart


@pytest.mark.parametrize("do", [here, elsewhere])
def test_commands_are_read_while_the_model_runs_once_somebody_needs_it(do: Callable[..., None]) -> None:
    def act(worker: Worker, body: bytes) -> None:
        if body == b"watches":
            do(worker.loop.read_apart)
            worker.hears_while_it_runs(2)

    worker = Worker(act)
    worker.ask(1)
    worker.ask(2, b"watches")
    worker.ask(3)
    worker.end()

    assert worker.ran == [(b"x", "main"), (b"watches", "main"), (b"x", "main")]


def test_what_was_said_before_somebody_asked_is_known_at_once() -> None:
    def act(worker: Worker, body: bytes) -> None:
        worker.front.send(Cancel(1, 0))
        worker.loop.read_apart()
        assert worker.is_cancelled(1)

    worker = Worker(act)
    worker.ask(1)
    worker.end()


def test_another_thread_may_need_it_while_the_commands_are_waited_for() -> None:
    worker = Worker(lambda worker, body: worker.hears_while_it_runs(1))
    eventually(worker.loop._reading.locked, "the commands being read", within=20)
    worker.loop.read_apart()
    worker.ask(1)
    worker.end()

    assert worker.ran == [(b"x", "main")]


def test_another_thread_may_need_it_while_a_batch_lets_others_join(monkeypatch: pytest.MonkeyPatch) -> None:
    def act(worker: Worker, body: bytes) -> None:
        poll = worker.inbox.poll

        def poll_meanwhile() -> Any:
            monkeypatch.undo()
            elsewhere(worker.loop.read_apart)
            return poll()

        monkeypatch.setattr(worker.inbox, "poll", poll_meanwhile)
        worker.home.start(lambda: None)
        worker.hears_while_it_runs(1)

    worker = Worker(act)
    worker.ask(1)
    worker.end()


@pytest.mark.parametrize("fields", [{"is_watched": True}, {"instances": 2}])
def test_some_programs_are_watched_from_the_beginning(fields: dict[str, Any]) -> None:
    worker = Worker(lambda worker, body: worker.hears_while_it_runs(1), **fields)
    worker.ask(1)
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
    may_go = threading.Event()

    def act(worker: Worker, body: bytes) -> None:
        assert may_go.wait(20) if body == b"first" else worker.is_cancelled(2)

    worker = Worker(act)
    worker.send(1, b"first")
    eventually(lambda: bool(worker.ran), "the first batch running", within=20)
    worker.send(2, b"second")
    worker.front.send(Cancel(2, 0))
    may_go.set()
    assert [worker.answered() for _ in range(2)] == [1, 2]
    worker.end()

    assert [body for body, _ in worker.ran] == [b"first", b"second"]
