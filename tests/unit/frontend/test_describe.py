from typing import Any

import pytest

from shoal.config.model import Batching, ModelConfig
from shoal.core.adaptive import Adaptive
from shoal.core.model import Model
from shoal.frontend.describe import Describer
from shoal.frontend.dialect import NATIVE
from tests.support import Bench, FakeClock, FakePool


def model(**config: Any) -> Model:
    made = ModelConfig(**{"name": "m", "path": "m.py", **config})
    return Model(made, Bench(Adaptive()).scheduler, FakePool(), FakeClock())


def described(made: Model) -> dict[str, Any]:
    return Describer(NATIVE, 0).describe(made, {})


def test_a_proof_under_way_is_told_with_its_outcome() -> None:
    made = model(prove_batching=True)
    assert described(made)["batching"]["proof"] == "not yet"
    assert described(made)["batching"]["policy"] == "adaptive"

    made.proof.settle(True, "")
    assert described(made)["batching"]["proof"] == "yes"
    made.proof.settle(False, "it answers in pieces")
    facts = described(made)
    assert facts["batching"]["proof"] == "no: it answers in pieces"
    assert (facts["batching"]["policy"], facts["batchSize"]) == ("single", 1)


@pytest.mark.parametrize("config", [{}, {"continuous": True, "prove_batching": True}])
def test_nothing_is_said_of_a_proof_that_nobody_needs(config: dict[str, Any]) -> None:
    assert "proof" not in described(model(**config))["batching"]


@pytest.mark.parametrize(("size", "told"), [(4, 4), (0, 1)])
def test_continuous_batching_is_told_with_its_places(size: int, told: int) -> None:
    facts = described(model(continuous=True, batching=Batching(batch_size=size)))

    assert facts["batchSize"] == told
    assert facts["continuousBatching"] is True
    assert facts["batching"]["policy"] == "continuous"
