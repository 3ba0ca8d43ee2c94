"""The demo's real models on real pictures. Fetches them on the first run; skipped where they cannot be fetched."""

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import shoal.frontend
from shoal.demo.assets import DemoAssets, ensure
from shoal.demo.bees import Bees
from shoal.demo.ocr import Ocr
from shoal.errors import InvalidInput, LoadFailed

SAMPLES = Path(next(iter(shoal.frontend.__path__))) / "pages" / "samples"
SIGN = "HARBOUR STREET\nPier 42 - Aquarium\nKeep an eye on\nthe shoal of fish"


@dataclass
class StandInContext:
    parameters: dict[str, Any] = field(default_factory=dict)
    device: str = "cpu"
    model_dir: str = "."


@pytest.fixture(scope="module")
def demo() -> DemoAssets:
    try:
        return ensure()
    except LoadFailed as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def bees(demo: DemoAssets) -> Any:
    handler: Any = Bees()
    handler.initialize(StandInContext({"model": str(demo.classifier), "labels": str(demo.labels)}))
    return handler


@pytest.fixture(scope="module")
def ocr(demo: DemoAssets) -> Any:
    handler: Any = Ocr()
    handler.initialize(StandInContext({"detector": str(demo.detector), "recogniser": str(demo.recogniser)}))
    return handler


def sample(name: str) -> bytes:
    return (SAMPLES / name).read_bytes()


def answers(handler: Any, *names: str) -> list[Any]:
    return [handler.encode(each) for each in handler.inference([handler.decode(sample(name)) for name in names])]


@pytest.mark.parametrize(
    ("name", "label", "least"), [("bee.jpg", "bee", 0.9), ("ant.png", "ant", 0.8), ("espresso.jpg", "espresso", 0.8)]
)
def test_a_picture_gets_its_name(bees: Any, name: str, label: str, least: float) -> None:
    (answer,) = answers(bees, name)
    assert answer["label"] == label
    assert answer["probability"] > least


def test_a_cat_is_some_kind_of_cat_and_no_insect(bees: Any) -> None:
    (answer,) = answers(bees, "cat.jpg")
    assert {each["label"] for each in answer["top"][:3]} == {"tiger cat", "Egyptian cat", "tabby"}
    assert answer["is_insect"] is False


@pytest.mark.parametrize(("name", "insect"), [("bee.jpg", "bee"), ("ant.png", "ant")])
def test_bees_are_told_from_ants(bees: Any, name: str, insect: str) -> None:
    (answer,) = answers(bees, name)
    assert answer["is_insect"] is True
    assert answer["bees_or_ants"][insect] > 0.99


def test_a_mixed_batch_answers_as_each_alone(bees: Any) -> None:
    pictures = [bees.decode(sample(name)) for name in ("bee.jpg", "ant.png", "cat.jpg", "espresso.jpg", "sign.png")]
    together = bees.inference(pictures)
    alone = [bees.inference([picture])[0] for picture in pictures]
    np.testing.assert_allclose(together, alone, atol=1e-4)


def test_what_is_no_picture_is_refused_before_the_batch(bees: Any, ocr: Any) -> None:
    for handler in (bees, ocr):
        with pytest.raises(InvalidInput):
            handler.decode(b"no picture")


def test_the_sign_is_read(ocr: Any) -> None:
    (answer,) = answers(ocr, "sign.png")
    assert answer["text"] == SIGN
    assert [each["text"] for each in answer["lines"]] == SIGN.splitlines()
    assert all(each["confidence"] > 0.9 for each in answer["lines"])
    left, top, right, bottom = answer["lines"][0]["box"]
    assert 96 < left < right < 544
    assert 66 < top < bottom < 142


def test_a_picture_without_text_has_no_lines(ocr: Any) -> None:
    assert answers(ocr, "ant.png") == [{"text": "", "lines": []}]


def test_reading_does_not_depend_on_the_company(ocr: Any) -> None:
    names = ("sign.png", "cat.jpg", "sign.png", "ant.png")
    assert [each["text"] for each in answers(ocr, *names)] == [answers(ocr, name)[0]["text"] for name in names]


def test_handlers_find_their_models_when_told_nothing(demo: DemoAssets) -> None:
    handler: Any = Bees()
    handler.initialize(StandInContext())
    assert answers(handler, "bee.jpg")[0]["label"] == "bee"
