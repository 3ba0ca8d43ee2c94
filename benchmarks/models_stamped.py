"""The demo's classifier, which says with each answer when its three methods began and ended."""

import time
from typing import Any

from shoal.demo.bees import Bees


class Stamped(Bees):
    """Times are of the clock that all processes of a machine share; for one request at a time."""

    def decode(self, item: Any) -> Any:
        """Read the picture."""
        self.stamps = [time.perf_counter()]
        decoded = super().decode(item)
        self.stamps.append(time.perf_counter())
        return decoded

    def inference(self, batch: list[Any]) -> list[Any]:
        """Run the network."""
        self.stamps.append(time.perf_counter())
        results = super().inference(batch)
        self.stamps.append(time.perf_counter())
        return results

    def encode(self, output: Any) -> dict[str, Any]:
        """Name what it saw, and say when."""
        self.stamps.append(time.perf_counter())
        answer = super().encode(output)
        self.stamps.append(time.perf_counter())
        return {**answer, "stamps": self.stamps}
