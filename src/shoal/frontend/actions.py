"""What can be done to models, whatever protocol asks for it: register, scale, describe, list, set default, remove."""

import asyncio
import logging
from collections.abc import Callable, Coroutine, Mapping
from typing import Any, Protocol

import msgspec

from shoal.clock import Clock
from shoal.config.model import ModelConfig
from shoal.core.model import Model
from shoal.core.repository import Repository
from shoal.core.request import Outcome, Request
from shoal.core.rollout import Rollouts
from shoal.errors import (
    Conflict,
    DeadlineExceeded,
    InvalidInput,
    LoadFailed,
    ResponseTimeout,
    ServingError,
    VersionNotFound,
)
from shoal.frontend.describe import Describer, gpu_of, url_of
from shoal.frontend.dialect import Dialect
from shoal.frontend.rolling import Rolling, Wish, wish_of
from shoal.frontend.status import ModelApiOff, NegativeWorkers, NoDescriber, NoDescription, StillBusy
from shoal.payload import Part, Payload

log = logging.getLogger("shoal.management")
Sentence = tuple[int, str]  # a status, and the words that go with it
MOST_WORKERS = 4096
MOST_LISTED = 100
NUMBERS = ("batch_size", "max_batch_delay", "initial_workers", "response_timeout", "startup_timeout")


class Intake(Protocol):
    """Where models come from."""

    async def prepare(self, parameters: Mapping[str, str]) -> ModelConfig:
        """Fetch, check and unpack what a registration names; what fails leaves nothing behind."""
        ...

    def discard(self, config: ModelConfig) -> None:
        """Remove what was prepared for a model that is gone, or was never registered; again does nothing."""
        ...


class UnknownVersion(VersionNotFound):
    """The version that was to become the default is not there."""

    def __init__(self, model: str, version: str) -> None:
        ServingError.__init__(self, f"Model version {version} does not exist for model {model}")


class Actions:
    """Acts on the repository and says what was done in the dialect's words."""

    def __init__(
        self,
        repository: Repository,
        intake: Intake,
        dialect: Dialect,
        clock: Clock,
        *,
        drain_within: float,
        model_api: bool = True,
        gpu_usage: Callable[[int], str] = lambda gpu: "N/A",
        first_worker: int = 9000,
        on_changed: Callable[[], None] = lambda: None,
        rollouts: Rollouts | None = None,
    ) -> None:
        self._repository = repository
        self._intake = intake
        self._dialect = dialect
        self._clock = clock
        self._drain_within = drain_within
        self._model_api = model_api
        self._gpu_usage = gpu_usage  # of one GPU; may take its time
        self._on_changed = on_changed  # models were registered, scaled or removed, or another version is the default
        self._rollouts = rollouts or Rollouts(repository, clock, drain_within=drain_within, on_gone=intake.discard)
        self._rolling = Rolling(repository, self._rollouts)
        self._describer = Describer(dialect, first_worker)
        self._tasks: set[asyncio.Task[None]] = set()

    async def register(self, parameters: Mapping[str, str]) -> Sentence:
        """Take a model in; waits for its workers unless `synchronous` is false. What fails leaves nothing behind."""
        if not self._model_api:
            raise ModelApiOff
        wish = wish_of(parameters) if self._dialect.has_versions else None
        config = await self._intake.prepare(_readable(parameters) if self._dialect.is_lenient else parameters)
        try:
            if wish is not None:
                return await self._roll_out(config, wish, parameters)
            if config.workers and not _is_true(parameters.get("synchronous", "true")):
                self._spawn(_start(self._repository.add(config)))
                self._on_changed()
                return 202, "Processing worker updates..."
            await self._repository.register(config)
        except BaseException as error:
            self._intake.discard(config)
            if isinstance(error, Conflict) and wish is None:
                words = self._dialect.conflict.format(model=config.name, version=config.version)
                raise Conflict(words) from None
            if isinstance(error, LoadFailed):
                raise _reworded(error, self._dialect.load_failed, config.name, config.version) from None
            raise
        self._on_changed()
        words = self._dialect.registered if config.workers else self._dialect.registered_idle
        return 200, words.format(model=config.name, version=config.version, workers=config.workers)

    async def scale(self, name: str, version: str, parameters: Mapping[str, str]) -> Sentence:
        """Set how many workers a version has; waits for them only where `synchronous` is true."""
        model = self._repository.find(name, version)
        low = self._number(parameters, "min_worker", 1)
        high = self._number(parameters, "max_worker", low)
        if low < 0:
            raise NegativeWorkers(f"min_worker must be 0 or more, got {low}")
        if high < low:
            raise InvalidInput("max_worker cannot be less than min_worker.")
        if low > MOST_WORKERS:
            raise InvalidInput(f"min_worker can be {MOST_WORKERS} at most, got {low}")
        if not _is_true(parameters.get("synchronous", "false")):
            self._spawn(self._scale_later(model, low, high))
            return 202, "Processing worker updates..."
        try:
            await model.scale(low, high)
        except LoadFailed as error:
            raise _reworded(error, self._dialect.scale_failed, name, version or "null") from None
        finally:
            self._on_changed()
        words = self._dialect.scaled_version if version else self._dialect.scaled
        return 200, words.format(model=name, version=version, workers=low, running=model.pool.size)

    async def set_default(self, name: str, version: str) -> Sentence:
        """Make a version the one that the bare name means."""
        try:
            self._repository.set_default(name, version)
        except VersionNotFound:
            raise UnknownVersion(name, version) from None
        self._on_changed()
        return 200, f'Default version successfully updated for model "{name}" to "{version}"'

    async def share(self, name: str, version: str, parameters: Mapping[str, str]) -> Sentence:
        """Let a version beside the default one have a share of the requests that name none."""
        return 200, self._rolling.share(name, version, parameters)

    async def unregister(self, name: str, version: str) -> Sentence:
        """Take a version out; it finishes what it had."""
        if not self._model_api:
            raise ModelApiOff
        model = self._repository.find(name, version)
        is_done = await self._repository.unregister(name, version, self._drain_within)
        self._intake.discard(model.config)
        self._on_changed()
        if not is_done and self._dialect.reports_busy:
            raise StillBusy(f"model {name!r} did not finish in {self._drain_within:g} s; the rest was ended")
        return 200, f'Model "{name}" unregistered'

    async def drain(self, name: str, version: str) -> Sentence:
        """Let a version finish what it has and take nothing new; it stays, without workers, until it is scaled."""
        model = self._repository.find(name, version)
        is_done = await model.rest(self._drain_within)
        self._on_changed()
        if not is_done:
            raise StillBusy(f"model {name!r} did not finish in {self._drain_within:g} s; the rest was ended")
        return 200, f'Model "{name}" drained; scale it to bring it back'

    async def describe(self, name: str, version: str, *, customized: bool) -> list[dict[str, Any]]:
        """Tell of a version, or of `all`; `customized` asks the handler as well, of one version."""
        if version == "all":
            models = self._repository.versions(name)
            customized = False
        else:
            models = [self._repository.find(name, version)]
        metadata = await self._ask_handler(models[0]) if customized else None
        gpus = {gpu_of(worker.device) for model in models for worker in model.pool.describe()} - {None}
        usage = await asyncio.to_thread(self._usage, gpus) if gpus else {}
        described = [self._describer.describe(model, usage) for model in models]
        if not self._dialect.is_bare and (rolled := self._rollouts.describe(name)):
            described = [facts | rolled for facts in described]
        if metadata is not None:
            described[0] = _before(described[0], "state", {"customizedMetadata": metadata})
        return described

    def list_models(self, limit: int, token: int) -> dict[str, Any]:
        """Give a page of names, sorted, each with where its default version came from."""
        limit = limit if 0 <= limit <= MOST_LISTED else MOST_LISTED
        start = max(0, token)
        found = [
            model for name in self._repository.names() if not (model := self._repository.find(name)).config.is_hidden
        ]
        page: dict[str, Any] = {"nextPageToken": str(start + limit)} if start + limit <= len(found) else {}
        rows = [{"modelName": model.name, "modelUrl": url_of(model)} for model in found[start : start + limit]]
        return {**page, "models": rows}

    def is_ready(self, name: str) -> bool:
        """Say whether a model is ready in KServe's sense."""
        model = self._repository.find(name)
        return model.pool.size > 0 if self._dialect.ready_when_wanted else model.is_ready

    async def _roll_out(self, config: ModelConfig, wish: Wish, parameters: Mapping[str, str]) -> Sentence:
        if not _is_true(parameters.get("synchronous", "true")):
            self._spawn(self._roll_out_later(config, wish))
            return 202, "Processing worker updates..."
        sentence = await self._rolling.bring(config, wish)
        self._on_changed()
        return 200, sentence

    async def _roll_out_later(self, config: ModelConfig, wish: Wish) -> None:
        try:
            await self._rolling.bring(config, wish)
            self._on_changed()
        except ServingError as error:
            self._intake.discard(config)
            log.error("%s", error, extra={"fields": {"model": config.name, "version": config.version}})

    def _number(self, parameters: Mapping[str, str], name: str, default: int) -> int:
        try:
            return int(parameters.get(name, default))
        except ValueError:
            if self._dialect.is_lenient:
                return default
            raise InvalidInput(f"{name} is a whole number, got {parameters[name]!r}") from None

    def _usage(self, gpus: set[int | None]) -> dict[int, str]:
        return {gpu: self._gpu_usage(gpu) for gpu in gpus if gpu is not None}

    async def _ask_handler(self, model: Model) -> dict[str, Any] | None:
        """Send the handler a request that asks what it has to say of itself; it travels alone."""
        if not model.pool.size:
            raise NoDescriber(f"model {model.name!r} has no workers to describe it; scale it to at least one")
        answer: asyncio.Future[bytes] = asyncio.get_running_loop().create_future()
        pieces: list[bytes] = []

        def hear(request: Request, outcome: Outcome, is_last: bool) -> None:
            if answer.done():
                return
            if isinstance(outcome, ServingError):
                answer.set_exception(outcome)
                return
            pieces.append(bytes(outcome.body))
            if is_last:
                answer.set_result(b"".join(pieces))

        now = self._clock.now()
        payload = Payload([Part("body", "", b"")], [(b"describe", b"True"), (b"explain", b"False")])
        request = Request(payload, hear, now, group=object(), deadline=now + model.config.response_timeout)
        model.submit(request)
        try:
            body = await answer
        except (DeadlineExceeded, ResponseTimeout) as error:
            raise NoDescription(f"the handler of model {model.name!r} did not describe itself: {error}") from None
        finally:
            model.withdraw(request)  # nothing, unless nobody waits any more
        try:
            value = msgspec.json.decode(body)
        except msgspec.DecodeError:
            value = {}
        return value if value is None or isinstance(value, dict) else {}

    async def _scale_later(self, model: Model, low: int, high: int) -> None:
        await _scale(model, low, high)
        self._on_changed()

    def _spawn(self, work: Coroutine[Any, Any, None]) -> None:
        task = asyncio.get_running_loop().create_task(work)
        self._tasks.add(task)
        task.add_done_callback(self._tasks.discard)


async def _start(model: Model) -> None:
    try:
        await model.start()
    except ServingError as error:
        log.error("%s", error, extra={"fields": {"model": model.name, "traceback": getattr(error, "traceback", "")}})


async def _scale(model: Model, low: int, high: int) -> None:
    try:
        await model.scale(low, high)
    except ServingError as error:
        fields = {"model": model.name, "traceback": getattr(error, "traceback", "")}
        log.error("scaling failed: %s", error, extra={"fields": fields})


def _reworded(error: LoadFailed, words: str, model: str, version: str) -> LoadFailed:
    """Put the dialect's sentence before the reason."""
    return type(error)(words.format(model=model, version=version, reason=error), error.traceback)


def _readable(parameters: Mapping[str, str]) -> dict[str, str]:
    """Leave out numbers that are none: the default is meant. Fewer than no workers are none."""
    kept = {key: value for key, value in parameters.items() if key not in NUMBERS or _is_whole(value)}
    if int(kept.get("initial_workers", 0)) < 0:
        kept["initial_workers"] = "0"
    return kept


def _is_whole(text: str) -> bool:
    return text.removeprefix("-").isdecimal() and len(text) < 10


def _is_true(text: str) -> bool:
    return text.lower() == "true"


def _before(fields: dict[str, Any], mark: str, more: dict[str, Any]) -> dict[str, Any]:
    """Put more fields before the one named."""
    at = list(fields).index(mark)
    rows = list(fields.items())
    return dict([*rows[:at], *more.items(), *rows[at:]])
