"""What instances claim before they start, by the `rate_limiter` of their instance groups."""

from collections.abc import Mapping
from typing import Any

from shoal.config.model import ModelConfig
from shoal.core.turns import ALL, Claim

NOTHING = Claim({})


class Claims:
    """The claims of one model's instances."""

    def __init__(self, config: ModelConfig) -> None:
        self._config = config
        self._groups: dict[str, list[Claim]] = {}  # one for each instance, by device
        for group in config.settings.get("instance_group", ()):
            if group["passive"]:
                continue
            devices = [f"cuda:{gpu}" for gpu in group["gpus"]] if group["kind"] == "KIND_GPU" else ["cpu"]
            for device in devices:
                self._groups.setdefault(device, []).extend([claim_of(group, device)] * group["count"])

    @property
    def all(self) -> list[Claim]:
        """Every instance's."""
        return [claim for claims in self._groups.values() for claim in claims]

    @property
    def is_any(self) -> bool:
        """Whether an instance needs anything."""
        return any(claim.needs for claim in self.all)

    def of(self, instance: str) -> Claim:
        """Give the claim of an instance; the instances of a device are its groups' in their order.

        Its id is `<model>-<version>-<worker>`, and `<id>/<thread>` where a worker has several.
        """
        worker, _, thread = instance.rpartition("-")[2].partition("/")
        devices = self._config.devices or [self._config.device] * max(1, self._config.workers)
        number = int(worker) % len(devices)
        device = devices[number]
        claims = self._groups.get(device, [])
        place = devices[:number].count(device) * self._config.instances + int(thread or 0)
        return claims[place % len(claims)] if claims else NOTHING


def claim_of(group: Mapping[str, Any], device: str) -> Claim:
    """Read the claim of an instance of a group on a device; the processor counts as the first device."""
    limiter = group.get("rate_limiter") or {}
    number = int(device.partition(":")[2] or 0)
    needs = {
        (resource["name"], ALL if resource["global"] else number): resource["count"]
        for resource in limiter.get("resources", ())
    }
    return Claim(needs, limiter.get("priority", 0) or 1)
