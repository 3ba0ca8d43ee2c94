"""Passage: one request on its way through an ensemble: tensors from step to step, errors and time to the client."""

from collections.abc import Callable, Mapping
from functools import partial

from shoal.answer import Answer, Head
from shoal.config.model import Interface, ModelConfig, TensorSpec
from shoal.config.scheduling import Step
from shoal.core.batch import Stages
from shoal.core.ensemble import Course, Ensemble, Tensors
from shoal.core.ensemble import Told as OnStep
from shoal.core.model import Life
from shoal.core.relay import Relay, Tell
from shoal.core.request import Outcome, Request
from shoal.core.scheduler import Alarm
from shoal.errors import HandlerFailed, ServingError
from shoal.frontend.kserve.answers import read
from shoal.frontend.kserve.asked import Tensor
from shoal.frontend.kserve.controls import Controls
from shoal.frontend.kserve.plan import Plan
from shoal.payload import Buffer, Result
from shoal.telemetry import ModelStats
from shoal.tensor import ANSWER, join, read_part_type
from shoal.triton.inside import Inside, Shared, told_of

STUCK = "unexpected deadlock, at least one output is not set while no more ensemble steps can be made"


class Route:
    """What is the same for every request of one ensemble."""

    def __init__(
        self, name: str, ensemble: Ensemble, interface: Interface, inside: Inside, now: Callable[[], float]
    ) -> None:
        self.name = name
        self.ensemble = ensemble
        self.outputs = {spec.name: spec for spec in interface.outputs}
        self.has_rows = interface.max_batch_size > 0
        self.is_decoupled = interface.is_decoupled
        self.inside = inside
        self.now = now
        self.members = [
            (step.model_name, str(step.model_version) if step.model_version > 0 else "") for step in ensemble.steps
        ]
        self.numbers = {id(step): number for number, step in enumerate(ensemble.steps)}

    def begin(self, request: Request, tell: Tell) -> Callable[[], None]:
        """Send a request off; gives the way to call it off."""
        return Passage(self, request, tell).begin()


def relay_of(config: ModelConfig, inside: Inside, alarm: Alarm, stats: ModelStats, now: Callable[[], float]) -> Relay:
    """Make what takes the requests of an ensemble; ConfigError where its steps make no whole."""
    interface, scheduling = config.interface, config.scheduling
    assert interface is not None and scheduling is not None and scheduling.ensemble_scheduling is not None
    inputs, outputs = ([spec.name for spec in specs] for specs in (interface.inputs, interface.outputs))
    ensemble = Ensemble(config.name, inputs, outputs, scheduling.ensemble_scheduling)
    return Relay(alarm, stats, Route(config.name, ensemble, interface, inside, now).begin, now)


class Passage:
    """One request: it asks the members, and tells once each piece of the answer is whole."""

    def __init__(self, route: Route, request: Request, tell: Tell) -> None:
        self.route = route
        self._request = request
        self._tell = tell
        self._told = told_of(request.payload)
        self._stages = Stages()
        self._plans: list[Plan] = []  # of the steps: what served when the request came
        told = self._told
        self._controls = Controls(told.parameters, told.sequence, told.priority, told.timeout)

    def begin(self) -> Callable[[], None]:
        """Send it off; gives the way to call it off."""
        route = self.route
        try:
            self._plans = [route.inside.find(name, version) for name, version in route.members]
        except ServingError as error:
            self._tell(_named(error, route.name), True, self._stages)
            return _nothing
        tensors = {}
        for part in self._request.payload.parts:
            datatype, shape = read_part_type(part.content_type)
            data = part.data
            if isinstance(data, (bytes, bytearray, memoryview)):
                tensors[part.name] = Value(datatype, list(shape), data)
            else:
                shared = Shared(data)
                part.data = shared.lend()
                tensors[part.name] = Value(datatype, list(shape), shared)
        course = Course(route.ensemble, self._run, self._answer)  # it knows us, we do not keep it: no cycle is left
        course.begin(tensors, self._told.outputs)
        return course.withdraw

    def _run(self, step: Step, tensors: Tensors, told: OnStep) -> Callable[[], None]:
        """Ask a member; the error that it is not asked with is the step's."""
        run = Run(self, told)
        try:
            plan = self._plan(step)
            request = self.route.inside.ask(
                plan,
                [_fitting(name, value, plan) for name, value in tensors.items() if isinstance(value, Value)],
                run.answer,
                outputs=list(step.output_map),
                id=self._told.id,
                controls=self._controls,
                client=self._request.client,
                deadline=self._request.deadline,
            )
            run.call_off = partial(plan.model.withdraw, request)
        except ServingError as error:
            told(_named(error, self.route.name), True)
        return run.call_off

    def _plan(self, step: Step) -> Plan:
        """Give the member that served when the request came, or the one that has taken its place since."""
        number = self.route.numbers[id(step)]
        plan = self._plans[number]
        return plan if plan.model.life is Life.READY else self.route.inside.find(*self.route.members[number])

    def spent(self, request: Request, now: float) -> None:
        """Add the time that a member spent."""
        batch, sum = request.batch, self._stages
        if batch is None:
            return
        own = batch.stages or Stages(inference=now - batch.left)  # of a stream only the whole is known
        sum.preprocess += own.preprocess
        sum.inference += own.inference
        sum.postprocess += own.postprocess

    def _answer(self, outcome: Tensors | ServingError | None, is_last: bool) -> None:
        route = self.route
        if isinstance(outcome, ServingError):
            self._tell(outcome, True, self._stages)
        elif outcome is not None:
            self._tell(self._result(outcome), is_last, self._stages)
        elif route.is_decoupled:
            self._tell(Result(b"", ANSWER), is_last, self._stages)
        else:
            self._tell(HandlerFailed(f"in ensemble '{route.name}', {STUCK}"), True, self._stages)

    def _result(self, tensors: Tensors) -> Result:
        route, told = self.route, self._told
        heads: list[Head] = []
        buffers: list[bytes | memoryview] = []
        for name, spec in route.outputs.items():
            value = tensors.get(name)
            if isinstance(value, Value):
                data = value.view
                shape = fitted(value.shape, spec, has_rows=route.has_rows)
                heads.append(Head(name, value.datatype, shape, len(data)))
                buffers.append(data)
        sequence = told.sequence
        parameters = {
            "sequence_id": sequence.id if sequence else 0,
            "sequence_start": bool(sequence and sequence.start),
            "sequence_end": bool(sequence and sequence.end),
        }
        return Result(join(Answer(heads, parameters), buffers), ANSWER)


class Run:
    """One member at work for a passage."""

    __slots__ = ("_passage", "_told", "call_off")

    def __init__(self, passage: Passage, told: OnStep) -> None:
        self._passage = passage
        self._told = told
        self.call_off: Callable[[], None] = _nothing

    def answer(self, request: Request, outcome: Outcome, is_last: bool) -> None:
        """Hear one piece of the member's answer."""
        route = self._passage.route
        if is_last:
            self._passage.spent(request, route.now())
        try:
            if isinstance(outcome, ServingError):
                raise outcome
            tensors = _values(outcome) if outcome.body else {}
        except ServingError as error:
            if not is_last:
                self.call_off()  # nobody hears the rest
            self._told(_named(error, route.name), True)
        else:
            self._told(tensors, is_last)


class Value:
    """A tensor between steps: its bytes lie where they came from."""

    __slots__ = ("data", "datatype", "shape")

    def __init__(self, datatype: str, shape: list[int], data: Buffer | Shared) -> None:
        self.datatype = datatype
        self.shape = shape
        self.data = data

    @property
    def view(self) -> memoryview:
        """The bytes themselves."""
        return self.data.block.view if isinstance(self.data, Shared) else memoryview(self.data)


def fitted(shape: list[int], spec: TensorSpec, *, has_rows: bool) -> list[int]:
    """Give the shape as its reader counts it, where one side has a batch dimension and the other has not."""
    more = len(shape) - len(spec.dims)
    if has_rows and more == 0:
        return [1, *shape]
    if not has_rows and more == 1 and shape[0] == 1:
        return shape[1:]
    return shape


def _fitting(name: str, value: Value, plan: Plan) -> Tensor:
    shape = value.shape
    for spec in plan.interface.inputs:
        if spec.name == name:
            shape = fitted(shape, spec, has_rows=plan.rows > 0)
            break
    return Tensor(name, value.datatype, shape, value.data.lend() if isinstance(value.data, Shared) else value.data)


def _values(result: Result) -> Mapping[str, Value]:
    answer, buffers = read(result)
    return {
        head.name: Value(head.datatype, list(head.shape), data)
        for head, data in zip(answer.outputs, buffers, strict=True)
    }


def _named(error: ServingError, ensemble: str) -> ServingError:
    """Give the same error, with the ensemble that it happened in."""
    kind = type(error)
    named = kind.__new__(kind)
    named.__dict__.update(error.__dict__)
    named.args = (f"in ensemble '{ensemble}', {error}",)
    return named


def _nothing() -> None:
    pass
