"""Ensembles whose members are real models without processes, asked over HTTP."""

import asyncio
import json
import struct
from typing import Any

import pytest

from shoal.config.model import Interface, ModelConfig, TensorSpec
from shoal.config.scheduling import EnsembleScheduling, Scheduling, Step
from shoal.core.model import Life, Model
from shoal.core.relay import NoWorkers
from shoal.core.request import InSequence
from shoal.errors import DeadlineExceeded, HandlerFailed, QueueTimeout, WorkerDied
from shoal.payload import Result
from shoal.telemetry import ModelStats
from shoal.tensor import read_part_type
from shoal.triton.inside import Inside, told_of
from shoal.triton.passage import STUCK, fitted, relay_of
from tests.support import FakeAlarm
from tests.unit.frontend.api_fakes import Answer
from tests.unit.frontend.kserve.bed import Bed, Memory, behind, binary, given, interface, spec, tensors

FOUR = struct.pack("<4f", 1, 2, 3, 4)
EIGHT = struct.pack("<4f", 5, 6, 7, 8)
BODY: dict[str, Any] = {"inputs": [given("IN")]}


def step(model: str, reads: str, writes: str, version: int = -1) -> Step:
    return Step(model_name=model, model_version=version, input_map={"IN": reads}, output_map={"OUT": writes})


def put_ensemble(bed: Bed, *steps: Step, most: int = 0, taken: Interface | None = None, name: str = "e") -> Model:
    config = ModelConfig(
        name=name,
        version="1",
        path=name,
        backend="ensemble",
        interface=taken or interface(),
        scheduling=Scheduling(
            max_batch_size=4, ensemble_scheduling=EnsembleScheduling(step=list(steps), max_inflight_requests=most)
        ),
    )
    stats = ModelStats(name, "1")
    bed.series.watch(stats)
    relay = relay_of(config, Inside(bed.desk), FakeAlarm(), stats, bed.clock.now)
    model = Model(config, relay, NoWorkers(relay), bed.clock)
    asyncio.run(model.start())
    bed.repository.put(model)
    return model


def chain(**fields: Any) -> tuple[Bed, Model]:
    bed = Bed()
    bed.add("pre")
    bed.add("net", **fields)
    return bed, put_ensemble(bed, step("pre", "IN", "mid"), step("net", "mid", "OUT"))


def out(data: bytes = FOUR, *shape: int, **fields: Any) -> Result:
    return tensors(("OUT", "FP32", list(shape) or [1, 4], data), **fields)


def test_a_request_goes_from_model_to_model_and_says_the_same_to_each() -> None:
    bed, _ = chain()
    parameters = {"sequence_id": 5, "sequence_end": True, "priority": 2, "timeout": 250_000, "mine": "x"}
    answer = bed.infer(
        {"id": "i", "inputs": [given(shape=[2, 4], data=[1, 2, 3, 4] * 2)], "parameters": parameters}, name="e"
    )
    (first,) = bed.running("pre")
    bed.reply(out(FOUR + EIGHT, 2, 4), name="pre")
    (second,) = bed.running("net")

    for request in (first, second):
        told = told_of(request.payload)
        assert (told.id, told.parameters, told.outputs) == ("i", {"mine": "x"}, ["OUT"])
        assert (request.rows, request.priority, request.timeout) == (2, 2, 0.25)
        assert request.sequence == InSequence(5, False, True)
    (part,) = second.payload.parts
    assert (part.name, read_part_type(part.content_type)) == ("IN", ("FP32", (2, 4)))
    assert bytes(part.data) == FOUR + EIGHT  # type: ignore[arg-type]
    bed.reply(out(EIGHT + FOUR, 2, 4), name="net")
    assert answer.status == 200
    assert answer.json == {
        "id": "i",
        "model_name": "e",
        "model_version": "1",
        "parameters": {"sequence_id": 5, "sequence_start": False, "sequence_end": True},
        "outputs": [{"name": "OUT", "datatype": "FP32", "shape": [2, 4], "data": [5, 6, 7, 8, 1, 2, 3, 4]}],
    }


def test_tensors_between_models_are_not_copied() -> None:
    bed, _ = chain()
    bed.infer(BODY, name="e")
    whole = bytearray(tensors(("OUT", "FP32", [1, 4], FOUR)).body)
    bed.reply(Result(memoryview(whole), out().content_type), name="pre")
    (request,) = bed.running("net")
    whole[-4:] = struct.pack("<f", 9)

    assert bytes(request.payload.parts[0].data)[-4:] == struct.pack("<f", 9)  # type: ignore[arg-type]


def test_time_and_work_are_counted_for_the_ensemble_and_for_each_model() -> None:
    bed, model = chain()
    bed.infer(BODY, name="e")
    bed.clock.time += 1.0
    bed.reply(out(), name="pre")
    bed.reply(out(), name="net")
    shown = bed.series.statistics(model.scheduler.stats)

    assert (shown["inference_count"], shown["execution_count"]) == (1, 1)
    stats = shown["inference_stats"]
    assert stats["success"] == {"count": 1, "ns": 1_000_000_000}
    assert stats["queue"] == {"count": 1, "ns": 0}
    assert [stats[f"compute_{name}"]["ns"] for name in ("input", "infer", "output")] == [2e6, 4e6, 6e6]
    for name in ("pre", "net"):
        own = bed.series.statistics(bed.benches[name, "1"].stats)["inference_stats"]
        assert own["success"]["count"] == 1
        assert own["compute_infer"]["ns"] == 2e6


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (HandlerFailed("no luck", status=404), 404, "in ensemble 'e', no luck"),
        (HandlerFailed("oh dear"), 500, "in ensemble 'e', oh dear"),
        (WorkerDied("it died"), 500, "in ensemble 'e', it died"),
        (QueueTimeout("Request timeout expired"), 503, "[request id: 7] in ensemble 'e', Request timeout expired"),
    ],
)
def test_an_error_of_a_model_is_that_of_the_ensemble(error: Any, status: int, words: str) -> None:
    bed, model = chain()
    answer = bed.infer({**BODY, "id": "7"}, name="e")
    bed.reply(error, name="pre")

    assert (answer.status, answer.json) == (status, {"error": words})
    assert bed.running("net") == []
    assert model.scheduler.is_idle
    assert str(error) == words.partition("e', ")[2], "the error itself belongs to the model"


def test_errors_of_ensembles_in_ensembles_name_both() -> None:
    bed, _ = chain()
    put_ensemble(bed, step("e", "IN", "OUT"), name="around")
    answer = bed.infer(BODY, name="around")
    bed.reply(HandlerFailed("no"), name="pre")

    assert answer.json == {"error": "in ensemble 'around', in ensemble 'e', no"}


def test_an_ensemble_may_be_a_step_of_another() -> None:
    bed, _ = chain()
    put_ensemble(bed, step("e", "IN", "t"), step("net", "t", "OUT"), name="around")
    answer = bed.infer(BODY, name="around")
    bed.reply(out(), name="pre")
    bed.reply(out(EIGHT), name="net")
    bed.reply(out(), name="net")

    assert answer.json["outputs"][0]["data"] == [1, 2, 3, 4]


def test_a_model_that_does_not_take_the_request_fails_it() -> None:
    bed = Bed(limit=1)
    bed.add("pre")
    model = put_ensemble(bed, step("pre", "IN", "OUT"))
    answers = [bed.infer(BODY, name="e") for _ in range(2)]

    assert answers[1].status == 503
    assert "in ensemble 'e'" in answers[1].json["error"]
    assert model.scheduler.running == 1


def test_the_deadline_holds_for_every_step() -> None:
    bed, _ = chain()
    answer = Answer("/v2/models/e/infer", "POST", json.dumps(BODY).encode())
    answer.exchange.timeout = b"500"
    bed.routes.take(answer.exchange)
    (first,) = bed.running("pre")
    bed.reply(out(), name="pre")
    (second,) = bed.running("net")

    assert first.deadline == second.deadline == 5.5


def test_a_client_that_leaves_withdraws_the_step_that_runs_and_starts_no_other() -> None:
    bed, model = chain()
    answer = bed.infer(BODY, name="e")
    (first,) = bed.running("pre")
    gone = answer.exchange.on_gone
    assert gone is not None
    gone()
    assert first.has_ended
    assert model.scheduler.is_idle
    bed.reply(out(), name="pre")

    assert bed.running("net") == []
    assert bed.benches["pre", "1"].stats.withdrawn == 1
    assert model.scheduler.stats.withdrawn == 1


def test_lent_memory_stays_until_everybody_who_reads_it_has_ended() -> None:
    bed = Bed()
    bed.add("a")
    bed.add("b")
    put_ensemble(
        bed,
        step("a", "IN", "A"),
        step("b", "IN", "B"),
        taken=interface(outputs=[spec("A"), spec("B")]),
    )
    body, headers = binary({"inputs": [behind("IN")]}, FOUR)
    block = Memory(body)
    answer = bed.infer(block, headers, name="e")
    (first,), (second,) = bed.running("a"), bed.running("b")
    assert {request.payload.parts[0].data.offset for request in (first, second)} == {1000 + len(body) - 16}  # type: ignore[union-attr]
    bed.reply(out(), name="a")
    released = [block.released]
    gone = answer.exchange.on_gone
    assert gone is not None
    gone()
    released.append(block.released)  # a worker still reads it
    bed.reply(out(), name="b")

    assert [*released, block.released] == [0, 0, 1]


def test_a_step_names_the_version_it_wants() -> None:
    bed = Bed()
    bed.add("m", version="1")
    bed.add("m", version="2")
    put_ensemble(bed, step("m", "IN", "mid", 1), step("m", "mid", "OUT"))
    bed.infer(BODY, name="e")
    bed.reply(out(), name="m", version="1")

    assert len(bed.running("m", "2")) == 1


def test_one_that_was_there_when_the_request_came_is_asked_though_nobody_finds_it_any_more() -> None:
    bed, _ = chain()
    bed.infer(BODY, name="e")
    bed.repository.take_out(bed.repository.find("net"))
    bed.reply(out(), name="pre")

    assert len(bed.running("net")) == 1


def test_one_that_was_replaced_meanwhile_is_not_asked() -> None:
    bed, _ = chain()
    answer = bed.infer(BODY, name="e")
    old = bed.repository.find("net")
    bed.add("net", version="2")
    old.move(Life.DRAINING)
    bed.reply(out(), name="pre")

    assert len(bed.running("net", "2")) == 1
    bed.reply(out(), name="net", version="2")
    assert answer.status == 200


def test_a_member_that_is_not_there_is_named() -> None:
    bed = Bed()
    put_ensemble(bed, step("nobody", "IN", "OUT"))
    answer = bed.infer(BODY, name="e")

    assert answer.status == 404
    assert answer.json == {"error": "in ensemble 'e', Request for unknown model: 'nobody' is not found"}


def test_a_model_that_says_nothing_leaves_the_ensemble_without_an_answer() -> None:
    bed, _ = chain()
    answer = bed.infer(BODY, name="e")
    bed.reply(Result(b""), name="pre")

    assert (answer.status, answer.json) == (500, {"error": f"in ensemble 'e', {STUCK}"})


def many(bed: Bed, most: int = 0) -> Model:
    bed.add("many", is_decoupled=True)
    bed.add("net")
    taken = interface(is_decoupled=True)
    return put_ensemble(bed, step("many", "IN", "mid"), step("net", "mid", "OUT"), taken=taken, most=most)


def stream(bed: Bed) -> Answer:
    return bed.ask("/v2/models/e/generate_stream", {"IN": [1, 2, 3, 4]})


def test_a_model_of_many_answers_makes_the_ensemble_answer_as_often() -> None:
    bed = Bed()
    many(bed)
    answer = stream(bed)
    bed.reply(out(), out(EIGHT), ends=False, name="many")
    assert len(bed.running("net")) == 1
    bed.reply(out(), name="net")
    bed.reply(Result(b""), name="many")
    bed.reply(out(EIGHT), name="net")

    assert answer.body.count(b"data: ") == 2
    assert answer.link.sent.count(b'"OUT"') == 2


def test_an_error_within_a_stream_ends_it_and_what_is_behind_it() -> None:
    bed = Bed()
    model = many(bed)
    answer = stream(bed)
    (request,) = bed.running("many")
    bed.reply(out(error="broken", code="INTERNAL"), ends=False, name="many")

    assert b"in ensemble 'e', broken" in answer.body
    assert request.has_ended
    assert model.scheduler.is_idle


def test_only_so_many_runs_of_a_step_are_under_way() -> None:
    bed = Bed()
    model = many(bed, most=2)
    bed.benches["net", "1"].policy.limit = 100
    answer = stream(bed)
    bed.reply(*[out()] * 5, Result(b""), name="many")
    sizes = []
    while model.scheduler.running:
        requests = bed.running("net")
        sizes.append(len(requests))
        for index in range(len(requests)):
            bed.reply(out(), name="net", index=index)

    assert max(sizes) <= 2
    assert answer.body.count(b"data: ") == 5


@pytest.mark.parametrize(
    ("shape", "dims", "has_rows", "seen"),
    [
        ([3, 4], [4], True, [3, 4]),
        ([4], [4], True, [1, 4]),
        ([1, 4], [4], False, [4]),
        ([3, 4], [4], False, [3, 4]),
        ([4], [4], False, [4]),
        ([2, 3, 4], [4], True, [2, 3, 4]),
    ],
)
def test_a_batch_dimension_comes_and_goes_where_only_one_side_has_it(
    shape: list[int], dims: list[int], has_rows: bool, seen: list[int]
) -> None:
    assert fitted(shape, TensorSpec(name="t", datatype="FP32", dims=dims), has_rows=has_rows) == seen


def test_an_ensemble_without_rows_may_be_of_models_that_have_them() -> None:
    bed = Bed()
    bed.add("pre")
    put_ensemble(bed, step("pre", "IN", "OUT"), taken=interface(rows=0))
    answer = bed.infer({"inputs": [given(shape=[4])]}, name="e")
    (request,) = bed.running("pre")
    assert read_part_type(request.payload.parts[0].content_type)[1] == (1, 4)
    bed.reply(out(), name="pre")

    assert answer.json["outputs"][0]["shape"] == [4]


def test_only_what_was_asked_for_is_answered_and_run() -> None:
    bed = Bed()
    bed.add("a")
    bed.add("b")
    taken = interface(outputs=[spec("A"), spec("B")])
    put_ensemble(bed, step("a", "IN", "A"), step("b", "IN", "B"), taken=taken)
    answer = bed.infer({**BODY, "outputs": [{"name": "B"}]}, name="e")
    assert bed.running("a") == []
    bed.reply(out(), name="b")

    assert [output["name"] for output in answer.json["outputs"]] == ["B"]


def test_a_deadline_that_passes_in_a_step_is_told_and_counted() -> None:
    bed, model = chain()
    answer = bed.infer(BODY, name="e")
    bed.reply(DeadlineExceeded("late"), name="pre")

    assert answer.status == 503
    assert model.scheduler.stats.expired == 1
    assert answer.json["error"].endswith("in ensemble 'e', late")
