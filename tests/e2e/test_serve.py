"""The installed command on real ports: what a person and a client see."""

import asyncio
import http.client
import json
import re
import shutil
import signal
import socket
import ssl
import subprocess
import sys
import time
from pathlib import Path

import pytest

from tests.serving import MODELS, SHOAL, Served, eventually, load, serving

TRICKS = str(MODELS / "tricks.py")


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> object:
    with serving(
        tmp_path_factory.mktemp("serve"),
        TRICKS,
        "--model-store",
        str(MODELS),
        config="max_request_size = 1000000\n",
    ) as served:
        yield served


def test_each_caller_gets_its_own_answer_and_hears_how_it_was_batched(server: Served) -> None:
    reply = server.ask("/predictions/tricks", {"hello": [1, 2, 3]})

    assert (reply.status, reply.json) == (200, {"hello": [1, 2, 3]})
    assert reply.headers["content-type"] == "application/json"
    timing = reply.headers["server-timing"]
    assert re.fullmatch(
        r"queue;dur=[\d.]+, preprocess;dur=[\d.]+, inference;dur=[\d.]+, postprocess;dur=[\d.]+, "
        r'batch;desc="1 [a-z-]+"',
        timing,
    ), timing


def test_concurrent_callers_share_batches_and_keep_their_answers(server: Served) -> None:
    batches = server.metric("shoal_batches_total")
    bodies = [b"%d" % number for number in range(2_000)]

    answers = asyncio.run(load(server.port, "/predictions/tricks", bodies, 50))

    assert answers == [(200, body) for body in bodies]
    assert server.metric("shoal_batches_total") - batches < 1_000


def test_a_request_id_is_kept_and_one_is_made_when_missing(server: Served) -> None:
    assert (
        server.ask("/predictions/tricks", "x", headers={"X-Request-Id": "abc-123"}).headers["x-request-id"] == "abc-123"
    )
    first, second = (server.ask("/predictions/tricks", "x").headers["x-request-id"] for _ in range(2))
    assert first and second and first != second


@pytest.mark.parametrize(
    ("path", "method", "status", "words"),
    [
        ("/predictions/nobody", "POST", 404, "Model not found: nobody"),
        ("/predictions/tricks/9.9", "POST", 404, "Model version: 9.9 does not exist for model: tricks"),
        ("/predictions", "POST", 404, "not found"),
        ("/nowhere", "GET", 404, "not found"),
    ],
)
def test_a_wrong_address_is_told_so(server: Served, path: str, method: str, status: int, words: str) -> None:
    reply = server.ask(path, method=method)

    assert (reply.status, reply.json["code"]) == (status, status)
    assert words in reply.json["message"]


def test_a_body_over_the_limit_is_refused_before_it_is_read(server: Served) -> None:
    reply = server.ask("/predictions/tricks", b"x" * 1_000_001)

    assert reply.status == 413
    assert "1000000" in reply.json["message"]


def test_malformed_http_gets_400_and_the_connection_is_closed(server: Served) -> None:
    with socket.create_connection(("127.0.0.1", server.port), timeout=10) as client:
        client.sendall(
            b"POST /predictions/tricks HTTP/1.1\r\nHost: x\r\nContent-Length: 1\r\nContent-Length: 2\r\n\r\nx"
        )
        received = b""
        while piece := client.recv(65536):
            received += piece

    assert received.startswith(b"HTTP/1.1 400")
    assert b'"code": 400' in received


def test_a_deadline_that_passes_gets_504_and_is_never_run(server: Served, tmp_path: Path) -> None:
    mark = tmp_path / "mark"
    busy = socket.create_connection(("127.0.0.1", server.port))
    body = json.dumps({"do": "sleep", "seconds": 1}).encode()
    busy.sendall(
        b"POST /predictions/tricks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
        b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
    )
    eventually(lambda: server.metric("shoal_batches_running") == 1, "the worker is busy")

    reply = server.ask(
        "/predictions/tricks", {"do": "touch", "path": str(mark)}, headers={"X-Request-Timeout-Ms": "50"}
    )

    assert reply.status == 504
    assert "deadline" in reply.json["message"]
    assert busy.recv(65536).startswith(b"HTTP/1.1 200")
    busy.close()
    assert server.ask("/predictions/tricks", "x").status == 200
    assert not mark.exists()


@pytest.mark.parametrize("value", ["soon", "-1", "0", "nan", "inf"])
def test_a_deadline_that_means_nothing_is_refused(server: Served, value: str) -> None:
    reply = server.ask("/predictions/tricks", "x", headers={"X-Request-Timeout-Ms": value})

    assert reply.status == 400
    assert value in reply.json["message"]


def test_a_full_queue_refuses_at_once_with_a_hint(tmp_path: Path) -> None:
    config = f'[models.tricks]\npath = "{TRICKS}"\nqueue_size = 1\nbatching = {{policy = "single"}}\n'
    with serving(tmp_path, config=config) as served:
        sleepers = []
        for seconds, running, waiting in ((3, 1, 0), (0, 1, 1)):
            body = json.dumps({"do": "sleep", "seconds": seconds}).encode()
            client = socket.create_connection(("127.0.0.1", served.port))
            client.sendall(
                b"POST /predictions/tricks HTTP/1.1\r\nHost: x\r\nContent-Type: application/json\r\n"
                b"Content-Length: %d\r\n\r\n%b" % (len(body), body)
            )
            sleepers.append(client)
            eventually(
                lambda r=running, w=waiting: (  # type: ignore[misc]  # defaults bind the loop's values
                    served.metric("shoal_batches_running") == r and served.metric("shoal_queue_requests") == w
                ),
                "the request is where it should be",
            )

        reply = served.ask("/predictions/tricks", "one too many")

        assert reply.status == 503
        assert int(reply.headers["retry-after"]) >= 1
        assert "1 requests waiting" in reply.json["message"]
        for client in sleepers:
            client.close()


def test_one_bad_item_fails_alone_with_its_own_status(server: Served) -> None:
    items = [b'"good"', b'{"do": "fail", "message": "no such colour", "status": 422}', b"{broken"]

    async def all_at_once() -> list[tuple[int, bytes]]:
        return await asyncio.gather(*(asyncio.to_thread(one, item) for item in items))

    def one(item: bytes) -> tuple[int, bytes]:
        reply = server.ask("/predictions/tricks", item, headers={"Content-Type": "application/json"})
        return reply.status, reply.body

    good, chosen, unreadable = asyncio.run(all_at_once())
    assert good == (200, b"good")
    assert chosen[0] == 422 and b"no such colour" in chosen[1]
    assert unreadable[0] == 400 and b"JSON" in unreadable[1]


def test_an_exception_of_the_handler_is_a_500_with_the_traceback_in_the_log_only(server: Served) -> None:
    reply = server.act(do="raise", message="out of honey")

    assert reply.status == 500
    assert "out of honey" in reply.json["message"]
    assert "traceback" not in reply.json
    eventually(lambda: "tricks.py" in server.log.read_text(), "the traceback is in the log")


def test_in_development_the_traceback_is_in_the_body(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, "--development") as served:
        reply = served.act(do="raise", message="out of honey")

        assert reply.status == 500
        assert "tricks.py" in reply.json["traceback"]
        assert "RuntimeError: out of honey" in reply.json["traceback"]


def test_what_a_handler_prints_is_logged_with_model_and_worker(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, "--log-format", "json") as served:
        assert served.act(do="print", text="buzz").body == b"printed"

        def lines() -> list[dict[str, str]]:
            rows = [json.loads(line) for line in served.log.read_text().splitlines() if line.startswith("{")]
            return [row for row in rows if row["message"] == "buzz"]

        eventually(lambda: len(lines()) == 2, "both lines are logged")
        assert {row["stream"] for row in lines()} == {"stdout", "stderr"}
        assert {(row["model"], row["worker"]) for row in lines()} == {("tricks", "tricks-1.0-0")}


def test_a_generator_is_answered_in_chunks(server: Served) -> None:
    reply = server.act(do="count", to=100)

    assert reply.headers["transfer-encoding"] == "chunked"
    assert reply.body.decode().split() == [str(number) for number in range(100)]


@pytest.mark.parametrize("size", [0, 1, 16_384, 16_385, 300_000, 999_999])
def test_bodies_of_any_size_come_back_whole(server: Served, size: int) -> None:
    body = bytes(number % 251 for number in range(size))

    reply = server.ask("/predictions/tricks", body)

    assert reply.body == body


def test_large_answers_come_back_whole(server: Served) -> None:
    assert server.act(do="big", size=20_000_000).body == b"x" * 20_000_000


def test_forms_reach_the_handler_by_part(server: Served) -> None:
    fields = server.ask(
        "/predictions/tricks", "a=1&b=two", headers={"Content-Type": "application/x-www-form-urlencoded"}
    )
    parts = server.ask(
        "/predictions/tricks",
        b'--B\r\nContent-Disposition: form-data; name="x"\r\n\r\none\r\n'
        b'--B\r\nContent-Disposition: form-data; name="y"; filename="y.json"\r\n'
        b"Content-Type: application/json\r\n\r\n[2]\r\n--B--\r\n",
        headers={"Content-Type": "multipart/form-data; boundary=B"},
    )
    broken = server.ask(
        "/predictions/tricks", b"--B\r\nnonsense", headers={"Content-Type": "multipart/form-data; boundary=B"}
    )

    assert set(fields.json) == {"a", "b"}
    assert parts.json["y"] == [2]
    assert broken.status == 400


def test_ping_is_honest(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS) as served:
        assert served.ask("/ping").json == {"status": "Healthy"}

        assert served.manage("/models/tricks?min_worker=0&synchronous=true", "PUT").status == 200

        assert served.ask("/ping").status == 200, "no worker is wanted"
        reply = served.ask("/predictions/tricks", "x")
        assert (reply.status, "no workers" in reply.json["message"]) == (503, True)


def test_models_are_registered_described_scaled_listed_and_removed(server: Served) -> None:
    assert server.manage("/models?url=echo.py&model_name=second&initial_workers=1", "POST").status == 200
    assert server.manage("/models?url=echo.py&model_name=second", "POST").status == 409
    assert [row["modelName"] for row in server.manage("/models").json["models"]] == ["second", "tricks"]

    scaled = server.manage("/models/second?min_worker=2&synchronous=true", "PUT")

    assert scaled.json == {"status": "Workers scaled to 2 for model: second"}
    (described,) = server.manage("/models/second").json
    assert [worker["status"] for worker in described["workers"]] == ["READY", "READY"]
    assert all(worker["memoryUsage"] > 1_000_000 for worker in described["workers"])
    assert server.manage("/models/second?min_worker=1&max_worker=1&synchronous=true", "PUT").status == 200
    assert len(server.manage("/models/second").json[0]["workers"]) == 1
    assert server.manage("/models/second", "DELETE").status == 200
    assert server.manage("/models/second").status == 404


@pytest.mark.parametrize("url", ["../../etc/passwd", "/etc/passwd", "..", ".", "no-such-model.py"])
def test_only_what_is_in_the_model_store_can_be_registered(server: Served, url: str) -> None:
    assert server.manage(f"/models?url={url}", "POST").status == 404


def test_a_model_that_fails_to_load_leaves_nothing_behind(server: Served) -> None:
    reply = server.manage("/models?url=broken/import_error.py&model_name=bad&initial_workers=1", "POST")

    assert reply.status == 500
    assert "torhc" in reply.json["message"]
    assert server.manage("/models/bad").status == 404


def test_a_page_of_another_origin_may_not_manage(server: Served) -> None:
    reply = server.ask(
        "/models/tricks", method="DELETE", port=server.management_port, headers={"Origin": "http://evil.example"}
    )

    assert reply.status == 403
    assert server.ask("/predictions/tricks", "x").status == 200


@pytest.mark.parametrize(
    ("file", "words"),
    [
        ("import_error.py", ["import_error.py", "line 1", "No module named 'torhc'"]),
        ("missing_method.py", ["Bees", "inference", "infer"]),
    ],
)
def test_a_file_with_a_mistake_ends_the_command_with_a_message_to_act_on(file: str, words: list[str]) -> None:
    started = time.monotonic()

    done = subprocess.run(
        [
            *SHOAL,
            "serve",
            str(MODELS / "broken" / file),
            "--port",
            "0",
            "--management-port",
            "0",
            "--metrics-port",
            "0",
        ],
        capture_output=True,
        text=True,
        timeout=60,
    )

    assert done.returncode == 1
    assert time.monotonic() - started < 30
    last = done.stderr.rstrip().splitlines()[-1]
    assert last.startswith("error:")
    assert all(word in last for word in words), done.stderr
    assert "Model server started." not in done.stdout


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        ([], ["nothing to serve"]),
        (["no-such-file.py"], ["no-such-file.py", "no file or folder"]),
        ([TRICKS, "--max-batch-delay", "5"], ["--batch-size"]),
        ([TRICKS, "--models", "x"], ["NAME=PATH", "'x'"]),
        ([TRICKS, "--batch-size", "-3"], ["batch_size", "-3"]),
        ([TRICKS, "--prot", "80"], ["--prot", "--port"]),
    ],
)
def test_a_mistaken_command_says_what_would_be_right(arguments: list[str], words: list[str]) -> None:
    done = subprocess.run([*SHOAL, "serve", *arguments], capture_output=True, text=True, timeout=60)

    assert done.returncode == 2
    assert all(word in done.stderr for word in words), done.stderr


def test_an_unknown_setting_is_refused_with_the_nearest_name(tmp_path: Path) -> None:
    (tmp_path / "shoal.toml").write_text(f'[models.m]\npath = "{TRICKS}"\nbatching = {{batch_sise = 8}}\n')

    done = subprocess.run(
        [*SHOAL, "serve", "--config", str(tmp_path / "shoal.toml")], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 2
    assert "models.m.batching" in done.stderr and "did you mean 'batch_size'" in done.stderr


def test_a_port_in_use_is_said_plainly(server: Served) -> None:
    done = subprocess.run(
        [*SHOAL, "serve", TRICKS, "--port", str(server.port)], capture_output=True, text=True, timeout=60
    )

    assert done.returncode == 1
    assert str(server.port) in done.stderr and "in use" in done.stderr


def test_several_models_are_named_after_one_flag(tmp_path: Path) -> None:
    with serving(tmp_path, "--model-store", str(MODELS), "--models", "a=echo.py", "b=tricks.py") as served:
        assert [row["modelName"] for row in served.manage("/models").json["models"]] == ["a", "b"]
        assert served.ask("/predictions/b", "x").body == b"x"


def test_a_knob_that_is_set_means_what_upstream_means(tmp_path: Path) -> None:
    with serving(tmp_path, TRICKS, "--batch-size", "4", "--max-batch-delay", "300") as served:
        lone = served.ask("/predictions/tricks", "x")
        assert 'batch;desc="1 delay"' in lone.headers["server-timing"]
        queue = float(re.search(r"queue;dur=([\d.]+)", lone.headers["server-timing"])[1])  # type: ignore[index]  # is there
        assert queue >= 299

        answers = asyncio.run(load(served.port, "/predictions/tricks", [b"1", b"2", b"3", b"4"], 4))

        assert len(answers) == 4
        assert served.metric('shoal_batches_total{model_name="tricks",model_version="1.0",reason="full"}') == 1


def test_python_can_serve_a_file(tmp_path: Path) -> None:
    script = tmp_path / "run.py"
    script.write_text(
        "import shoal\n\n\ndef predict(items):\n    return [item.upper() for item in items]\n\n\n"
        'if __name__ == "__main__":\n    shoal.serve(predict, port=0, management_port=0, metrics_port=0)\n'
    )
    process = subprocess.Popen([sys.executable, str(script)], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True)
    assert process.stdout is not None and process.stderr is not None
    try:
        assert process.stdout.readline() == "Model server started.\n"
        log = ""
        while not (found := re.search(r"inference +http://127\.0\.0\.1:(\d+)", log)):
            log += process.stderr.readline()
        with socket.create_connection(("127.0.0.1", int(found[1])), timeout=10) as client:
            client.sendall(
                b"POST /predictions/run HTTP/1.1\r\nHost: x\r\nContent-Type: text/plain\r\n"
                b"Content-Length: 4\r\n\r\nfish"
            )
            assert client.recv(65536).endswith(b"FISH")
        process.send_signal(signal.SIGTERM)
        assert process.wait(20) == 0
    finally:
        process.kill()
        process.wait()
        process.stdout.close()
        process.stderr.close()


def test_a_file_may_be_named_like_a_module_of_python(tmp_path: Path) -> None:
    (tmp_path / "select.py").write_text("def predict(items):\n    return items\n")

    with serving(tmp_path, "select.py", cwd=tmp_path) as served:
        assert served.ask("/predictions/select", "x").body == b"x"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="makes a certificate with openssl")
def test_every_port_speaks_tls_where_a_certificate_is_set_and_a_unix_socket_needs_none(tmp_path: Path) -> None:
    key, cert, path = tmp_path / "key.pem", tmp_path / "cert.pem", tmp_path / "s"
    make = "openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -nodes -days 2 -subj /CN=localhost"
    subprocess.run(
        [*make.split(), "-addext", "subjectAltName=IP:127.0.0.1", "-keyout", str(key), "-out", str(cert)],
        check=True,
        capture_output=True,
    )
    config = f'certificate_file = "{cert}"\nprivate_key_file = "{key}"\nunix_socket = "{path}"\n'
    with serving(tmp_path, TRICKS, config=config) as served:
        context = ssl.create_default_context(cafile=str(cert))
        for port, target in (
            (served.port, "/ping"),
            (served.management_port, "/models"),
            (served.metrics_port, "/metrics"),
        ):
            link = http.client.HTTPSConnection("127.0.0.1", port, context=context, timeout=20)
            link.request("GET", target)
            assert link.getresponse().status == 200
            link.close()
        with socket.socket(socket.AF_UNIX) as client:
            client.connect(str(path))
            client.sendall(b"GET /ping HTTP/1.1\r\nHost: x\r\n\r\n")
            assert client.recv(65536).startswith(b"HTTP/1.1 200")
    assert not path.exists()


def test_one_port_for_everything_where_ports_are_set_equal(tmp_path: Path) -> None:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    with serving(tmp_path, TRICKS, ports=(port, port, port)) as served:
        assert served.port == served.management_port == served.metrics_port == port
        assert served.ask("/predictions/tricks", "x").body == b"x"
        assert served.manage("/models/tricks").status == 200
        assert served.metric("shoal_instances") == 1
