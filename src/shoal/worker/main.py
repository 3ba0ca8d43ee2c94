"""The process of a worker after the fork: connect, load, answer, leave.

Exit codes: 0 told to stop or nobody left to serve, 1 the model cannot be loaded, 2 the front process spoke nonsense.
"""

import gc
import logging
import os
import socket
import sys
import threading
from collections import deque
from time import monotonic

import msgspec

from shoal.config.kinds import convert
from shoal.config.model import ModelConfig
from shoal.errors import LoadFailed, LoadOutOfMemory, ProtocolError
from shoal.wire.memory import ArenaReader
from shoal.wire.messages import (
    VERSION,
    Cancel,
    Command,
    Hello,
    Load,
    Loaded,
    Measured,
    Run,
    Stop,
    Told,
    Unloadable,
    Used,
)
from shoal.wire.tray import TrayWriter
from shoal.worker import failures
from shoal.worker.backends import choice
from shoal.worker.batch import Batch
from shoal.worker.continuous import Continuous
from shoal.worker.errands import errands
from shoal.worker.home import Home
from shoal.worker.items import inline_size
from shoal.worker.lead import Lead
from shoal.worker.link import Inbox, Outbox
from shoal.worker.outlet import outlet
from shoal.worker.pipeline import Gathered, Inline, Pipeline, Runner, Threaded, run_stages
from shoal.worker.process import leave, restrict
from shoal.worker.program import Program
from shoal.worker.proof import Prover

_log = logging.getLogger("shoal.worker")
REPORT_EVERY = 1.0  # s between two reports of the device's memory


def run(sock: socket.socket, arena: ArenaReader | None, tray: TrayWriter | None = None) -> None:
    """Be a worker until told to stop or left alone; ends the process and does not return."""
    code = 2
    outlet.tray = tray
    try:
        code = serve(sock, arena)
    except ProtocolError as error:
        _log.error("the front process cannot be understood: %s", error)
    except BaseException:
        _log.exception("the worker failed")
    finally:
        leave(code)


def serve(sock: socket.socket, arena: ArenaReader | None) -> int:
    """Load the model and answer batches; gives the exit code."""
    inbox, outbox = Inbox(sock), Outbox(sock)
    outbox.send(Hello(VERSION, os.getpid()))
    errands.connect(outbox, inbox.receive)
    received = inbox.receive()
    if received is None:
        return 0
    load = received[0]
    if not isinstance(load, Load):
        raise ProtocolError(f"the first command must be Load, got {type(load).__name__}")
    try:
        config = convert(load.config, ModelConfig)
        restrict(config)
        program = choice.load(config, load.worker)
        check_modes(config, program)
    except msgspec.ValidationError as error:
        outbox.send(Unloadable(f"the model's configuration is wrong: {error}", ""))
        return 1
    except LoadFailed as error:
        _log.error("%s\n%s", error, error.traceback)
        is_short = isinstance(error, LoadOutOfMemory)
        outbox.send(Unloadable(str(error), error.traceback, is_short or is_temporary(error.__cause__), is_short))
        return 1
    is_trusted = config.continuous or not config.prove_batching
    prover = None if is_trusted else Prover(outbox, load.can_batch, side_effects=config.side_effects)
    loop = Loop(program, config, arena, inbox, outbox, load.message_limit, prover.run if prover else run_stages)
    loop.start()
    errands.serve(loop.read_apart)
    gc.collect()
    gc.freeze()  # the model lives as long as the worker: to look through all of it again stops every thread
    places = max(1, config.batching.batch_size) if config.continuous else places_of(config, program)
    outbox.send(Loaded(program.handler, places, program.wants_headers))
    loop.send_measures()
    if prover is not None:
        prover.begin()
    loop.run()
    errands.close()
    program.close()
    return 0


def places_of(config: ModelConfig, program: Program) -> int:
    """How many batches an instance can hold: one for each thread of its stages."""
    if len(program.stages) == 1:
        return 1
    if gathers_on(config, program) is not None:
        return 2  # one that runs, and one that is ready to
    return sum(config.micro_batching.parallelism.get(stage.name, 1) for stage in program.stages)


def gathers_on(config: ModelConfig, program: Program) -> Home | None:
    """Give the thread that all stages run on; None where each has its own."""
    micro = config.micro_batching
    return program.home if config.instances == 1 and not (micro.micro_batch_size or micro.parallelism) else None


def leads(config: ModelConfig, program: Program) -> bool:
    """Whether one thread alone runs the inference of all that comes, and can as well read it."""
    is_staged = len(program.stages) > 1 and program.home is None
    return is_staged and config.instances == 1 and config.micro_batching.parallelism.get("inference", 1) == 1


def check_modes(config: ModelConfig, program: Program) -> None:
    """Raise LoadFailed for what this program cannot be asked for."""
    is_whole = len(program.stages) == 1
    if config.continuous and not (is_whole and config.instances == 1):
        raise LoadFailed("continuous batching needs a handler with a handle method, and one instance in each worker")
    if config.prove_batching and not is_whole:
        raise LoadFailed(f"{program.handler} has stages, which are made for batches: prove_batching is not for it")


def is_temporary(cause: BaseException | None) -> bool:
    """Whether loading may succeed later: memory or the network were short."""
    return cause is not None and (failures.is_out_of_memory(cause) or isinstance(cause, ConnectionError | TimeoutError))


class Loop:
    """Takes commands from the socket and gives batches to the pipelines of their instances."""

    def __init__(
        self,
        program: Program,
        config: ModelConfig,
        arena: ArenaReader | None,
        inbox: Inbox,
        outbox: Outbox,
        limit: int,
        run: Runner,
    ) -> None:
        self._inbox = inbox
        self._outbox = outbox
        self._limit = limit
        self._take_measures = program.take_measures
        self._waiting: deque[Batch] = deque()  # read while a batch ran inline
        self._batches: dict[int, Batch] = {}
        self._is_stopping = False
        self._reports_memory = config.recycle.device_memory > 0
        self._report_after = 0.0
        self._error: BaseException | None = None  # met while user code was running, raised once it is not
        self._home = program.home
        self._is_apart = False  # another thread than the model's reads the commands
        home = gathers_on(config, program)
        self._is_apart_wanted = program.home is not None and (program.is_watched or home is None)
        self._reading = threading.Lock()  # held by who reads the commands on the model's thread
        self._lead = Lead(inbox.socket, self._read_for_one) if leads(config, program) else None
        self._pipelines: list[Pipeline]
        if config.continuous:
            self._pipelines = [Continuous(program, arena, self._done, self._arrivals)]
        elif config.instances == 1 and len(program.stages) == 1:
            self._pipelines = [Inline(program, arena, self._done, self._poll, run)]
        elif home is not None:
            self._pipelines = [Gathered(program, home, arena, self._done)]
        else:
            self._pipelines = [
                Threaded(program, config.micro_batching, arena, self._done, run, self._lead)
                for _ in range(config.instances)
            ]

    def start(self) -> None:
        """Start the threads of the pipelines."""
        for pipeline in self._pipelines:
            pipeline.start()
        if self._home is not None:
            self._home.pull = self._pull

    def run(self) -> None:
        """Serve until told to stop, or until the stream ends."""
        if self._home is None:
            self._read()
            return
        self._read_at_home(self._home)
        if self._is_apart:
            self._home.serve()
        if self._error is not None:
            raise self._error

    def read_apart(self) -> None:
        """Have the commands read while the model runs, from now on; from any thread."""
        self._is_apart_wanted = True
        if self._is_apart or self._home is None or not self._reading.acquire(blocking=False):
            return  # who holds it looks once it has let go
        try:
            if not self._is_apart:
                self._is_apart = True
                self._poll()
                threading.Thread(target=self._read_for, args=(self._home,), name="commands", daemon=True).start()
        finally:
            self._reading.release()

    def _read(self) -> None:
        """Take commands one after the other, and give the pipelines what they bring."""
        while True:
            self._submit()
            if self._error is not None:
                raise self._error
            if self._is_stopping and not self._batches:
                return
            if (self._lead is None or self._lead.wait()) and not self._receive():
                return

    def _read_for_one(self) -> None:
        """Take commands on the thread that runs what they bring, until there is something to run."""
        try:
            while not (self._waiting or self._is_stopping) and self._receive():
                pass
            self._submit()
        except BaseException as error:
            self._error = error

    def _receive(self) -> bool:
        """Wait for commands and take all that have come; False once the stream has ended."""
        if (received := self._inbox.receive()) is None:
            return False
        while received:
            self._take(*received)
            received = self._inbox.rest()  # a request of the batch may have been cancelled
        return True

    def _read_at_home(self, home: Home) -> None:
        """Take commands and run what they bring, in turn, until another thread reads them."""
        while True:
            if self._is_apart_wanted:
                self.read_apart()
            home.run()
            if self._error is not None or (self._is_stopping and not self._batches):
                return
            with self._reading:
                if self._is_apart or not self._receive():
                    return
                self._submit()

    def _read_for(self, home: Home) -> None:
        """Take commands on a thread of its own."""
        try:
            self._read()
        except BaseException as error:
            self._error = error
        finally:
            home.leave()

    def _pull(self) -> None:
        """Let the batches join that have come while one runs at home."""
        with self._reading:
            if not self._is_apart:
                self._poll()
                self._submit()
        if self._is_apart_wanted:
            self.read_apart()

    def _submit(self) -> None:
        while self._waiting:
            batch = self._waiting.popleft()
            self._pipelines[batch.instance].submit(batch)

    def send_measures(self) -> None:
        """Report the handler's metrics since the last time, if there are any."""
        if measures := self._take_measures():
            self._outbox.send(Measured(measures))

    def _report_memory(self) -> None:
        """Say now and then what torch holds of the device; nothing where it is not at work there."""
        now = monotonic()
        torch = sys.modules.get("torch")
        if now < self._report_after or torch is None or not torch.cuda.is_initialized():
            return
        self._report_after = now + REPORT_EVERY
        self._outbox.send(Used(torch.cuda.memory_reserved()))

    def _take(self, command: Command, data: memoryview) -> None:
        match command:
            case Run():
                if command.freed and outlet.tray is not None:
                    outlet.tray.take_back(command.freed)
                self._waiting.append(self._make_batch(command, data))
            case Cancel():
                if batch := self._batches.get(command.batch):
                    batch.cancel(command.index)
            case Told():
                errands.hear(command, data)
            case Stop():
                self._is_stopping = True
            case Load():
                raise ProtocolError("a worker loads one model, once")

    def _make_batch(self, command: Run, data: memoryview) -> Batch:
        if not 0 <= command.instance < len(self._pipelines):
            raise ProtocolError(f"this worker has {len(self._pipelines)} instances, no number {command.instance}")
        if inline_size(command.items) != len(data):
            raise ProtocolError(f"batch {command.batch} came with {len(data)} bytes, its parts say another number")
        batch = self._batches[command.batch] = Batch(command, data, self._outbox, self._limit)
        return batch

    def _done(self, batch: Batch) -> None:
        if self._batches.get(batch.number) is batch:  # its answer has left, so its number may be in use again
            del self._batches[batch.number]
        self.send_measures()
        if self._reports_memory:
            self._report_memory()
        if self._is_stopping and not self._batches:
            self._inbox.interrupt()

    def _arrivals(self) -> list[Batch]:
        """Take the batches that came while others ran."""
        self._poll()
        batches = list(self._waiting)
        self._waiting.clear()
        return batches

    def _poll(self) -> None:
        """Look for cancellations while a batch runs inline; batches that come meanwhile wait their turn."""
        try:
            while received := self._inbox.poll():
                self._take(*received)
        except ProtocolError as error:
            self._error = error
            self._outbox.is_gone = True
