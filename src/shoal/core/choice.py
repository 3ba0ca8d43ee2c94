"""Which policy a setting means; the server and `@shoal.batched` ask the same question."""

from typing import Literal

from shoal.core.adaptive import Adaptive
from shoal.core.policy import Fixed, Policy, Single

LARGEST_BATCH = 256  # rows, where nobody set a limit
Rule = Literal["adaptive", "fixed", "single"]


def policy_for(rule: Rule, batch_size: int, max_batch_delay: float) -> Policy:
    """Make the rule by which batches leave; a batch_size of 0 is no limit of the user's, the delay is in ms."""
    match rule:
        case "single":
            return Single()
        case "fixed":
            return Fixed(max(1, batch_size), max_batch_delay / 1000)
        case "adaptive":
            return Adaptive(batch_size or LARGEST_BATCH)
