"""Ensemble: a graph of steps over named tensors. Course: one request on its way through them.

A step is a call of another model. It runs once every tensor that it reads is there, and writes others. A model that
answers several times makes everything behind it run once for each answer, and the ensemble answers as often. Tensors
are whatever they are; nobody looks inside.
"""

from collections import Counter, defaultdict, deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from itertools import product

from shoal.config.scheduling import EnsembleScheduling, Step
from shoal.errors import ConfigError, HandlerFailed, ServingError

Tensors = Mapping[str, object]
Told = Callable[[Tensors | ServingError, bool], None]  # outputs by the model's own names, and whether it was the last
Run = Callable[[Step, Tensors, Told], Callable[[], None]]  # start a step; gives the way to call it off
OnAnswer = Callable[[Tensors | ServingError | None, bool], None]
CLIENT = -1  # who writes the ensemble's own inputs
MOST_WIRINGS = 256  # that are remembered


@dataclass(frozen=True, slots=True)
class Wiring:
    """What has to run for some outputs: who reads whom, and whose answers are read together with others'."""

    outputs: tuple[str, ...]
    sources: tuple[int, ...]  # whom the outputs come from
    readers: Mapping[int, Sequence[tuple[int, tuple[int, ...]]]]  # by whom they read: the step, and all whom it reads
    kept: frozenset[int]


class Ensemble:
    """Which step writes and reads which tensor: each is written once, none in vain, and no step waits for itself."""

    def __init__(self, name: str, inputs: Sequence[str], outputs: Sequence[str], settings: EnsembleScheduling) -> None:
        self.name = name
        self.inputs = tuple(inputs)
        self.outputs = tuple(outputs)
        self.steps = tuple(settings.step)
        self.at_once = settings.max_inflight_requests  # runs of one step for one request; 0: any number
        self._writer: dict[str, int] = dict.fromkeys(inputs, CLIENT)
        for number, step in enumerate(self.steps):
            for tensor in step.output_map.values():
                if tensor in self._writer:
                    raise ConfigError(f"ensemble '{name}': tensor '{tensor}' is written more than once")
                self._writer[tensor] = number
        self._check_connected()
        self.sources = [self.writers(step.input_map.values()) for step in self.steps]
        self._check_order()
        self._wirings: dict[tuple[str, ...], Wiring] = {}

    def wiring(self, outputs: Sequence[str] = ()) -> Wiring:
        """Give what these outputs need, or all of them; it is made once for each choice."""
        wanted = tuple(outputs) or self.outputs
        found = self._wirings.get(wanted)
        if found is None:
            if len(self._wirings) >= MOST_WIRINGS:
                self._wirings.clear()
            found = self._wirings[wanted] = self._wire(wanted)
        return found

    def _wire(self, outputs: tuple[str, ...]) -> Wiring:
        readers: dict[int, list[tuple[int, tuple[int, ...]]]] = {}
        for number in sorted(self.needed(outputs)):
            for source in self.sources[number]:
                readers.setdefault(source, []).append((number, self.sources[number]))
        sources = self.writers(outputs)
        together = [sources, *(read for of in readers.values() for _, read in of)]
        kept = frozenset(source for read in together if len(read) > 1 for source in read)
        return Wiring(outputs, sources, readers, kept)

    def writers(self, tensors: Iterable[str]) -> tuple[int, ...]:
        """Give the numbers of the steps that write these tensors, CLIENT among them."""
        return tuple(dict.fromkeys(self._writer[tensor] for tensor in tensors))

    def needed(self, outputs: Sequence[str]) -> frozenset[int]:
        """Give the numbers of the steps that have to run for these outputs."""
        found: set[int] = set()
        todo = list(self.writers(outputs))
        while todo:
            number = todo.pop()
            if number != CLIENT and number not in found:
                found.add(number)
                todo += self.sources[number]
        return frozenset(found)

    def _check_connected(self) -> None:
        where = f"ensemble '{self.name}'"
        if not self.steps or not self.outputs:
            raise ConfigError(f"{where} needs at least one step and one output")
        unused = dict.fromkeys(self._writer)
        for step in self.steps:
            if not step.input_map or not step.output_map:
                raise ConfigError(
                    f"{where}: the step of model '{step.model_name}' needs an input_map and an output_map"
                )
            for input, tensor in step.input_map.items():
                if tensor not in self._writer:
                    reader = f"input '{input}' of model '{step.model_name}'"
                    raise ConfigError(f"{where}: tensor '{tensor}', which {reader} reads, is written by no step")
                unused.pop(tensor, None)
        for tensor in self.outputs:
            if tensor not in self._writer:
                raise ConfigError(f"{where}: output '{tensor}' is written by no step")
            unused.pop(tensor, None)
        if unused:
            raise ConfigError(f"{where}: nobody reads these tensors: {', '.join(unused)}")

    def _check_order(self) -> None:
        done, left = {CLIENT}, set(range(len(self.steps)))
        while left:
            ready = {number for number in left if done.issuperset(self.sources[number])}
            if not ready:
                names = ", ".join(f"'{self.steps[number].model_name}'" for number in sorted(left))
                raise ConfigError(f"ensemble '{self.name}' goes round in a circle through models {names}")
            done |= ready
            left -= ready


class Answer:
    """One answer of a step: its tensors by the ensemble's names, and which answers of which steps it comes from."""

    __slots__ = ("path", "tensors")

    def __init__(self, tensors: Tensors, path: Mapping[int, int]) -> None:
        self.tensors = tensors
        self.path = path


class Limits:
    """How many runs of each step there are at once, and those that wait."""

    __slots__ = ("_most", "active", "starting", "waiting")

    def __init__(self, most: int) -> None:
        self._most = most
        self.active: Counter[int] = Counter()
        self.waiting: defaultdict[int, deque[tuple[Tensors, Mapping[int, int]]]] = defaultdict(deque)
        self.starting: set[int] = set()  # steps whose waiting runs are being started

    def is_full(self, number: int) -> bool:
        """Whether one more run has to wait."""
        return self.active[number] >= self._most


class Course:
    """One request in an ensemble.

    `on_answer(outcome, is_last)` hears outputs by their names, then, or instead, one error. Where a model had more to
    say and then had not, the last is None: nothing follows. After that, or a `withdraw`, nobody hears anything.
    """

    def __init__(self, ensemble: Ensemble, run: Run, on_answer: OnAnswer) -> None:
        self.failed: Step | None = None  # whose error ended it
        self._ensemble = ensemble
        self._run = run
        self._on_answer: OnAnswer | None = on_answer
        self._wiring = ensemble.wiring()
        self._answers: dict[int, list[Answer]] = {}  # of whom somebody reads together with others
        self._counts: dict[int, int] = {}
        self._running: dict[int, Callable[[], None]] = {}
        self._begun = 0
        self._limits = Limits(ensemble.at_once) if ensemble.at_once else None
        self._open = 0  # runs that may answer again
        self._ready: deque[Tensors] = deque()
        self._depth = 0  # answers being listened to, one inside the other

    @property
    def has_ended(self) -> bool:
        """Whether its end was told, or nobody wants to hear it."""
        return self._on_answer is None

    def begin(self, tensors: Tensors, outputs: Sequence[str] = ()) -> None:
        """Run what can run with the inputs given, for these outputs or all of them; optional inputs may be missing."""
        self._wiring = self._ensemble.wiring(outputs)
        self._depth += 1
        self._pass_on(CLIENT, Answer(tensors, {CLIENT: 0}))
        self._close()

    def withdraw(self) -> None:
        """The client left: whatever runs is called off, nobody hears of it."""
        self._on_answer = None
        self._call_off()

    def _pass_on(self, writer: int, answer: Answer) -> None:
        """Start what can run with a new answer, and keep the outputs that it completes."""
        wiring = self._wiring
        if writer in wiring.kept:
            self._answers.setdefault(writer, []).append(answer)
        for number, sources in wiring.readers.get(writer, ()):
            for tensors, path in self._together(sources, writer, answer):
                self._launch(number, tensors, path)
        if writer in wiring.sources:
            for tensors, _ in self._together(wiring.sources, writer, answer):
                self._ready.append({name: tensors[name] for name in wiring.outputs if name in tensors})

    def _together(
        self, sources: Sequence[int], writer: int, answer: Answer
    ) -> Iterable[tuple[Tensors, Mapping[int, int]]]:
        """Join the new answer with what the other sources gave, where they come from the same answers before them."""
        return ((answer.tensors, answer.path),) if len(sources) == 1 else self._joined(sources, writer, answer)

    def _joined(
        self, sources: Sequence[int], writer: int, answer: Answer
    ) -> Iterator[tuple[dict[str, object], dict[int, int]]]:
        kept = [[answer] if source == writer else list(self._answers.get(source, ())) for source in sources]
        for answers in product(*kept):
            path: dict[int, int] = {}
            tensors: dict[str, object] = {}
            for one in answers:
                if any(path.get(step, number) != number for step, number in one.path.items()):
                    break
                path |= one.path
                tensors |= one.tensors
            else:
                yield tensors, path

    def _launch(self, number: int, tensors: Tensors, path: Mapping[int, int]) -> None:
        if self.has_ended:
            return
        inputs = {
            name: tensors[tensor]
            for name, tensor in self._ensemble.steps[number].input_map.items()
            if tensor in tensors
        }
        self._open += 1
        if self._limits is not None and self._limits.is_full(number):
            self._limits.waiting[number].append((inputs, path))
        else:
            self._start(number, inputs, path)

    def _start(self, number: int, inputs: Tensors, path: Mapping[int, int]) -> None:
        self._begun += 1
        if self._limits is not None:
            self._limits.active[number] += 1
        run, is_done = self._begun, False

        def told(outcome: Tensors | ServingError, is_last: bool) -> None:
            nonlocal is_done
            if is_last or isinstance(outcome, ServingError):
                is_done = True
                self._running.pop(run, None)
            self._told(number, outcome, path, is_done)
            if is_done and self._limits is not None:
                self._limits.active[number] -= 1
                self._start_waiting(number, self._limits)

        call_off = self._run(self._ensemble.steps[number], inputs, told)
        if is_done:
            return
        if self.has_ended:
            call_off()
        else:
            self._running[run] = call_off

    def _start_waiting(self, number: int, limits: "Limits") -> None:
        """Start what waited for a run to end; one that answers at once comes here again, and finds us at it."""
        waiting = limits.waiting[number]
        if number in limits.starting or not waiting:
            return
        limits.starting.add(number)
        try:
            while waiting and not limits.is_full(number) and not self.has_ended:
                self._start(number, *waiting.popleft())
        finally:
            limits.starting.discard(number)

    def _told(self, number: int, outcome: Tensors | ServingError, path: Mapping[int, int], is_last: bool) -> None:
        if self.has_ended:
            return
        step = self._ensemble.steps[number]
        if isinstance(outcome, ServingError):
            self._fail(outcome, step)
            return
        missing = [name for name in step.output_map if name not in outcome] if outcome else []
        if missing:
            where = f"in ensemble '{self._ensemble.name}', model '{step.model_name}'"
            self._fail(HandlerFailed(f"{where} gave no output '{missing[0]}'"), step)
            return
        self._depth += 1
        if outcome:
            count = self._counts[number] = self._counts.get(number, 0) + 1
            tensors = {tensor: outcome[name] for name, tensor in step.output_map.items()}
            self._pass_on(number, Answer(tensors, {**path, number: count}))
        if is_last:
            self._open -= 1
        self._close()

    def _close(self) -> None:
        """The outermost answer was listened to: tell what is ready; whoever hears it may leave meanwhile."""
        try:
            while self._depth == 1 and self._on_answer is not None and (self._ready or not self._open):
                on_answer = self._on_answer
                tensors = self._ready.popleft() if self._ready else None
                is_last = not self._ready and not self._open
                if is_last:
                    self._on_answer = None
                on_answer(tensors, is_last)
        finally:
            self._depth -= 1

    def _fail(self, error: ServingError, step: Step) -> None:
        on_answer, self._on_answer = self._on_answer, None
        self.failed = step
        self._call_off()
        if on_answer is not None:
            on_answer(error, True)

    def _call_off(self) -> None:
        running, self._running = self._running, {}
        for call_off in running.values():
            call_off()
