"""Source: where a scheduler's batches come from, as far as it has to know."""

from typing import Protocol

from shoal.core.batch import Batch
from shoal.core.batcher import WaitUntil
from shoal.core.policy import Fleet
from shoal.core.request import Request


class Waiting(Protocol):
    """What waits for one model, as far as the loop has to know."""

    limit: int  # requests

    def __len__(self) -> int: ...

    def next_deadline(self) -> float:
        """When it should be looked at again, whatever happens."""
        ...

    def drain(self) -> list[Request]:
        """Take out everybody."""
        ...


class Rule(Protocol):
    """What can be told about how batches leave."""

    @property
    def limit(self) -> int:
        """The most rows a batch may have."""
        ...

    def describe(self) -> dict[str, object]:
        """Tell what it was given and what it has learned."""
        ...


class Source(Protocol):
    """Where batches come from: a Batcher, or a SequenceBatcher."""

    fleet: Fleet
    expired: int  # requests refused for their time
    failed: int  # requests that failed while they waited

    @property
    def queue(self) -> Waiting:
        """What waits."""
        ...

    @property
    def policy(self) -> Rule:
        """How batches leave."""
        ...

    @property
    def is_shared(self) -> bool:
        """Whether what waits may go to any instance."""
        ...

    @property
    def may_rerun(self) -> bool:
        """Whether a request may be given to a worker again."""
        ...

    def joined(self, instance: str) -> None:
        """An instance is up."""
        ...

    def left(self, instance: str) -> None:
        """An instance is gone, or will be sent nothing more. Told once."""
        ...

    def offer(self, request: Request, now: float) -> bool:
        """Take the request, or raise and take nothing. True: with it as many wait as leave together at most."""
        ...

    def withdraw(self, request: Request, now: float) -> int:
        """The client left; the number of requests that ended by it."""
        ...

    def give_back(self, requests: list[Request]) -> None:
        """Take back requests whose batch failed, to run again."""
        ...

    def expire(self, now: float) -> None:
        """End those whose time is over."""
        ...

    def take(self, instance: str, now: float, *, is_busy: bool = False) -> Batch | WaitUntil | None:
        """Make the batch that `instance` starts now, if one should leave."""
        ...

    def sent(self, batch: Batch, now: float) -> None:
        """The batch is on its way to `batch.instance`."""
        ...

    def done(self, batch: Batch, now: float) -> None:
        """No instance is busy with the batch any more."""
        ...
