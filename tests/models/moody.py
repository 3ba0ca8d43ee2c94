"""A model that cannot be loaded while the file it is told of exists."""

from pathlib import Path

import shoal


class Moody(shoal.Handler):
    def initialize(self, context: shoal.Context) -> None:
        if Path(context.parameters["mood"]).exists():
            raise RuntimeError("not in the mood")

    def inference(self, batch: list[bytes]) -> list[bytes]:
        return batch
