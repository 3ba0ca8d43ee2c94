"""ResNet-50 from JPEGs behind mosec, for `benchmarks.gpu --peers mosec`; the settings are in the environment."""

import json
import os
from typing import Any

from mosec import Server, Worker  # type: ignore[import-not-found]

from benchmarks.gpu import handler_of


class Photos(Worker):  # type: ignore[misc]
    """Takes whole batches of JPEGs; several workers overlap the decoding of one with the network of another."""

    def __init__(self) -> None:
        self.handler = handler_of("photos", int(os.environ["BENCHMARK_DEPTH"]))

    def deserialize(self, data: bytes) -> bytes:
        """Leave the body as it is."""
        return data

    def serialize(self, data: Any) -> bytes:
        """Answer in JSON."""
        return json.dumps(self.handler.encode(data)).encode()

    def forward(self, data: list[bytes]) -> list[Any]:
        """Decode on the GPU, then run the network."""
        return list(self.handler.inference(self.handler.decode_batch([memoryview(one) for one in data])))


if __name__ == "__main__":
    server = Server()
    server.append_worker(
        Photos,
        num=int(os.environ["BENCHMARK_WORKERS"]),
        max_batch_size=int(os.environ["BENCHMARK_MAX_BATCH"]),
        max_wait_time=5,
        timeout=60,
        start_method="spawn",
    )
    server.run()
