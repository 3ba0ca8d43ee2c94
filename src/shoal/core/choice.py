"""Which policy or batcher settings mean; the server and `@shoal.batched` ask the same question."""

from collections.abc import Mapping
from typing import Literal

from shoal.config.model import Batching
from shoal.config.scheduling import DynamicBatching, Scheduling, SequenceBatching
from shoal.core import rounds
from shoal.core.adaptive import Adaptive
from shoal.core.batcher import Batcher
from shoal.core.levels import LevelQueue
from shoal.core.order import AnswerOrder
from shoal.core.policy import Fixed, Policy, Single
from shoal.core.preferred import Preferred
from shoal.core.queue import RequestQueue
from shoal.core.sequence import SequenceBatcher

LARGEST_BATCH = 256  # rows, where nobody set a limit
Rule = Literal["adaptive", "fixed", "single"]


def policy_for(rule: Rule, batch_size: int, max_batch_delay: float, costs: Mapping[int, float] | None = None) -> Policy:
    """Make the rule by which batches leave; a batch_size of 0 is no limit of the user's, the delay is in ms."""
    match rule:
        case "single":
            return Single()
        case "fixed":
            return Fixed(max(1, batch_size), max_batch_delay / 1000)
        case "adaptive":
            return Adaptive(batch_size or LARGEST_BATCH, costs)


def batcher_for(
    model: str,
    queue_size: int,
    batching: Batching,
    scheduling: Scheduling | None = None,
    *,
    client_share: float = 1.0,
    costs: Mapping[int, float] | None = None,
) -> Batcher | SequenceBatcher:
    """Make what decides for a model: by Triton's settings where it has them, by its own otherwise.

    `costs` are the seconds of batches by rows, where they are known beforehand.
    """
    if scheduling is None:
        policy = policy_for(batching.rule, batching.batch_size, batching.max_batch_delay, costs)
        return Batcher(RequestQueue(model, queue_size, client_share), policy)
    limit = max(1, scheduling.max_batch_size)
    if scheduling.sequence_batching is not None:
        return _in_sequences(model, queue_size, limit, scheduling.sequence_batching)
    if scheduling.dynamic_batching is not None:
        return _dynamic(model, queue_size, limit, scheduling.dynamic_batching)
    return Batcher(LevelQueue(model, queue_size), Single())


def _dynamic(model: str, queue_size: int, limit: int, settings: DynamicBatching) -> Batcher:
    queue = LevelQueue(model, queue_size, settings.policies, settings.default_priority_level or 1)
    policy = Preferred(limit, settings.preferred_batch_size, settings.max_queue_delay_microseconds / 1e6)
    return Batcher(queue, policy, AnswerOrder() if settings.preserve_ordering else None)


def _in_sequences(model: str, queue_size: int, limit: int, settings: SequenceBatching) -> SequenceBatcher:
    slots = limit
    if (oldest := settings.oldest) is not None:
        slots = oldest.max_candidate_sequences or limit
        delay = oldest.max_queue_delay_microseconds / 1e6
        policy: rounds.Round = rounds.Oldest(Preferred(limit, oldest.preferred_batch_size, delay))
    elif (direct := settings.direct) is not None:
        policy = rounds.Direct(limit, direct.max_queue_delay_microseconds / 1e6, direct.minimum_slot_utilization)
    else:
        policy = rounds.Direct(limit)
    return SequenceBatcher(
        model, queue_size, policy, slots=slots, idle=settings.idle_seconds, id_type=settings.correlation_type
    )
