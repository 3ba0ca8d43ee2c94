"""Which instance claims what."""

from typing import Any

import pytest

from shoal.config.model import ModelConfig
from shoal.core.turns import ALL, Claim
from shoal.triton.rates import Claims


def group(
    name: str = "", count: int = 1, gpus: tuple[int, ...] = (), passive: bool = False, **more: Any
) -> dict[str, Any]:
    resources = [{"name": name, "global": more.get("everywhere", False), "count": 2}] if name else []
    limiter = {"rate_limiter": {"resources": resources, "priority": more.get("priority", 0)}} if name else {}
    kind = "KIND_GPU" if gpus else "KIND_CPU"
    return {"name": "g", "kind": kind, "count": count, "gpus": list(gpus), "passive": passive, **limiter}


def claims(*groups: dict[str, Any], **fields: Any) -> Claims:
    settings = {"instance_group": list(groups)}
    return Claims(ModelConfig(name="a-b", version="1", path="m", settings=settings, **fields))


def test_processes_are_the_instances_of_the_groups_in_their_order() -> None:
    found = claims(group("r", 2), group("s"), workers=3)

    names = [next(iter(found.of(f"a-b-1-{number}").needs))[0] for number in range(3)]
    assert names == ["r", "r", "s"]
    assert found.of("a-b-1-4") == found.of("a-b-1-1"), "workers that came later take the places of those that went"


def test_threads_are_instances_too() -> None:
    found = claims(group("r", 1), group("s", 3), workers=2, instances=2)

    names = [next(iter(found.of(id).needs))[0] for id in ("a-b-1-0/0", "a-b-1-0/1", "a-b-1-1/0", "a-b-1-1/1")]
    assert names == ["r", "s", "s", "s"]


def test_a_resource_is_one_for_each_device_or_one_for_all() -> None:
    devices = ["cuda:0", "cuda:1"]
    each = claims(group("r", gpus=(0, 1)), workers=2, devices=devices)
    assert [each.of(f"a-b-1-{number}") for number in (0, 1)] == [Claim({("r", 0): 2}), Claim({("r", 1): 2})]

    shared = claims(group("r", gpus=(0, 1), everywhere=True, priority=3), workers=2, devices=devices)
    assert shared.all == [Claim({("r", ALL): 2}, 3)] * 2


@pytest.mark.parametrize(
    ("groups", "is_any"), [([group()], False), ([group("r", passive=True)], False), ([group("r")], True)]
)
def test_most_models_claim_nothing(groups: list[dict[str, Any]], is_any: bool) -> None:
    found = claims(*groups)

    assert found.is_any is is_any
    if not is_any:
        assert found.of("a-b-1-0").needs == {}
