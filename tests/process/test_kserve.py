"""KServe v2 with real sockets, real workers and real clients: HTTP by the library's client, gRPC by grpcio."""

import http.client
import json
import os
import socket
import struct
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path
from typing import Any

import grpc
import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from shoal.frontend.grpc.kserve import HEALTH, PREFIX
from shoal.frontend.grpc.proto import grpc_service_pb2 as pb
from shoal.frontend.grpc.proto.health_pb2 import HealthCheckRequest, HealthCheckResponse
from tests.process.kserve_front import Front, fronting
from tests.serving import eventually

FOUR = struct.pack("<4f", 1, 2, 3, 4)
PLAIN = {"inputs": [{"name": "IN", "shape": [1, 4], "datatype": "FP32", "data": [1, 2, 3, 4]}]}


@pytest.fixture(scope="module")
def front() -> Iterator[Front]:
    with fronting() as front:
        yield front


@pytest.fixture
def link(front: Front) -> Iterator[http.client.HTTPConnection]:
    link = http.client.HTTPConnection("127.0.0.1", front.http, timeout=30)
    yield link
    link.close()


def ask(
    link: http.client.HTTPConnection, path: str, body: Any = None, **headers: str
) -> tuple[int, dict[str, str], bytes]:
    sent = json.dumps(body) if isinstance(body, dict) else body
    named = {name.replace("_", "-"): value for name, value in headers.items()}
    link.request("GET" if body is None else "POST", path, sent, named)
    answer = link.getresponse()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}, answer.read()


def test_a_small_request_goes_round_in_json(link: http.client.HTTPConnection) -> None:
    status, headers, body = ask(link, "/v2/models/plain/infer", {**PLAIN, "id": "7"})

    assert status == 200 and "inference;dur=" in headers["server-timing"]
    assert json.loads(body) == {
        "id": "7",
        "model_name": "plain",
        "model_version": "1",
        "outputs": [{"name": "OUT", "datatype": "FP32", "shape": [1, 4], "data": [1, 2, 3, 4]}],
    }


def test_a_large_tensor_goes_round_through_shared_memory(front: Front, link: http.client.HTTPConnection) -> None:
    data = os.urandom(600_000)
    tensor = {"name": "IN", "shape": [1, 150_000], "datatype": "FP32", "parameters": {"binary_data_size": len(data)}}
    outputs = [{"name": "OUT", "parameters": {"binary_data": True}}]
    head = json.dumps({"inputs": [tensor], "outputs": outputs}).encode()
    for _ in range(20):
        status, headers, body = ask(
            link, "/v2/models/image/infer", head + data, Inference_Header_Content_Length=str(len(head))
        )
        assert status == 200
        assert body[int(headers["inference-header-content-length"]) :] == data
    assert front.app.arena is not None
    eventually(lambda: not front.app.arena.lent, "every block comes back")  # type: ignore[union-attr]  # seen above


def test_what_is_refused_leaves_the_connection_usable(front: Front, link: http.client.HTTPConnection) -> None:
    big = b'{"inputs":[' + b" " * 100_000 + b"3]}"
    bodies: list[tuple[Any, int]] = [(b"{", 400), (big, 400), ({"inputs": []}, 400), (PLAIN, 200)]
    for body, expected in bodies:
        status, _, text = ask(link, "/v2/models/plain/infer", body)
        assert status == expected and (status == 200 or list(json.loads(text)) == ["error"])
    assert ask(link, "/v2/models/nobody/infer", PLAIN)[0] == 404
    assert (
        ask(
            link,
            "/v2/models/fails/infer",
            {"inputs": [{"name": "IN", "shape": [1, 1], "datatype": "INT32", "data": [-1]}]},
        )[0]
        == 500
    )
    assert ask(link, "/v2/models/plain/infer", PLAIN)[0] == 200
    eventually(lambda: not front.app.arena.lent, "every block comes back")  # type: ignore[union-attr]  # on Linux


def test_requests_of_several_clients_are_counted_right(front: Front) -> None:
    def stats() -> dict[str, Any]:
        link = http.client.HTTPConnection("127.0.0.1", front.http, timeout=30)
        found: dict[str, Any] = json.loads(ask(link, "/v2/models/two/stats")[2])["model_stats"][0]
        link.close()
        return found

    def client(rows: int) -> None:
        link = http.client.HTTPConnection("127.0.0.1", front.http, timeout=30)
        tensors = [
            {"name": f"IN{n}", "shape": [rows, 2], "datatype": "INT32", "data": list(range(2 * rows))} for n in (0, 1)
        ]
        for _ in range(25):
            status, _, body = ask(link, "/v2/models/two/infer", {"inputs": tensors, "outputs": [{"name": "OUT1"}]})
            assert status == 200 and json.loads(body)["outputs"] == [
                {"name": "OUT1", "datatype": "INT32", "shape": [rows, 2], "data": list(range(2 * rows))}
            ]
        link.close()

    with ThreadPoolExecutor(4) as pool:
        list(pool.map(client, [1, 2, 3, 4]))
    eventually(lambda: stats()["inference_stats"]["success"]["count"] == 100, "every request is counted")
    found = stats()
    assert found["inference_count"] == 25 * 10 and found["inference_stats"]["fail"]["count"] == 0
    rows = found["batch_stats"]
    assert sum(row["batch_size"] * row["compute_infer"]["count"] for row in rows) == 250
    assert sum(row["compute_infer"]["count"] for row in rows) == found["execution_count"]
    times = {name: span["ns"] for name, span in found["inference_stats"].items()}
    assert (
        times["success"] >= times["queue"] + times["compute_input"] + times["compute_infer"] + times["compute_output"]
    )


def test_many_answers_are_streamed_as_events(link: http.client.HTTPConnection) -> None:
    status, headers, body = ask(link, "/v2/models/deco/generate_stream", {"IN": -3})
    events = [json.loads(event.removeprefix(b"data: ")) for event in body.split(b"\n\n") if event]

    assert (status, headers["content-type"]) == (200, "text/event-stream; charset=utf-8")
    assert [event.get("OUT", event.get("error")) for event in events] == [0, 1, 2, "late"]
    assert json.loads(ask(link, "/v2/models/deco/generate", {"IN": 1})[2])["OUT"] == 0


def test_a_client_that_leaves_is_counted_and_nothing_is_kept(front: Front) -> None:
    body = json.dumps({"inputs": [{"name": "IN", "shape": [1, 1], "datatype": "INT32", "data": [900_000]}]}).encode()
    stats = front.app.repository.find("fails").scheduler.stats
    before = stats.withdrawn
    with socket.create_connection(("127.0.0.1", front.http)) as link:
        link.sendall(
            b"POST /v2/models/fails/infer HTTP/1.1\r\nHost: x\r\nContent-Length: %d\r\n\r\n%b" % (len(body), body)
        )
        time.sleep(0.2)
    eventually(lambda: stats.withdrawn == before + 1, "the request is withdrawn")


def test_shared_memory_of_a_client_is_read_and_written(link: http.client.HTTPConnection) -> None:
    path = Path("/dev/shm") / f"shoal-test-{os.getpid()}"  # where shared memory is
    path.write_bytes(FOUR + bytes(16))
    try:
        region = {"key": f"/{path.name}", "byte_size": 32}
        assert ask(link, "/v2/systemsharedmemory/region/r/register", region)[0] == 200
        place = {"shared_memory_region": "r", "shared_memory_byte_size": 16}
        body = {
            "inputs": [{"name": "IN", "shape": [1, 4], "datatype": "FP32", "parameters": place}],
            "outputs": [{"name": "OUT", "parameters": {**place, "shared_memory_offset": 16}}],
        }
        status, _, text = ask(link, "/v2/models/plain/infer", body)
        assert (status, json.loads(text)["outputs"]) == (200, [{"name": "OUT", "datatype": "FP32", "shape": [1, 4]}])
        assert path.read_bytes() == FOUR + FOUR
        assert ask(link, "/v2/systemsharedmemory/unregister", b"")[0] == 200
    finally:
        path.unlink()


@settings(max_examples=60, deadline=None, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(st.binary(max_size=200), st.sampled_from(["plain", "strs", "nobatch", "half"]), st.none() | st.integers(0, 200))
def test_any_body_is_answered_and_never_with_a_500(
    link: http.client.HTTPConnection, body: bytes, model: str, size: int | None
) -> None:
    headers = {} if size is None else {"Inference_Header_Content_Length": str(size)}
    status, _, _ = ask(link, f"/v2/models/{model}/infer", body, **headers)
    assert status in (200, 400)


@pytest.fixture
def channel(front: Front) -> Iterator[Any]:
    options = [("grpc.max_receive_message_length", -1), ("grpc.max_send_message_length", -1)]
    with grpc.insecure_channel(front.grpc, options) as channel:
        yield channel


def unary(channel: Any, method: str) -> Any:
    return channel.unary_unary(
        PREFIX + method,
        request_serializer=getattr(pb, f"{method}Request").SerializeToString,
        response_deserializer=getattr(pb, f"{method}Response").FromString,
    )


def tensor(model: str, data: bytes, shape: list[int], datatype: str, id: str = "") -> Any:
    request = pb.ModelInferRequest(model_name=model, id=id, raw_input_contents=[data])
    request.inputs.add(name="IN", datatype=datatype, shape=shape)
    return request


def test_tensors_go_round_over_grpc(channel: Any) -> None:
    data = os.urandom(1_200_000)
    response = unary(channel, "ModelInfer")(tensor("image", data, [2, 150_000], "FP32", "i"), timeout=30)

    assert (response.id, list(response.raw_output_contents)) == ("i", [data])


def test_large_tensors_go_round_over_grpc_and_every_block_comes_back(front: Front, channel: Any) -> None:
    for _ in range(20):
        data = os.urandom(600_000)
        answer = unary(channel, "ModelInfer")(tensor("image", data, [1, 150_000], "FP32"), timeout=30)
        assert answer.raw_output_contents[0] == data
    eventually(lambda: not front.app.arena.lent, "every block comes back")  # type: ignore[union-attr]  # on Linux


def test_errors_have_their_codes_over_grpc(channel: Any) -> None:
    infer = unary(channel, "ModelInfer")
    wrong = [
        (tensor("nobody", FOUR, [1, 4], "FP32"), grpc.StatusCode.NOT_FOUND),
        (tensor("plain", FOUR, [1, 3], "FP32"), grpc.StatusCode.INVALID_ARGUMENT),
        (tensor("deco", b"\1\0\0\0", [1, 1], "INT32"), grpc.StatusCode.UNIMPLEMENTED),
        (tensor("fails", b"\xff\xff\xff\xff", [1, 1], "INT32"), grpc.StatusCode.INTERNAL),
        (tensor("fails", b"\1\0\0\0", [1, 1], "INT32"), grpc.StatusCode.INVALID_ARGUMENT),
    ]
    for request, code in wrong:
        with pytest.raises(grpc.RpcError) as failed:
            infer(request, timeout=30)
        assert failed.value.code() == code


def test_a_server_tells_of_itself_over_grpc(channel: Any) -> None:
    health = channel.unary_unary(
        HEALTH,
        request_serializer=HealthCheckRequest.SerializeToString,
        response_deserializer=HealthCheckResponse.FromString,
    )
    assert health(HealthCheckRequest(), timeout=30).status == 1
    assert unary(channel, "ServerReady")(pb.ServerReadyRequest(), timeout=30).ready
    assert len(unary(channel, "RepositoryIndex")(pb.RepositoryIndexRequest(), timeout=30).models) == 8
    assert unary(channel, "ModelStatistics")(pb.ModelStatisticsRequest(name="plain"), timeout=30).model_stats
    assert unary(channel, "ModelConfig")(pb.ModelConfigRequest(name="plain"), timeout=30).config


def test_a_stream_keeps_the_order_of_its_requests_over_grpc(channel: Any) -> None:
    stream = channel.stream_stream(
        PREFIX + "ModelStreamInfer",
        request_serializer=pb.ModelInferRequest.SerializeToString,
        response_deserializer=pb.ModelStreamInferResponse.FromString,
    )
    slow = struct.pack("<i", 200_000)
    requests = [
        tensor("fails", slow, [1, 1], "INT32", "a"),
        *(tensor("plain", FOUR, [1, 4], "FP32", str(n)) for n in range(20)),
        tensor("nobody", FOUR, [1, 4], "FP32", "z"),
    ]
    responses = list(stream(iter(requests), timeout=30))
    assert [response.infer_response.id for response in responses] == ["a", *map(str, range(20)), "z"]
    assert [bool(response.error_message) for response in responses] == [False] * 21 + [True]

    last = tensor("deco", struct.pack("<i", 3), [1, 1], "INT32", "d")
    last.parameters["triton_enable_empty_final_response"].bool_param = True
    values = [list(response.infer_response.raw_output_contents) for response in stream(iter([last]), timeout=30)]
    assert values == [[struct.pack("<i", n)] for n in range(3)] + [[]]
