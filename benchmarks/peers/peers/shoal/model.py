"""The harness's work as a user of Shoal writes it: a plain function, or a handler where there is something to decode."""

import os
import sys
from typing import Any

import shoal

sys.path.insert(0, os.environ["PEERS_COMMON"])
import work

_run = work.load(os.environ["WORKLOAD"])

if os.environ["WORKLOAD"] == "resnet18":

    class Photos(shoal.Handler):
        """A JPEG in, its class out; the next batch is decoded while one computes."""

        def decode(self, item: Any) -> Any:
            """Read a photograph."""
            return _run.decode(item)

        def inference(self, batch: Any) -> Any:
            """One forward for the whole batch."""
            return _run.forward(batch)

else:

    def predict(bodies: list[bytes]) -> Any:
        """One answer for each body."""
        return _run(bodies)
