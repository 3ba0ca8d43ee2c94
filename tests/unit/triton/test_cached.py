"""Kept answers: who gets one, who does not, and what is counted."""

import struct
from typing import Any

import pytest

from shoal.config.model import ModelConfig
from shoal.core.model import Life, Model
from shoal.core.order import AnswerOrder
from shoal.errors import HandlerFailed, Unavailable
from shoal.frontend.kserve.asked import Asked, Tensor
from shoal.frontend.kserve.controls import NO_CONTROLS
from shoal.payload import Result
from shoal.triton.cache import OVERHEAD, ResponseCache
from shoal.triton.cached import CachedModel
from tests.support import FakePool
from tests.unit.frontend.kserve.bed import Bed, Memory, behind, binary, given, spec, tensors

FOUR = struct.pack("<4f", 1, 2, 3, 4)
OUT = tensors(("OUT", "FP32", [1, 4], FOUR))
BODY: dict[str, Any] = {"inputs": [given("IN")]}


class CachedBed(Bed):
    """Models whose answers are kept."""

    def __init__(self, size: int = 4096) -> None:
        super().__init__()
        self.cache: ResponseCache[bytes] = ResponseCache(size)

    def _build(self, config: ModelConfig) -> Model:
        plain = super()._build(config)
        tally = self.series.of(plain.scheduler.stats)
        pool = FakePool()
        pool.size = 1
        return CachedModel(
            config, plain.scheduler, pool, self.clock, None, cache=self.cache, tally=tally, now=self.clock.now
        )


def ready(size: int = 4096, **fields: Any) -> CachedBed:
    bed = CachedBed(size)
    bed.add("m", **fields)
    return bed


def filled(body: Any = BODY, **fields: Any) -> CachedBed:
    bed = ready(**fields)
    bed.infer(body)
    bed.reply(OUT)
    return bed


def test_whoever_asks_the_same_is_answered_at_once() -> None:
    bed = filled({**BODY, "id": "a"})
    answer = bed.infer({**BODY, "id": "b", "parameters": {"priority": 1, "timeout": 7}})

    assert answer.status == 200
    assert answer.json["id"] == "b"
    assert answer.json["outputs"][0]["data"] == [1, 2, 3, 4]
    assert 'batch;desc="1 cached"' in answer.headers["server-timing"]
    assert bed.running() == []
    stats = bed.series.statistics(bed.benches["m", "1"].stats)
    counts = {name: span["count"] for name, span in stats["inference_stats"].items()}
    assert counts == {
        "success": 2, "fail": 0, "queue": 2, "compute_input": 1, "compute_infer": 1, "compute_output": 1,
        "cache_hit": 1, "cache_miss": 1,
    }  # fmt: skip
    assert (stats["inference_count"], stats["execution_count"]) == (1, 1)
    assert bed.benches["m", "1"].stats.answered == 2


@pytest.mark.parametrize(
    "other",
    [
        {"inputs": [given("IN", data=[1, 2, 3, 5])]},
        {"inputs": [given("IN", shape=[2, 4], data=[1, 2, 3, 4] * 2)]},
        {**BODY, "parameters": {"temperature": 1}},
        {**BODY, "parameters": {"sequence_id": 3}},
    ],
)
def test_whoever_asks_anything_else_is_not(other: dict[str, Any]) -> None:
    bed = filled()
    bed.infer(other)

    assert len(bed.running()) == 1


def test_whoever_asks_for_other_outputs_gets_those() -> None:
    outputs = [spec("OUT"), spec("MORE")]
    bed = ready(outputs=outputs)
    both = tensors(("OUT", "FP32", [1, 4], FOUR), ("MORE", "FP32", [1, 4], FOUR))
    bed.infer({**BODY, "outputs": [{"name": "OUT"}]})
    bed.reply(OUT)
    everything = bed.infer(BODY)
    bed.reply(both)
    named = bed.infer({**BODY, "outputs": [{"name": "MORE"}, {"name": "OUT"}]})

    assert len(everything.json["outputs"]) == 2
    assert [output["name"] for output in named.json["outputs"]] == ["OUT", "MORE"]
    assert bed.cache.hits == 1


def test_a_model_that_was_loaded_anew_is_asked_anew() -> None:
    bed = filled()
    bed.repository.take_out(bed.repository.find("m"))
    bed.add("m")
    bed.infer(BODY)

    assert len(bed.running()) == 1


def test_errors_are_not_kept() -> None:
    bed = ready()
    bed.infer(BODY)
    bed.reply(HandlerFailed("no"))
    bed.infer(BODY)

    assert len(bed.running()) == 1
    assert len(bed.cache) == 0


def test_an_answer_that_is_too_large_is_given_and_not_kept() -> None:
    bed = ready(size=OVERHEAD + 8)
    answer = bed.infer(BODY)
    bed.reply(OUT)

    assert answer.status == 200
    assert len(bed.cache) == 0
    assert bed.series.statistics(bed.benches["m", "1"].stats)["inference_stats"]["cache_miss"]["count"] == 1


def test_lent_memory_is_looked_at_and_given_back() -> None:
    body, headers = binary({"inputs": [behind("IN")]}, FOUR)
    bed = filled()
    block = Memory(body)
    answer = bed.infer(block, headers)

    assert answer.status == 200
    assert block.released == 1


def test_what_is_kept_is_a_copy_of_its_own() -> None:
    bed = ready()
    bed.infer(BODY)
    data = bytearray(OUT.body)
    bed.reply(Result(memoryview(data), OUT.content_type))
    data[-4:] = b"\0\0\0\0"

    assert bed.infer(BODY).json["outputs"][0]["data"] == [1, 2, 3, 4]


def test_a_model_that_does_not_serve_answers_nothing() -> None:
    bed = filled()
    plan = bed.desk.find("m")
    plan.model.move(Life.DRAINING)
    asked = Asked("", [Tensor("IN", "FP32", [1, 4], FOUR)], None, NO_CONTROLS)

    with pytest.raises(Unavailable):
        bed.desk.submit(plan, asked, lambda *_: None, client=1)


def test_kept_answers_take_their_turn_where_order_is_kept() -> None:
    bed = filled()
    order = bed.benches["m", "1"].batcher.order = AnswerOrder()
    slow = bed.infer({"inputs": [given("IN", data=[0, 0, 0, 0])]})
    kept = bed.infer(BODY)
    assert len(order) == 2
    assert not kept.link.sent
    bed.reply(OUT)

    assert slow.status == kept.status == 200
    assert len(order) == 0


def test_the_whole_cache_is_told_of() -> None:
    bed = filled()
    bed.infer(BODY)
    told = {name: value for name, _, value in bed.cache.gauges()}

    assert told["nv_cache_num_entries"] == 1
    assert (told["nv_cache_num_hits"], told["nv_cache_num_misses"], told["nv_cache_num_lookups"]) == (1, 1, 2)
    assert 0 < told["nv_cache_util"] < 1
    assert "nv_cache_num_entries 1\n" in bed.series.page([], bed.cache.gauges())
