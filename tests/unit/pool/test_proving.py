"""What the front process learns about a handler's batches from its worker: by its word, or by its end."""

import asyncio
from collections.abc import Callable

import pytest

from shoal.core.batch import Batch
from shoal.payload import Result
from shoal.pool.link import LinkedInstance, WorkerLink
from shoal.pool.worker import died_proving
from shoal.wire.channel import frame
from shoal.wire.messages import Loaded, Measured, Proved, Unloadable
from tests.support import Asked, Bench, FakeClock, ask


def nothing(_: str | Loaded | Unloadable | Measured | Proved) -> None:
    """Stands where nobody listens."""


async def link(on_proved: Callable[[Proved], None] = nothing) -> WorkerLink:
    return WorkerLink(Bench().scheduler, FakeClock(), nothing, nothing, nothing, on_proved)


def test_a_link_hands_on_what_was_proved() -> None:
    async def hear() -> list[Proved]:
        told: list[Proved] = []
        (await link(told.append)).data_received(b"".join(frame(Proved(False, "why"))))
        return told

    assert asyncio.run(hear()) == [Proved(False, "why")]


def answer(request: Asked) -> None:
    request.answer(Result(b"done"), True, 1.0)


def leave(request: Asked) -> None:
    request.withdraw(1.0)


def wait(request: Asked) -> None:
    assert not request.has_ended


@pytest.mark.parametrize(
    ("ends", "is_proof"),
    [
        ([answer, answer], True),
        ([answer, leave], True),
        ([answer, wait], False),
        ([leave, leave], False),
        ([wait, wait], False),
        ([answer], False),
    ],
)
def test_a_worker_that_died_after_all_its_answers_did_not_survive_the_check(
    ends: list[Callable[[Asked], None]], is_proof: bool
) -> None:
    async def die() -> bool:
        lost = await link()
        requests = [ask() for _ in ends]
        lost.running[1] = (LinkedInstance("a", 0, 1, lost), Batch(1, requests, "idle", 0.0), 0.0)
        for end, request in zip(ends, requests, strict=True):
            end(request)
        return died_proving(lost)

    assert asyncio.run(die()) is is_proof
