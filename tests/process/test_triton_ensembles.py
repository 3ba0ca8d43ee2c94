"""Ensembles, kept answers and shared resources with real workers: ONNX, then ONNX, then Python, over HTTP and gRPC."""

import struct
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import grpc
import pytest

from shoal.frontend.grpc.kserve import PREFIX
from shoal.frontend.grpc.proto import grpc_service_pb2 as pb
from tests.process.ensemble_front import PATIENCE, Front, fronting, put_all
from tests.serving import eventually


@pytest.fixture(scope="module")
def front(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Front]:
    root = tmp_path_factory.mktemp("models")
    put_all(root)
    flags = ("--cache-config=local,size=1048576", "--rate-limit=execution_count", "--model-control-mode=explicit")
    with fronting(root, root.parent / f"{root.name}.log", *flags, "--load-model=*") as front:
        yield front


def request(model: str, *values: float, id: str = "") -> pb.ModelInferRequest:
    asked = pb.ModelInferRequest(model_name=model, id=id)
    asked.inputs.add(name="X", datatype="FP32", shape=[len(values) // 4, 4])
    asked.raw_input_contents.append(struct.pack(f"<{len(values)}f", *values))
    return asked


def test_tensors_go_through_the_models_over_http(front: Front) -> None:
    status, body = front.infer("whole", [1, 5, 2, 3], [7, 5, 2, 3], id="seven")

    assert status == 200
    assert body["id"] == "seven"
    assert body["parameters"] == {"sequence_id": 0, "sequence_start": False, "sequence_end": False}
    outputs = {output["name"]: output for output in body["outputs"]}
    assert outputs["TEXT"]["data"] == ["1:11", "0:15"]
    assert outputs["TEXT"]["shape"] == [2, 1]
    assert outputs["scores"]["data"] == [3, 11, 5, 7, 15, 11, 5, 7]


def test_tensors_go_through_the_models_over_grpc(front: Front) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{front.grpc}") as channel:
        call = channel.unary_unary(
            PREFIX + "ModelInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelInferResponse.FromString,
        )
        answer = call(request("whole", 1, 5, 2, 3), timeout=PATIENCE)
        with pytest.raises(grpc.RpcError) as refused:
            call(request("whole", -9, 5, 2, 3), timeout=PATIENCE)

    found = {output.name: data for output, data in zip(answer.outputs, answer.raw_output_contents, strict=True)}
    assert found["TEXT"] == struct.pack("<I", 4) + b"1:11"
    assert struct.unpack("<4f", found["scores"]) == (3, 11, 5, 7)
    assert refused.value.code() is grpc.StatusCode.INVALID_ARGUMENT
    assert refused.value.details() == "in ensemble 'whole', below zero"


def test_an_ensemble_of_a_model_with_many_answers_streams(front: Front) -> None:
    with grpc.insecure_channel(f"127.0.0.1:{front.grpc}") as channel:
        call = channel.stream_stream(
            PREFIX + "ModelStreamInfer",
            request_serializer=pb.ModelInferRequest.SerializeToString,
            response_deserializer=pb.ModelStreamInferResponse.FromString,
        )
        answers = list(call(iter([request("counted", 3, 0, 0, 0)]), timeout=PATIENCE))

    assert [answer.error_message for answer in answers] == [""] * 3
    values = [struct.unpack("<4f", answer.infer_response.raw_output_contents[0])[0] for answer in answers]
    assert sorted(values) == [1, 2, 3]
    assert front.infer("counted", [1, 0, 0, 0])[0] == 501


def test_steps_that_do_not_need_each_other_run_side_by_side(front: Front) -> None:
    status, body = front.infer("pair", [1, 2, 3, 4], id="together")

    assert status == 200
    assert [output["data"] for output in body["outputs"]] == [[1, 2, 3, 4]] * 2


def test_a_member_that_dies_on_the_way_is_replaced_and_the_request_answered(front: Front) -> None:
    before = front.metric('shoal_worker_restarts_total{model_name="post"')
    status, body = front.infer("whole", [1000, 0, 0, 0])

    assert status == 200
    assert body["outputs"][0]["data"] == ["0:2001"]
    assert (front.root / "died").exists()
    assert front.metric('shoal_worker_restarts_total{model_name="post"') == before + 1


def test_members_batch_the_requests_of_an_ensemble_with_those_of_others(front: Front) -> None:
    before, whole = front.statistics("net"), front.statistics("whole")
    with ThreadPoolExecutor(16) as pool:
        through = [pool.submit(front.infer, "whole", [number, 0, 0, 0]) for number in range(40)]
        direct = [pool.submit(front.infer, "net", [number, 0, 0, 0], name="IN") for number in range(40)]
    answers = [done.result()[1]["outputs"][0]["data"] for done in through]
    after = front.statistics("net")

    assert answers == [[f"0:{2 * number + 1}"] for number in range(40)]
    assert [done.result()[1]["outputs"][0]["data"][0] for done in direct] == [number + 1 for number in range(40)]
    assert after["inference_count"] - before["inference_count"] == 80
    assert after["execution_count"] - before["execution_count"] < 80
    now = front.statistics("whole")
    assert now["inference_stats"]["success"]["count"] - whole["inference_stats"]["success"]["count"] == 40
    assert now["execution_count"] - whole["execution_count"] == 40
    assert now["inference_stats"]["compute_infer"]["ns"] > whole["inference_stats"]["compute_infer"]["ns"]


def test_an_answer_is_kept_for_whoever_asks_the_same(front: Front) -> None:
    entries = front.metric("nv_cache_num_entries")
    for id in ("a", "b", "c"):
        status, body = front.infer("kept", [1, 2, 3, 4], name="IN", id=id)
        assert (status, body["id"]) == (200, id)
        assert body["outputs"][0]["data"] == [6, 7, 8, 9]
    front.infer("kept", [1, 2, 3, 5], name="IN")
    found = front.statistics("kept")

    assert found["execution_count"] == 2
    stats = found["inference_stats"]
    counts = {name: stats[name]["count"] for name in ("success", "queue", "compute_infer", "cache_hit", "cache_miss")}
    assert counts == {"success": 4, "queue": 4, "compute_infer": 2, "cache_hit": 2, "cache_miss": 2}
    assert front.metric('nv_cache_num_hits_per_model{model="kept"') == 2
    assert front.metric('nv_cache_num_misses_per_model{model="kept"') == 2
    assert front.metric("nv_cache_num_entries") == entries + 2


def test_a_model_that_is_loaded_anew_does_not_answer_what_it_answered_before(front: Front) -> None:
    front.infer("renewed", [9, 9, 9, 9], name="IN")
    before = front.metric("nv_cache_num_misses ")
    assert front.ask("/v2/repository/models/renewed/load", {})[0] == 200
    front.infer("renewed", [9, 9, 9, 9], name="IN")

    assert front.metric("nv_cache_num_misses ") == before + 1


def test_instances_that_need_the_same_resource_never_run_together(front: Front) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(front.infer, name, [1, 2, 3, 4], name="IN") for name in ("first", "second") * 12]
        answers = [done.result() for done in asked]

    assert [status for status, _ in answers] == [200] * 24, answers


def test_an_ensemble_is_there_as_long_as_its_models_are(front: Front) -> None:
    assert front.ask("/v2/models/pair/ready")[0] == 200
    assert front.ask("/v2/repository/models/left/unload", {})[0] == 200
    assert front.ask("/v2/models/pair/ready")[0] == 400
    assert front.infer("pair", [1, 2, 3, 4])[0] == 404
    states = {line["name"]: line.get("reason") for line in front.ask("/v2/repository/index", {})[1]}
    assert states["pair"] == "unloaded"
    assert front.ask("/v2/repository/models/left/load", {})[0] == 200

    assert front.ask("/v2/models/pair/ready")[0] == 200
    assert front.infer("pair", [1, 2, 3, 4], id="again")[0] == 200


def test_nothing_is_lost_when_a_member_is_loaded_anew_under_load(front: Front) -> None:
    with ThreadPoolExecutor(8) as pool:
        asked = [pool.submit(front.infer, "whole", [number, 0, 0, 0]) for number in range(120)]
        reloads = [front.ask(f"/v2/repository/models/{name}/load", {})[0] for name in ("net", "scale")]
        answers = [done.result() for done in asked]

    assert reloads == [200, 200]
    assert [status for status, _ in answers] == [200] * 120


def test_an_ensemble_without_its_model_is_refused_with_the_reason(front: Front) -> None:
    folder = front.root / "lost"
    (folder / "1").mkdir(parents=True)
    (folder / "config.pbtxt").write_text((front.root / "pair" / "config.pbtxt").read_text().replace("left", "nobody"))
    status, body = front.ask("/v2/repository/models/lost/load", {})

    assert status == 400
    words = "ensemble lost contains models that are not available or ambiguous: nobody"
    assert body["error"].startswith(f"load failed for model 'lost': {words}")
    names = [line for line in front.ask("/v2/repository/index", {})[1] if line["name"] == "lost"]
    assert names == [{"name": "lost"}]


def test_a_client_that_leaves_takes_the_steps_along_that_have_not_begun(front: Front) -> None:
    withdrawn = 'shoal_requests_total{model_name="held",model_version="1",outcome="withdrawn"}'
    before = front.statistics("post")["inference_stats"]["success"]["count"]
    with grpc.insecure_channel(f"127.0.0.1:{front.grpc}") as channel:
        call = channel.unary_unary(PREFIX + "ModelInfer", pb.ModelInferRequest.SerializeToString)
        waiting = call.future(request("held", 1, 2, 3, 4, id="gone"))
        eventually(lambda: (front.root / "gone.left").exists(), "the first step runs")
        waiting.cancel()
        eventually(lambda: front.metric(withdrawn) == 1, "the ensemble hears that its client left")
    for id in ("gone", "stays"):
        (front.root / f"{id}.right").touch()

    assert front.infer("held", [1, 2, 3, 4], id="stays")[0] == 200
    assert front.statistics("post")["inference_stats"]["success"]["count"] == before + 1
