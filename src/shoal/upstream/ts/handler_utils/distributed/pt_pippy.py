"""Pipelines of pippy over several processes, which are not provided."""

from typing import Any

from shoal.upstream.ts.utils.missing import refuse

_WHY = "it spreads a model over several processes with pippy, and a worker here is one process"


def initialize_rpc_workers(local_rank: int, world_size: int, ctx: Any) -> None:
    """Fail, saying why."""
    refuse("initialize_rpc_workers", _WHY)


def get_pipeline_driver(model: Any, world_size: int, ctx: Any) -> Any:
    """Fail, saying why."""
    refuse("get_pipeline_driver", _WHY)
