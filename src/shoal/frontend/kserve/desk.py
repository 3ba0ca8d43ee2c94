"""Desk: finds the model that a client means, and gives it what was asked. Both protocols come here."""

import math
from collections.abc import Callable, Hashable
from typing import Final

from shoal.clock import Clock
from shoal.core.model import Life, Model
from shoal.core.repository import Repository
from shoal.core.request import OnAnswer, Request
from shoal.errors import InvalidInput, ModelNotFound
from shoal.frontend.kserve.asked import Asked
from shoal.frontend.kserve.controls import NO_CONTROLS, Told, encode_told
from shoal.frontend.kserve.memory import Regions
from shoal.frontend.kserve.plan import Plan
from shoal.frontend.kserve.responses import Counted, OnResponse
from shoal.frontend.kserve.status import UnknownModel, Unsupported, named
from shoal.payload import Part, Payload

MOST_PLANS: Final = 4096
MOST_TENSORS: Final = 1024  # of one request
LONGEST_ID: Final = 1024  # characters
NOTHING = encode_told(Told("", {}, []))


class NotOurs(Unsupported):
    """The model is here, but takes no tensors: another protocol serves it."""


class Desk:
    """Takes requests to models that have an interface."""

    def __init__(
        self, repository: Repository, clock: Clock, regions: Regions, on_response: OnResponse | None = None
    ) -> None:
        self.repository = repository
        self.regions = regions
        self.is_known: Callable[[str], bool] = lambda name: False  # a model that was here and is not now
        self._on_response = on_response  # hears of each answer of models that may give many
        self.now: Callable[[], float] = clock.now
        self._plans: dict[tuple[str, str], Plan] = {}
        self._seen = -1

    def find(self, name: str, version: str = "") -> Plan:
        """Give the version named, or the newest that is ready; UnknownModel where there is none.

        Versions that share a bare name take turns.
        """
        if not version and (split := self.repository.split_of(name)) is not None:
            version = split.pick(None).version
        plan = self._plans.get((name, version)) if self._seen == self.repository.changes else None
        if plan is not None and plan.model.life is Life.READY:
            return plan
        return self._look_up(name, version)

    def versions(self, name: str) -> list[Model]:
        """Every version of a model that is ready, oldest first; none where there is no such model."""
        try:
            found = self.repository.versions(name)
        except ModelNotFound:
            return []
        return sorted((model for model in found if model.life is Life.READY), key=_age)

    def is_ready(self, name: str, version: str = "") -> bool:
        """Say whether a version, or any, would answer."""
        return any(model.is_ready for model in self.versions(name) if version in ("", model.version))

    def is_lasting(self, name: str, version: str) -> bool:
        """Say whether a plan just found is the right one until the models change."""
        return (name, version) in self._plans

    def check_ours(self, name: str) -> None:
        """Raise NotOurs for a model that is here and takes no tensors."""
        try:
            model = self.repository.find(name)
        except ModelNotFound:
            return
        if model.config.interface is None:
            raise NotOurs(f"model {name!r} takes no tensors")

    def measured(self, name: str, version: str = "") -> list[Model]:
        """Give the versions that have statistics; InvalidInput where there are none."""
        found = self.versions(name)
        if not found:
            raise InvalidInput(f"requested model '{name}' is not available")
        wanted = [model for model in found if version in ("", model.version)]
        if not wanted:
            raise InvalidInput(f"requested model version is not available for model '{name}'")
        return wanted

    def all_ready(self) -> bool:
        """Say whether every model is ready, and has a worker up where it should have some."""
        expected = [model for model in self.repository if model not in self.repository.on_trial]
        return all(model.is_ready or (model.life is Life.READY and not model.pool.size) for model in expected)

    def submit(
        self, plan: Plan, asked: Asked, on_answer: OnAnswer, *, client: Hashable, deadline: float = math.inf
    ) -> Request:
        """Check a request and give it to its model, or raise why not: then what was lent to it is given back."""
        if self._on_response is not None and plan.interface.is_decoupled:
            on_answer = Counted(on_answer, plan.model, self._on_response, self.now).answer
        try:
            request = self._request(plan, asked, on_answer, client, deadline)
            plan.model.submit(request)
        except BaseException:
            asked.release()
            raise
        return request

    def _request(self, plan: Plan, asked: Asked, on_answer: OnAnswer, client: Hashable, deadline: float) -> Request:
        try:
            if len(asked.tensors) > MOST_TENSORS or len(asked.id) > LONGEST_ID:
                raise InvalidInput(f"a request has at most {MOST_TENSORS} inputs, and an id of {LONGEST_ID} characters")
            fit = plan.fit(asked)
        except InvalidInput as error:
            raise InvalidInput(named(asked.id) + str(error)) from None
        controls = asked.controls
        payload = Payload(
            [Part(tensor.name, type, tensor.data) for tensor, type in zip(asked.tensors, fit.types, strict=True)],
            [(b"v2", _told(asked))],
        )
        return Request(
            payload,
            on_answer,
            self.now(),
            id=asked.id.encode("utf-8", "replace"),
            rows=fit.rows,
            group=fit.group,
            priority=controls.priority,
            deadline=deadline,
            client=client,
            timeout=controls.timeout / 1e6,
            sequence=controls.sequence,
        )

    def _look_up(self, name: str, version: str) -> Plan:
        try:
            known = self.repository.versions(name)
        except ModelNotFound:
            raise UnknownModel(name, is_known=self.is_known(name)) from None
        on_trial = self.repository.on_trial if not version else ()  # these have what their share gives them
        ready = [model for model in self.versions(name) if version in ("", model.version) and model not in on_trial]
        if not ready:
            if known[0].config.interface is None:
                raise NotOurs(f"model {name!r} takes no tensors")
            raise UnknownModel(name, version, is_known=True)
        model = ready[-1]
        if model.config.interface is None:
            raise NotOurs(f"model {name!r} takes no tensors; its own routes are under /predictions")
        if self._seen != self.repository.changes or len(self._plans) >= MOST_PLANS:
            self._plans.clear()
            self._seen = self.repository.changes
        plan = self._plans.get((name, model.version))
        if plan is None or plan.model is not model:
            plan = self._plans[name, model.version] = Plan(model, model.config.interface)
        if version or all(other.life is not Life.LOADING for other in known):
            self._plans[name, version] = plan  # else a newer one may be ready soon
        return plan


def _told(asked: Asked) -> bytes:
    """What the worker hears beside the tensors."""
    controls = asked.controls
    if controls is NO_CONTROLS and asked.wishes is None and not asked.id:
        return NOTHING
    return encode_told(
        Told(
            asked.id,
            controls.parameters,
            list(asked.wishes) if asked.wishes is not None else [],
            controls.sequence,
            controls.timeout,
            controls.priority,
        )
    )


def _age(model: Model) -> tuple[int, str]:
    version = model.version
    return (int(version) if version.isdecimal() else -1, version)
