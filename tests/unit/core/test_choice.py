"""Which batcher settings mean."""

from typing import Any

import pytest

from shoal.config.model import Batching
from shoal.config.scheduling import scheduling_of
from shoal.core.adaptive import Adaptive
from shoal.core.batcher import Batcher
from shoal.core.choice import batcher_for
from shoal.core.levels import LevelQueue
from shoal.core.policy import Fixed, Single
from shoal.core.preferred import Preferred
from shoal.core.queue import RequestQueue
from shoal.core.sequence import SequenceBatcher


def made(max_batch_size: int = 8, **settings: Any) -> Batcher | SequenceBatcher:
    return batcher_for("m", 7, Batching(), scheduling_of({"max_batch_size": max_batch_size, **settings}, "m"))


def test_without_tritons_settings_the_models_own_decide() -> None:
    adaptive, fixed = batcher_for("m", 7, Batching()), batcher_for("m", 7, Batching(batch_size=4))

    assert isinstance(adaptive.queue, RequestQueue)
    assert isinstance(adaptive.policy, Adaptive)
    assert isinstance(fixed.policy, Fixed)
    assert adaptive.queue.limit == 7


def test_no_scheduler_is_one_by_one() -> None:
    batcher = made()

    assert isinstance(batcher.policy, Single)
    assert isinstance(batcher.queue, LevelQueue)
    assert batcher.queue.limit == 7


def test_dynamic_batching_has_its_numbers() -> None:
    batcher = made(dynamic_batching={"preferred_batch_size": [4], "max_queue_delay_microseconds": 1500})

    assert isinstance(batcher, Batcher)
    assert isinstance(batcher.policy, Preferred)
    assert (batcher.policy.limit, batcher.policy.sizes, batcher.policy.delay) == (8, [4], 0.0015)
    assert batcher.order is None
    ordered = made(dynamic_batching={"preserve_ordering": True})
    assert isinstance(ordered, Batcher)
    assert ordered.order is not None


@pytest.mark.parametrize(
    ("max_batch_size", "strategy", "slots"),
    [(8, {}, 8), (0, {}, 1), (8, {"oldest": {}}, 8), (8, {"oldest": {"max_candidate_sequences": 20}}, 20)],
)
def test_sequences_have_their_slots(max_batch_size: int, strategy: dict[str, Any], slots: int) -> None:
    batcher = made(max_batch_size, sequence_batching=strategy)

    assert isinstance(batcher, SequenceBatcher)
    assert batcher._slots.each == slots
    assert (batcher.limit, batcher.idle, batcher.policy.limit) == (7, 1.0, max(1, max_batch_size))
