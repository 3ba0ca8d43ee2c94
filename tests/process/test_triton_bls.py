"""Models that call models: a real server, real workers, and everything that may happen to a call."""

import json
import os
import re
import shutil
import signal
import socket
import subprocess
import urllib.error
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pytest

from tests.serving import SHOAL, eventually

MODELS = Path(__file__).parents[1] / "models" / "triton"
TEXT = (
    'input [ { name: "IN" data_type: TYPE_STRING dims: [ 1 ] } ] '
    'output [ { name: "OUT" data_type: TYPE_STRING dims: [ 1 ] } ]'
)
CALLER = f'backend: "python" {TEXT} instance_group [ {{ count: %d kind: KIND_CPU }} ]'
CALLED = {
    "echo": 'max_batch_size: 8 input [ { name: "X" data_type: TYPE_FP32 dims: [ 2 ] } ] output [ { name: "Y" '
    'data_type: TYPE_FP32 dims: [ 2 ] }, { name: "SAID" data_type: TYPE_STRING dims: [ 1 ] } ]',
    "many": 'input [ { name: "N" data_type: TYPE_INT32 dims: [ 1 ] } ] output [ { name: "I" data_type: TYPE_INT32 '
    "dims: [ 1 ] } ] model_transaction_policy { decoupled: true }",
    "wide": 'input [ { name: "X" data_type: TYPE_FP32 dims: [ -1 ] } ] output [ { name: "Y" data_type: TYPE_FP32 '
    "dims: [ -1 ] } ]",
    "texts": 'input [ { name: "X" data_type: TYPE_STRING dims: [ -1 ] } ] output [ { name: "Y" data_type: '
    "TYPE_STRING dims: [ -1 ] } ]",
}
CALLERS = {"caller": 2, "alone": 1, "left": 1, "right": 1, "loader": 1, "spare": 1}
ENSEMBLES = {
    "doubling": (
        'max_batch_size: 8 input [ { name: "X" data_type: TYPE_FP32 dims: [ 2 ] } ] '
        'output [ { name: "Y" data_type: TYPE_FP32 dims: [ 2 ] } ]',
        'step [ { model_name: "echo" model_version: -1 input_map { key: "X" value: "X" } '
        'output_map { key: "Y" value: "Y" } } ]',
    ),
    "around_caller": (
        TEXT,
        'step [ { model_name: "caller" model_version: -1 input_map { key: "IN" value: "IN" } '
        'output_map { key: "OUT" value: "OUT" } } ]',
    ),
}
STREAMING = ("streaming", "streaming_coroutine")
FAILED = "Model {0} - Error when running inference: "


class Served:
    """A server and the port of its HTTP."""

    def __init__(self, root: Path, log: Path, port: int) -> None:
        self.root = root
        self.log = log
        self.port = port

    def do(self, caller: str, do: str, /, id: str = "", **more: Any) -> Any:
        """Have a caller do something, and give what it tells."""
        with urllib.request.urlopen(self._request(caller, {"do": do, **more}, id), timeout=60) as answer:
            return json.loads(json.loads(answer.read())["outputs"][0]["data"][0])

    def fails(self, caller: str, do: str, /, **more: Any) -> tuple[int, str]:
        """Give the status and the words that it ends with."""
        with pytest.raises(urllib.error.HTTPError) as caught:
            self.do(caller, do, **more)
        return caught.value.code, json.loads(caught.value.read())["error"]

    def leave(self, caller: str, do: str, /, **more: Any) -> socket.socket:
        """Ask over a connection of its own, which the caller closes."""
        body = self._body({"do": do, **more})
        sock = socket.create_connection(("127.0.0.1", self.port))
        head = f"POST /v2/models/{caller}/infer HTTP/1.1\r\nHost: x\r\nContent-Length: {len(body)}\r\n\r\n"
        sock.sendall(head.encode() + body)
        return sock

    def stream(self, model: str, number: int) -> list[int]:
        """Give what a model of many answers counts."""
        url = f"http://127.0.0.1:{self.port}/v2/models/{model}/generate_stream"
        with urllib.request.urlopen(url, json.dumps({"N": number}).encode(), timeout=60) as answer:
            lines = answer.read().decode().split("\n\n")
        return [json.loads(line.removeprefix("data: "))["I"] for line in lines if line]

    def notes(self, model: str = "many") -> list[str]:
        file = self.root / model / "notes"
        return file.read_text().split() if file.exists() else []

    def _request(self, model: str, parameters: Any, id: str = "") -> urllib.request.Request:
        return urllib.request.Request(
            f"http://127.0.0.1:{self.port}/v2/models/{model}/infer", self._body(parameters, id)
        )

    def _body(self, parameters: Any, id: str = "") -> bytes:
        tensor = {"name": "IN", "datatype": "BYTES", "shape": [1], "data": [""]}
        return json.dumps({"id": id, "parameters": parameters, "inputs": [tensor]}).encode()


def put(root: Path, name: str, file: str, settings: str) -> None:
    (root / name / "1").mkdir(parents=True)
    (root / name / "config.pbtxt").write_text(settings)
    shutil.copy(MODELS / file, root / name / "1" / "model.py")


@contextmanager
def serving(root: Path, *flags: str) -> Iterator[Served]:
    ports = ("--http-port=0", "--grpc-port=0", "--metrics-port=0", "--allow-grpc=false")
    log = root.parent / f"{root.name}.log"
    with log.open("w") as file:
        process = subprocess.Popen(
            [*SHOAL, "tritonserver", f"--model-repository={root}", *ports, *flags],
            stderr=file,
            stdout=file,
            env={**os.environ, "CUDA_VISIBLE_DEVICES": ""},
        )
        try:
            started = re.compile(r"Started HTTPService at 127\.0\.0\.1:(\d+)")
            eventually(lambda: bool(started.search(log.read_text())) or process.poll() is not None, "it is up", 60)
            found = started.search(log.read_text())
            assert found, log.read_text()
            yield Served(root, log, int(found[1]))
            process.send_signal(signal.SIGTERM)
            assert process.wait(30) == 0
        finally:
            process.kill()
            process.wait()


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Served]:
    root = tmp_path_factory.mktemp("repository")
    for name, settings in CALLED.items():
        put(root, name, "called.py", f'backend: "python" {settings}')
    for name, instances in CALLERS.items():
        put(root, name, "caller.py", CALLER % instances)
    put(root, "coroutine", "async_caller.py", CALLER % 1)
    for name, (settings, step) in ENSEMBLES.items():
        (root / name / "1").mkdir(parents=True)
        (root / name / "config.pbtxt").write_text(f'platform: "ensemble" {settings} ensemble_scheduling {{ {step} }}')
    for name in STREAMING:
        put(root, name, "streaming_caller.py", f'backend: "python" {CALLED["many"]}')
    loaded = [
        name for name in (*CALLED, *CALLERS, *STREAMING, *ENSEMBLES, "coroutine") if name not in ("loader", "spare")
    ]
    with serving(root, "--model-control-mode=explicit", *(f"--load-model={name}" for name in loaded)) as served:
        yield served


def test_a_model_calls_another_and_waits(server: Served) -> None:
    assert server.do("caller", "plain", value=4.0) == {"Y": [[8.0, 8.0]]}


def test_all_that_a_call_says_arrives(server: Served) -> None:
    found = server.do("caller", "whole")

    assert found["Y"] == [[2.0, 2.0]]
    assert json.loads(re.sub("^b'|'$", "", found["SAID"][0][0])) == [
        "r", 7, 3, 90_000_000, {"a": 1, "b": "x", "c": True}, ["SAID", "Y"]
    ]  # fmt: skip


def test_a_large_tensor_passes_and_is_the_models_own(server: Served) -> None:
    assert server.do("caller", "large") == [[400_000], 4.0, 4.0]


def test_ensembles_are_called_and_call(server: Served) -> None:
    assert server.do("caller", "plain", model="doubling", value=4.0) == {"Y": [[8.0, 8.0]]}
    assert server.do("around_caller", "plain", value=5.0) == {"Y": [[10.0, 10.0]]}


def test_strings_pass_as_they_are(server: Served) -> None:
    assert server.do("caller", "strings") == ["", "é".encode().hex(), "ff"]


@pytest.mark.parametrize(
    ("do", "more", "model", "words"),
    [
        ("plain", {"model": "nope"}, "nope", "Failed for execute the inference request. Model 'nope' is not ready."),
        ("plain", {"model_version": 9}, "echo", "Failed for execute the inference request. Model 'echo' is not ready."),
        ("wrong", {"columns": 3}, "echo", "[request id: <id_unknown>] unexpected shape for input 'X' for model 'echo'"),
        ("wrong", {"rows": 9}, "echo", "[request id: <id_unknown>] inference request batch-size must be <= 8"),
        ("wrong", {"output": "Q"}, "echo", "unexpected inference output 'Q' for model 'echo'"),
        ("decoupled", {"number": 3, "is_many": False}, "many", "Model many is using the decoupled. The current BLS"),
    ],
)
def test_a_call_that_cannot_be_made_is_a_response_with_an_error(
    server: Served, do: str, more: Any, model: str, words: str
) -> None:
    found = server.do("caller", do, **more)

    assert found["error"].startswith(FAILED.format(model) + words)
    assert found["code"] == "INTERNAL"


def test_a_model_that_fails_tells_its_caller_and_nobody_else(server: Served) -> None:
    raised = server.do("caller", "plain", value=-13.0)

    assert raised["error"].startswith(
        "Failed to process the request(s) for model 'echo_0', message: ValueError: thirteen"
    )
    assert server.do("caller", "plain", value=-14.0) == {"error": "fourteen", "code": "INTERNAL"}
    assert server.do("caller", "plain", model_version=1) == {"Y": [[2.0, 2.0]]}


def test_a_called_model_that_dies_is_an_error_too(server: Served) -> None:
    assert "error" in server.do("caller", "plain", value=-15.0)
    assert server.do("caller", "plain") == {"Y": [[2.0, 2.0]]}


def test_any_number_of_responses_are_gone_through(server: Served) -> None:
    assert server.do("caller", "decoupled", number=3) == [{"I": [0]}, {"I": [1]}, {"I": [2]}, {}]
    assert server.do("caller", "decoupled", number=0) == [{}]
    assert server.do("caller", "one_of_many") == [{"Y": [[2.0, 2.0]]}]
    both = [{"I": [0]}, {"I": [1]}, {}]
    assert server.do("caller", "twice") == [both[0], both[1:], both]


def test_responses_that_are_cancelled_stop(server: Served) -> None:
    before = len(server.notes())

    assert server.do("caller", "cancel", number=1000) == {"error": "the request was cancelled", "code": "CANCELLED"}
    eventually(lambda: server.notes()[before:] == ["left"], "the called model is told")


def test_threads_of_a_model_may_call(server: Served) -> None:
    assert server.do("caller", "threads", number=16) == [2.0 * value for value in range(16)]
    assert server.do("alone", "from_a_thread") == {"Y": [[2.0, 2.0]]}


def test_many_requests_call_at_once_and_each_gets_its_own(server: Served) -> None:
    with ThreadPoolExecutor(16) as pool:
        found = list(pool.map(lambda value: server.do("caller", "plain", value=float(value)), range(20, 220)))

    assert found == [{"Y": [[2.0 * value] * 2]} for value in range(20, 220)]


def test_coroutines_call(server: Served) -> None:
    assert server.do("coroutine", "gather", number=20) == [[2.0 * value] for value in range(20)]
    assert server.do("coroutine", "decoupled", number=2) == [[0.0], [1.0], []]
    assert "is using the decoupled" in server.do("coroutine", "not_decoupled", number=2)
    assert server.do("caller", "loop") == {"Y": [[2.0, 2.0]]}
    assert server.do("caller", "no_loop") == "RuntimeError: no running event loop"


@pytest.mark.parametrize("model", STREAMING)
def test_models_of_many_answers_call_and_pass_on(server: Served, model: str) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda number: server.stream(model, number), range(1, 33)))

    assert found == [list(range(number)) for number in range(1, 33)]


def test_a_request_of_many_answers_may_be_run_again_between_them(server: Served) -> None:
    assert server.stream("streaming", 77) == [1, 2, 3]


def test_a_coroutine_that_gives_up_calls_its_call_off(server: Served) -> None:
    before = len(server.notes())

    assert server.do("coroutine", "waiting", number=-1) == "gave up"
    eventually(lambda: server.notes()[before:] == ["waiting", "left"], "the called model is told")


def test_a_client_who_leaves_takes_the_call_along(server: Served) -> None:
    before = len(server.notes())
    sock = server.leave("caller", "decoupled", number=-1)
    eventually(lambda: server.notes()[before:] == ["waiting"], "the called model is called")
    sock.close()

    eventually(lambda: server.notes()[before:] == ["waiting", "left"], "the called model is told")


def test_a_caller_who_dies_takes_the_call_along(server: Served) -> None:
    before = len(server.notes())
    pid = server.do("alone", "process")
    with ThreadPoolExecutor(1) as pool:
        asking = pool.submit(server.leave, "alone", "decoupled", number=-1)
        eventually(lambda: server.notes()[before:] == ["waiting"], "the called model is called")
        asking.result().close()
        os.kill(pid, signal.SIGKILL)

    eventually(lambda: server.notes()[before:][:2] == ["waiting", "left"], "the called model is told")
    assert server.do("alone", "plain") == {"Y": [[2.0, 2.0]]}


def test_a_model_that_would_wait_for_itself_is_told_so(server: Served) -> None:
    found = server.do("alone", "itself", model="alone")

    assert found["error"].startswith(FAILED.format("alone") + "every instance of model 'alone' waits for this call")


def test_models_that_would_wait_for_each_other_are_told_so(server: Served) -> None:
    found = server.do("left", "around", model="right", back="left")

    assert found["error"].startswith(FAILED.format("left") + "every instance of model 'left' waits for this call")


def test_another_instance_of_the_same_model_answers(server: Served) -> None:
    for _ in range(5):
        assert server.do("caller", "itself", model="caller") == {"Y": [[2.0, 2.0]]}


def test_a_call_is_not_put_behind_the_one_that_waits_for_it(server: Served) -> None:
    before = len(server.notes("caller"))
    with ThreadPoolExecutor(1) as pool:
        napping = pool.submit(server.do, "caller", "nap", seconds=1.0)
        eventually(lambda: len(server.notes("caller")) > before, "one of the two instances is busy")
        found = server.do("caller", "itself", model="caller")

        assert found == {"Y": [[2.0, 2.0]]}
        assert napping.result() == "rested"


def test_however_many_call_their_own_model_none_waits_forever(server: Served) -> None:
    with ThreadPoolExecutor(8) as pool:
        found = list(pool.map(lambda _: server.do("caller", "itself", model="caller"), range(40)))

    refused = [each for each in found if "every instance of model 'caller' waits" in each.get("error", "")]
    assert len(refused) + found.count({"Y": [[2.0, 2.0]]}) == 40


def test_whether_a_model_is_ready_can_be_asked(server: Served) -> None:
    assert [server.do("caller", "ready", model=model) for model in ("echo", "nope")] == [True, False]
    assert [server.do("caller", "ready", model="echo", version=each) for each in ("1", "7")] == [True, False]
    assert "Failed to check model readiness: Failed to process the request for model 'caller_0_" in server.do(
        "caller", "ready", model="echo", version="x"
    )


def test_models_load_and_unload_models(server: Served) -> None:
    assert server.do("caller", "load", model="spare") == "loaded"
    assert server.do("caller", "ready", model="spare") is True
    assert server.do("caller", "unload", model="spare") == "unloaded"
    eventually(lambda: server.do("caller", "ready", model="spare") is False, "it is gone")
    assert server.do("caller", "load", model="nope").endswith(
        "message: failed to load 'nope', failed to poll from model repository"
    )
    config = json.dumps({"backend": "python"})
    assert "NameError: name 'x' is not defined" in server.do("caller", "load", model="spare", config=config, file="x")


def test_what_a_model_may_ask_while_it_is_loaded(server: Served) -> None:
    assert server.do("caller", "load", model="loader") == "loaded"
    assert server.do("loader", "started") == [
        "TritonModelException: BLS is only supported during the 'execute' function.",
        True,
        None,
        "TritonModelException: Failed to load model: model 'loader' cannot load itself while it is loaded",
    ]
    assert server.do("caller", "ready", model="spare") is True
    assert server.do("caller", "unload", model="loader") == "unloaded"
    eventually(
        lambda: "finalised: TritonModelException: there is no server to ask here" in server.log.read_text(), "its end"
    )


def test_a_request_may_be_run_again(server: Served) -> None:
    assert server.do("alone", "again", id="one", times=3) == 3
    with ThreadPoolExecutor(4) as pool:
        asked = [pool.submit(server.do, "alone", "again", id=f"id{n}", times=n) for n in range(1, 9)]
        assert [each.result() for each in asked] == list(range(1, 9))
    assert server.fails("alone", "again_and_answer")[0] == 500
    assert "Expected a None object in the execute function return list" in server.fails("alone", "again_and_answer")[1]


def test_a_server_whose_models_are_fixed_loads_none(tmp_path: Path) -> None:
    put(tmp_path / "models", "alone", "caller.py", CALLER % 1)
    with serving(tmp_path / "models") as served:
        assert served.do("alone", "load", model="alone").endswith(
            "message: explicit model load / unload is not allowed if polling is enabled"
        )
        assert served.do("alone", "ready", model="alone") is True
        assert "is not ready" in served.do("alone", "plain")["error"]
