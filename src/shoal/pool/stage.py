"""Stage: where a worker is in its life."""

from enum import Enum


class Stage(Enum):
    """Where a worker is in its life."""

    STARTING = "starting"
    READY = "ready"
    DRAINING = "draining"
    WAITING = "waiting"  # for its next start, after a failure
    STOPPED = "stopped"
