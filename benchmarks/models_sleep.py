"""A slow artificial GPU with stages: 5 ms for any batch, 0.2 ms more for each row; reading a row takes a moment too."""

import time

import shoal


class Sleep(shoal.Handler):
    """Sleeps where a device would work, so that workers and stages overlap as they would on one."""

    def preprocess(self, data: list[dict[str, bytes]]) -> list[bytes]:
        """Read the rows."""
        time.sleep(0.00005 * len(data))
        return [row["body"] for row in data]

    def inference(self, data: list[bytes]) -> list[bytes]:
        """Take as long as the device would."""
        time.sleep(0.005 + 0.0002 * len(data))
        return data

    def postprocess(self, data: list[bytes]) -> list[int]:
        """Answer with the length of each row."""
        time.sleep(0.00005 * len(data))
        return [len(row) for row in data]
