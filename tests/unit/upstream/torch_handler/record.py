"""Writes data/*.json: what torchvision's transforms and TorchServe's handlers answer to the calls in cases.py.

Run it from the root of the repository by the Python of an environment that has torchserve, torchvision and captum:
`python -m tests.unit.upstream.torch_handler.record`.
"""

import importlib
import json
import sys
import tempfile
from collections import defaultdict
from pathlib import Path
from typing import Any

from tests.unit.upstream.torch_handler import cases


class _Metrics:
    def add_time(self, *args: Any) -> None:
        """Times are not recorded."""


def transforms() -> dict[str, Any]:
    module = importlib.import_module("torchvision.transforms")
    return {case.name: cases.summary(cases.transformed(case, module)) for case in cases.TRANSFORMED}


def answers() -> dict[str, Any]:
    return {case.name: cases.kept(_answers(case)) for case in cases.CALLED}


def _answers(case: cases.Called) -> Any:
    from ts.context import Context, RequestProcessor  # type: ignore[import-not-found]

    module = importlib.import_module(f"ts.torch_handler.{case.handler}")
    handler = next(kind for kind in vars(module).values() if getattr(kind, "__module__", "") == module.__name__)()
    with tempfile.TemporaryDirectory() as folder:
        sys.path.insert(0, folder)
        described = cases.prepare(Path(folder), case)
        context = Context("m", folder, {"model": described}, len(case.rows), None, "0", True, _Metrics(), {})
        context.request_processor = [RequestProcessor(case.headers) for _ in case.rows]
        handler.initialize(context)
        sys.path.remove(folder)
        sys.modules.pop(case.model, None)
    if case.handler == "text_classifier":
        handler.source_vocab = defaultdict(int, cases.VOCABULARY)  # a torchtext vocabulary knows unknown words
    for name, value in case.attributes.items():
        setattr(handler, name, value)
    return handler.handle(case.rows, context)


def cleaning() -> dict[str, Any]:
    handler = importlib.import_module("ts.torch_handler.text_classifier").TextClassifier()
    return {text: {name: getattr(handler, name)(text) for name in cases.CLEANERS} for text in cases.CLEANED}


def main() -> None:
    for name, make in (("transforms", transforms), ("answers", answers), ("cleaning", cleaning)):
        (cases.DATA / f"{name}.json").write_text(json.dumps(make(), indent=1) + "\n")


if __name__ == "__main__":
    main()
