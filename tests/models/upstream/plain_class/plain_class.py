"""A class of its own, derived from nothing, beside a class that is only imported."""

from collections import OrderedDict
from typing import Any


class Doubler:
    def __init__(self) -> None:
        self.factor = 0

    def initialize(self, context: Any) -> None:
        self.factor = context.model_yaml_config.get("factor", 2)

    def handle(self, data: Any, context: Any) -> Any:
        return [OrderedDict(doubled=self.factor * row["body"]) for row in data]
