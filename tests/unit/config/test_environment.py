"""What the workers of a model see of the environment."""

from typing import Any

import pytest

from shoal.config.environment import environment_of
from shoal.config.model import MicroBatching, ModelConfig

HUGE = "glibc.malloc.hugetlb=1"


def tunables(**settings: Any) -> str | None:
    return environment_of(ModelConfig(name="m", path="m.py", **settings), {}).get("GLIBC_TUNABLES")


def test_a_worker_asks_for_huge_pages() -> None:
    assert tunables() == HUGE
    assert tunables(micro_batching=MicroBatching(parallelism={"preprocess": 1})) == HUGE


@pytest.mark.parametrize(
    "settings", [{"instances": 2}, {"micro_batching": MicroBatching(parallelism={"preprocess": 2})}]
)
def test_not_where_several_threads_of_a_stage_would_share_the_heap_that_gets_them(settings: dict[str, Any]) -> None:
    assert tunables(**settings) is None


def test_what_the_model_says_of_them_stays() -> None:
    own = {"GLIBC_TUNABLES": "glibc.malloc.hugetlb=0"}

    assert tunables(environment=own) == own["GLIBC_TUNABLES"]
    assert tunables(environment=own, instances=2) == own["GLIBC_TUNABLES"]
