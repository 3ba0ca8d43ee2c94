"""Engines of DeepSpeed over several processes, which are not provided."""

from typing import Any

from shoal.upstream.ts.utils.missing import refuse


def get_ds_engine(model: Any, ctx: Any) -> Any:
    """Fail, saying why."""
    refuse(
        "get_ds_engine", "it spreads a model over several processes with deepspeed, and a worker here is one process"
    )
