import asyncio
import json
import os
import struct
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.core.order import AnswerOrder
from shoal.core.request import InSequence
from shoal.errors import DeadlineExceeded, HandlerFailed, QueueTimeout, ResponseTimeout, ServingError, WorkerDied
from shoal.frontend.kserve.calls import MOST_BEHIND, NOT_ONE
from shoal.payload import Result
from tests.unit.frontend.api_fakes import Answer
from tests.unit.frontend.kserve.bed import Bed, Memory, behind, binary, given, spec, tensors

FOUR = struct.pack("<4f", 1, 2, 3, 4)
OUT = tensors(("OUT", "FP32", [1, 4], FOUR))
END = Result(b"")


async def until(check: Callable[[], bool]) -> None:
    """Let threads work until something has happened."""
    for _ in range(10_000):
        if check():
            return
        await asyncio.sleep(0.001)
    raise AssertionError("it did not happen")


def ready(**fields: Any) -> Bed:
    bed = Bed()
    bed.add("m", *fields.pop("inputs", ()), **fields)
    return bed


def test_a_small_answer_leaves_with_others_of_its_batch() -> None:
    bed = ready()
    answer = bed.infer({"inputs": [given()]})
    batch = bed.running()[0].batch
    assert batch is not None
    together = batch.together = []
    bed.reply(OUT)
    assert together == [answer.exchange]
    assert not answer.link.sent

    answer.exchange.leave()
    assert answer.json["outputs"][0]["data"] == [1.0, 2.0, 3.0, 4.0]


def test_a_request_reaches_its_worker_with_everything_it_said() -> None:
    bed = ready()
    parameters = {"sequence_id": 5, "sequence_end": True, "priority": 2, "timeout": 250_000, "mine": "x"}
    bed.infer(
        {
            "id": "i",
            "inputs": [given(shape=[2, 4], data=list(range(8)))],
            "outputs": [{"name": "OUT"}],
            "parameters": parameters,
        }
    )

    (request,) = bed.running()
    assert (request.id, request.rows, request.priority, request.timeout) == (b"i", 2, 2, 0.25)
    assert request.sequence == InSequence(5, False, True)
    ((name, told),) = request.payload.headers
    assert name == b"v2" and msgspec.msgpack.decode(told) == {
        "id": "i", "parameters": {"mine": "x"}, "outputs": ["OUT"], "sequence": {"id": 5, "start": False, "end": True},
        "timeout": 250_000, "priority": 2,
    }  # fmt: skip
    (part,) = request.payload.parts
    assert (part.name, part.content_type, bytes(part.data)) == ("IN", "tensor/FP32;2,4", struct.pack("<8f", *range(8)))  # type: ignore[arg-type]


def test_what_was_not_said_is_not_told() -> None:
    bed = ready()
    bed.infer({"inputs": [given()]})
    (request,) = bed.running()

    assert msgspec.msgpack.decode(request.payload.headers[0][1]) == {"id": "", "parameters": {}, "outputs": []}
    assert (request.sequence, request.priority, request.timeout) == (None, 0, 0.0)


def test_an_answer_in_json() -> None:
    bed = ready()
    answer = bed.infer({"inputs": [given()], "id": "7"})
    bed.reply(OUT)

    assert (answer.status, answer.headers["content-type"]) == (200, "application/json")
    assert answer.json == {"id": "7", "model_name": "m", "model_version": "1", "outputs": [
        {"name": "OUT", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}]}  # fmt: skip
    assert answer.headers["server-timing"] == (
        'queue;dur=0.000, preprocess;dur=1.000, inference;dur=2.000, postprocess;dur=3.000, batch;desc="1 scripted"'
    )


def test_an_answer_in_bytes() -> None:
    bed = ready()
    body, headers = binary(
        {"inputs": [behind()], "outputs": [{"name": "OUT", "parameters": {"binary_data": True}}]}, FOUR
    )
    answer = bed.infer(body, headers)
    bed.reply(OUT)

    size = int(answer.headers["inference-header-content-length"])
    assert answer.headers["content-type"] == "application/octet-stream"
    assert json.loads(answer.body[:size])["outputs"][0]["parameters"] == {"binary_data_size": 16}
    assert answer.body[size:] == FOUR


def test_a_raw_tensor_is_answered_in_bytes() -> None:
    bed = ready()
    answer = bed.infer(FOUR, {"Inference-Header-Content-Length": "0"})
    bed.reply(OUT)

    assert answer.body.endswith(FOUR) and "inference-header-content-length" in answer.headers


def test_lent_memory_comes_back_once_the_worker_is_done() -> None:
    bed = ready()
    body, headers = binary({"inputs": [behind()]}, FOUR)
    block = Memory(body)
    bed.infer(block, headers)
    (request,) = bed.running()
    assert request.payload.parts[0].data.offset == block.offset + len(body) - 16  # type: ignore[union-attr]  # a piece
    assert not block.released
    bed.reply(OUT)
    assert block.released


def test_lent_memory_comes_back_from_a_request_that_does_not_fit_the_model() -> None:
    bed = ready()
    body, headers = binary({"inputs": [behind(shape=[1, 3])]}, FOUR[:12])
    block = Memory(body)
    assert bed.infer(block, headers).status == 400 and block.released


@pytest.mark.parametrize(("encoding", "bits"), [("gzip", 31), ("deflate", 15)])
def test_an_answer_is_packed_where_the_client_likes_that(encoding: str, bits: int) -> None:
    bed = ready()
    answer = bed.infer(FOUR, {"Inference-Header-Content-Length": "0", "Accept-Encoding": encoding})
    bed.reply(OUT)

    body = zlib.decompress(answer.body, bits)
    size = int(answer.headers["inference-header-content-length"])
    assert answer.headers["content-encoding"] == encoding
    assert body[size:] == FOUR and json.loads(body[:size])["model_name"] == "m"


def test_a_large_answer_is_packed_by_a_thread() -> None:
    bed = ready(inputs=[spec("IN", "UINT8", [-1])])
    data = bytes(range(250)) * 400

    async def go() -> Any:
        answer = bed.infer(data[:9], {"Inference-Header-Content-Length": "0", "Accept-Encoding": "gzip"})
        bed.reply(tensors(("OUT", "UINT8", [1, len(data)], data)))
        assert not answer.link.sent
        await until(lambda: bool(answer.link.sent))
        return answer

    assert zlib.decompress(asyncio.run(go()).body, 31).endswith(data)


def test_a_large_packed_body_is_unpacked_by_a_thread() -> None:
    bed = ready(inputs=[spec("IN", "UINT8", [-1])])
    data = bytes((n * n) % 251 for n in range(20_000))
    noise = zlib.compress(data + bytes(hash(str(n)) % 256 for n in range(8000)))
    assert len(noise) > 4096

    async def go() -> None:
        bed.infer(noise, {"Inference-Header-Content-Length": "0", "Content-Encoding": "deflate"})
        await until(lambda: bool(bed.running()))

    asyncio.run(go())
    assert bed.running()[0].payload.parts[0].content_type == "tensor/UINT8;1,28000"


@pytest.mark.parametrize(
    ("error", "status", "words"),
    [
        (HandlerFailed("bad row", status=400), 400, "bad row"),
        (HandlerFailed("boom"), 500, "boom"),
        (HandlerFailed("gone", status=499), 400, "gone"),
        (HandlerFailed("odd", status=200), 500, "odd"),
        (WorkerDied("dead"), 500, "dead"),
        (ResponseTimeout("slow"), 500, "slow"),
        (DeadlineExceeded("late"), 503, "[request id: q] Request timeout expired: late"),
        (QueueTimeout("Request timeout expired"), 503, "[request id: q] Request timeout expired"),
    ],
)
def test_a_failure_is_told_in_upstreams_form(error: ServingError, status: int, words: str) -> None:
    bed = ready()
    answer = bed.infer({"inputs": [given()], "id": "q"})
    bed.reply(error)
    assert (answer.status, answer.json) == (status, {"error": words})


def test_an_answer_that_is_no_tensors_is_a_failure() -> None:
    bed = ready()
    answer = bed.infer({"inputs": [given()]})
    bed.reply(Result(b"text", "text/plain"))
    assert answer.status == 500 and "instead of tensors" in answer.json["error"]


def test_a_full_queue_is_told_with_a_hint() -> None:
    bed = Bed(limit=1)
    bed.add()
    body = {"inputs": [given()]}
    bed.infer(body)
    answer = bed.infer(body)
    assert answer.status == 503 and answer.headers["retry-after"] == "7"
    assert answer.json["error"].startswith("[request id: <id_unknown>] Exceeds maximum queue size")


def test_models_of_many_answers_are_not_for_plain_inference() -> None:
    bed = ready(is_decoupled=True)
    block = Memory(b"{}")
    answer = bed.infer(block)
    assert (answer.status, block.released) == (501, 1)
    assert answer.json["error"] == "HTTP end point doesn't support models with decoupled transaction policy"


def test_a_client_that_leaves_takes_its_request_with_it() -> None:
    bed = ready()
    body, headers = binary({"inputs": [behind()]}, FOUR)
    block = Memory(body)
    answer = bed.infer(block, headers)
    assert answer.exchange.on_gone is not None
    answer.exchange.on_gone()
    assert block.released and not bed.running()
    assert bed.benches["m", "1"].stats.withdrawn == 1


def test_a_deadline_of_the_clients_own_is_kept() -> None:
    bed = ready()
    answer = Answer("/v2/models/m/infer", "POST", json.dumps({"inputs": [given()]}).encode())
    answer.exchange.timeout = b"250"
    assert bed.routes.take(answer.exchange)
    assert bed.running()[0].deadline == 5.25


def test_a_deadline_that_is_none_is_refused_and_nothing_kept() -> None:
    bed = ready()
    body, headers = binary({"inputs": [behind()]}, FOUR)
    block = Memory(body)
    answer = Answer("/v2/models/m/infer", "POST", block, headers)
    answer.exchange.timeout = b"soon"
    assert bed.routes.take(answer.exchange)
    assert answer.status == 400 and block.released and "X-Request-Timeout-Ms" in answer.json["error"]


def test_outputs_go_into_the_clients_own_memory(tmp_path: Path) -> None:
    (tmp_path / "obj").write_bytes(FOUR + bytes(16))
    bed = Bed(tmp_path)
    bed.add()
    bed.regions.register("r", "/obj", 0, 32)
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 16}
    body = {
        "inputs": [given(parameters=place)],
        "outputs": [{"name": "OUT", "parameters": {**place, "shared_memory_offset": 16}}],
    }
    answer = bed.infer(body)
    (request,) = bed.running()
    assert request.payload.parts[0].data is bed.lent[0] and bytes(bed.lent[0].view) == FOUR
    held = len(os.listdir("/proc/self/fd"))
    bed.regions.unregister("r")
    assert len(os.listdir("/proc/self/fd")) == held, "it is still to be written into"
    bed.reply(tensors(("OUT", "FP32", [1, 4], FOUR[::-1])))
    assert len(os.listdir("/proc/self/fd")) == held - 1

    assert answer.json["outputs"] == [{"name": "OUT", "datatype": "FP32", "shape": [1, 4]}]
    assert (tmp_path / "obj").read_bytes() == FOUR + FOUR[::-1] and bed.lent[0].released


def test_an_output_larger_than_its_place_is_refused(tmp_path: Path) -> None:
    (tmp_path / "obj").write_bytes(bytes(8))
    bed = Bed(tmp_path)
    bed.add()
    bed.regions.register("r", "/obj", 0, 8)
    place = {"shared_memory_region": "r", "shared_memory_byte_size": 8}
    answer = bed.infer({"inputs": [given()], "outputs": [{"name": "OUT", "parameters": place}]})
    bed.reply(OUT)
    assert answer.status == 500 and "should be at least 16 bytes" in answer.json["error"]


def number(value: int) -> Result:
    return tensors(("OUT", "INT32", [1, 1], struct.pack("<i", value)))


def generating(verb: str = "generate", **fields: Any) -> tuple[Bed, Any]:
    bed = ready(inputs=[spec("IN", "INT32", [1])], is_decoupled=True, **fields)
    return bed, bed.ask(f"/v2/models/m/{verb}", {"IN": 3})


def test_a_generation_of_one_answer() -> None:
    bed, answer = generating()
    bed.reply(number(7), END)
    assert (answer.status, answer.json) == (200, {"OUT": 7, "model_name": "m", "model_version": "1"})


@pytest.mark.parametrize("pieces", [[END], [number(1), number(2), END]])
def test_a_generation_of_another_number_of_answers_is_told_so(pieces: list[Result]) -> None:
    bed, answer = generating()
    bed.reply(*pieces[:2], ends=len(pieces) < 3)
    assert (answer.status, answer.json) == (200, {"error": NOT_ONE})
    assert bed.benches["m", "1"].stats.withdrawn == (len(pieces) == 3), "nobody waits for the rest"


@pytest.mark.parametrize("error", [HandlerFailed("no", status=400), tensors(error="no", code="INVALID_ARG")])
def test_a_generation_that_fails_has_the_status_of_its_error(error: Any) -> None:
    bed, answer = generating()
    bed.reply(*([error] if isinstance(error, HandlerFailed) else [error, END]))
    assert (answer.status, answer.json) == (400, {"error": "no"})


def events(answer: Any) -> list[Any]:
    text, body = b"", answer.body
    while body:
        size, _, body = body.partition(b"\r\n")
        text, body = text + body[: int(size, 16)], body[int(size, 16) + 2 :]
    return [json.loads(event.removeprefix(b"data: ")) for event in text.split(b"\n\n") if event]


def test_a_stream_sends_answers_as_they_come() -> None:
    bed, answer = generating("generate_stream")
    bed.reply(number(0), ends=False)
    assert answer.headers["content-type"] == "text/event-stream; charset=utf-8"
    assert [event["OUT"] for event in events(answer)] == [0]
    bed.reply(number(1), tensors(error="late"), number(2), END)
    assert [event.get("OUT", event.get("error")) for event in events(answer)] == [0, 1, "late", 2]
    assert answer.status == 200 and answer.link.keep


def test_a_stream_may_be_empty_or_begin_with_an_error() -> None:
    bed, answer = generating("generate_stream")
    bed.reply(END)
    assert (answer.status, events(answer)) == (200, [])
    bed, answer = generating("generate_stream")
    bed.reply(HandlerFailed("no", status=404))
    assert (answer.status, events(answer)) == (404, [{"error": "no"}])


def test_a_client_that_does_not_read_its_stream_is_cut_off() -> None:
    bed, answer = generating("generate_stream")
    answer.link.blocked = True
    piece = tensors(("OUT", "BYTES", [1, 1], b"\0\0\x40\0" + bytes(b"x" * (4 << 20))))
    for _ in range(MOST_BEHIND // (4 << 20) + 1):
        if not answer.link.aborted:
            bed.reply(piece, ends=False)
    assert answer.link.aborted and bed.benches["m", "1"].stats.withdrawn == 1


def test_each_answer_of_many_is_counted() -> None:
    bed, _ = generating("generate_stream")
    bed.reply(number(0), tensors(error="late"), END)
    stats = bed.ask("/v2/models/m/stats").json["model_stats"][0]["response_stats"]
    counts = {
        index: {name: span["count"] for name, span in row.items() if span["count"]} for index, row in stats.items()
    }
    assert counts == {
        "0": {"compute_infer": 1, "compute_output": 1, "success": 1},
        "1": {"compute_infer": 1, "compute_output": 1, "fail": 1},
        "2": {"empty_response": 1},
    }  # fmt: skip


def test_an_answer_that_waited_for_those_before_it_is_sent_though_its_batch_is_no_more() -> None:
    bed = ready()
    bench = bed.benches["m", "1"]
    bench.batcher.order = AnswerOrder()
    quick = bench.join("quick")
    first, second = (bed.infer({"inputs": [given()]}) for _ in range(2))
    bed.running()
    batch, now = quick.batches.pop(), bed.clock.time
    bench.scheduler.freed(quick, batch, now, now)
    batch.deliver(0, OUT, True, now)
    bench.scheduler.closed(batch, now, lambda: HandlerFailed("no answer"))
    assert not second.link.sent
    bed.reply(OUT)

    assert first.status == second.status == 200
