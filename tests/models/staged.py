"""Three stages that do next to nothing."""

from typing import Any


class Staged:
    def decode(self, item: Any) -> Any:
        return item

    def inference(self, data: list[Any]) -> list[Any]:
        return data

    def encode(self, output: Any) -> Any:
        return output
