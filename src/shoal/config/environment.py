"""What the processes that hold a model see of the environment."""

import os
import re
from collections.abc import Mapping

from shoal import heap
from shoal.config.model import ModelConfig


def environment_of(config: ModelConfig, environment: Mapping[str, str]) -> dict[str, str]:
    """What the workers of a model see of the server's environment, and what they see besides."""
    hidden = re.compile(config.hidden_environment) if config.hidden_environment else None
    seen = {name: value for name, value in environment.items() if hidden is None or not hidden.fullmatch(name)}
    seen |= {"PYTHONUNBUFFERED": "1", **config.environment}
    if config.instances == 1 and all(count == 1 for count in config.micro_batching.parallelism.values()):
        # several threads of a stage would wait for each other in the one heap that gets them
        seen[heap.TUNABLES] = heap.with_huge_pages(seen.get(heap.TUNABLES, ""))
    if config.packages:
        path = seen.get("PYTHONPATH", "")
        seen["PYTHONPATH"] = f"{config.packages}{os.pathsep}{path}" if path else config.packages
    return seen
