"""What the demo's models say, without the models: for tests of the page that shows it."""

import time
from typing import Any

import shoal

MAGIC = (b"\xff\xd8", b"\x89PNG")


def check(item: Any) -> bytes:
    if not isinstance(item, bytes) or not item.startswith(MAGIC):
        raise shoal.InvalidInput("not an image this model reads <b>at all</b>")
    return item


class Bees(shoal.Handler):
    def decode(self, item: Any) -> bytes:
        return check(item)

    def inference(self, batch: list[bytes]) -> list[bytes]:
        time.sleep(0.004)
        return batch

    def encode(self, output: bytes) -> dict[str, Any]:
        top = [{"label": f"class {number}", "probability": 0.5 / 2**number} for number in range(5)]
        return {**top[0], "top": top, "bees_or_ants": {"bee": 0.75, "ant": 0.25}, "is_insect": True}


class Ocr(Bees):
    def encode(self, output: bytes) -> dict[str, Any]:
        line = {"text": "HARBOUR STREET", "confidence": 0.98, "box": [10, 10, 200, 40]}
        return {"text": "HARBOUR STREET", "lines": [line]}
