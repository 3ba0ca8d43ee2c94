"""ResNet-50 from JPEGs behind LitServe, for `benchmarks.gpu --peers litserve`; the settings are in the environment."""

import base64
import os
from typing import Any

import litserve  # type: ignore[import-not-found]

from benchmarks.gpu import handler_of


class Photos(litserve.LitAPI):  # type: ignore[misc]
    """Takes whole batches of JPEGs; several workers overlap the decoding of one with the network of another."""

    def setup(self, device: str) -> None:
        """Make the network."""
        self.handler = handler_of("photos", int(os.environ["BENCHMARK_DEPTH"]))

    def decode_request(self, request: dict[str, str]) -> bytes:
        """Take the body out of JSON."""
        return base64.b64decode(request["image"])

    def batch(self, inputs: list[bytes]) -> list[memoryview]:
        """Keep the bodies apart: they are decoded together."""
        return [memoryview(one) for one in inputs]

    def predict(self, inputs: list[memoryview]) -> list[Any]:
        """Decode on the GPU, then run the network."""
        return list(self.handler.inference(self.handler.decode_batch(inputs)))

    def unbatch(self, outputs: list[Any]) -> list[Any]:
        """One answer for each body."""
        return outputs

    def encode_response(self, output: Any) -> Any:
        """Answer in JSON."""
        return self.handler.encode(output)


if __name__ == "__main__":
    api = Photos(max_batch_size=int(os.environ["BENCHMARK_MAX_BATCH"]), batch_timeout=0.005)
    server = litserve.LitServer(
        api,
        accelerator=os.environ["BENCHMARK_DEVICE"],
        devices=1,
        workers_per_device=int(os.environ["BENCHMARK_WORKERS"]),
        timeout=60,
        fast_queue=True,
    )
    server.run(
        host="127.0.0.1",
        port=int(os.environ["BENCHMARK_PORT"]),
        num_api_servers=max(1, (os.cpu_count() or 2) // 3),
        generate_client_file=False,
        log_level="warning",
        access_log=False,
    )
