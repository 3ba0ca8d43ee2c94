"""Workflows through the real server: a graph of models and functions, registered, described, asked, removed."""

import http.client
import json
import os
import re
import subprocess
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.serving import SHOAL, eventually

SETTINGS = """
inference_address=http://127.0.0.1:0
management_address=http://127.0.0.1:0
metrics_address=http://127.0.0.1:0
grpc_inference_port=0
grpc_management_port=0
disable_token_authorization=true
enable_model_api=true
"""
MODEL = """
def handle(data, context):
    if data is None:
        return None
    rows = [row.get("body") or row.get("data") for row in data]
    if any(b"bad" in bytes(row) for row in rows):
        raise ValueError("a bad row")
    return [{"NAME": bytes(row).decode()} for row in rows]
"""
FUNCTIONS = """
import json


def pre(data, context):
    return None if data is None else [bytes(row.get("data") or row.get("body")).upper() for row in data]


def join(data, context):
    if data is None:
        return None
    return [json.dumps({name: json.loads(bytes(value)) for name, value in sorted(row.items())}) for row in data]


def broken(data, context):
    raise RuntimeError("not today")
"""
SPEC = """
models:
  min-workers: 1
  max-workers: 1
  batch-size: 2
  max-batch-delay: 5
  retry-attempts: 1
  timeout-ms: 20000
  dog: {url: dog.mar}
  cat: {url: cat.mar}
dag:
  pre: [dog, cat]
  dog: [END]
  cat: [END]
"""


class Running:
    """A server in TorchServe's dialect with two models and a workflow in its store."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        store = folder / "store"
        store.mkdir()
        (folder / "tmp").mkdir()
        for name in ("dog", "cat"):
            with zipfile.ZipFile(store / f"{name}.mar", "w") as archive:
                manifest = {"model": {"modelName": name, "modelVersion": "1.0", "handler": f"{name}_handler.py"}}
                archive.writestr("MAR-INF/MANIFEST.json", json.dumps({**manifest, "archiverVersion": "0.12.0"}))
                archive.writestr(f"{name}_handler.py", MODEL.replace("NAME", name))
        self.pack("pets", SPEC.replace("END", "join"))
        self.pack("leaves", SPEC.replace("[END]", "[]"))
        self.pack("sad", SPEC.replace("END", "broken"))
        self.pack("circle", SPEC.replace("END", "pre"))
        (folder / "config.properties").write_text(SETTINGS + f"model_store={store}\nworkflow_store={store}\n")
        self.output = folder / "output"
        with open(self.output, "wb") as output:
            self.process = subprocess.Popen(
                [*SHOAL, "torchserve", "--foreground", "--ncs"],
                cwd=folder,
                env={**os.environ, "TMPDIR": str(folder / "tmp")},
                stdout=output,
                stderr=output,
            )
        eventually(lambda: "Model server started." in self.output.read_text(), "started")

    def pack(self, name: str, spec: str) -> None:
        with zipfile.ZipFile(self.folder / "store" / f"{name}.war", "w") as archive:
            workflow = {"workflowName": name, "specFile": "spec.yaml", "handler": "functions.py"}
            archive.writestr("WAR-INF/MANIFEST.json", json.dumps({"workflow": workflow}))
            archive.writestr("spec.yaml", spec)
            archive.writestr("functions.py", FUNCTIONS)

    def ask(self, api: str, method: str, path: str, body: bytes = b"") -> tuple[int, Any]:
        found = re.search(rf"{api} API bind to: http://127\.0\.0\.1:(\d+)", self.output.read_text())
        assert found is not None
        link = http.client.HTTPConnection("127.0.0.1", int(found[1]), timeout=60)
        try:
            link.request(method, path, body)
            answer = link.getresponse()
            return answer.status, json.loads(answer.read())
        finally:
            link.close()

    def unpacked(self) -> list[Path]:
        return list((self.folder / "tmp").glob("shoal-models-*/models/*"))


@pytest.fixture(scope="module")
def server(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    running = Running(tmp_path_factory.mktemp("workflows"))
    yield running
    running.process.terminate()
    try:
        running.process.wait(20)
    finally:
        running.process.kill()


def test_a_workflow_lives_from_its_registration_to_its_removal(server: Running) -> None:
    assert server.ask("Management", "POST", "/workflows?url=pets.war") == (
        200,
        {"status": "Workflow pets has been registered and scaled successfully."},
    )
    assert server.ask("Management", "GET", "/workflows")[1]["workflows"] == [
        {"workflowName": "pets", "workflowUrl": "pets.war"}
    ]
    described = server.ask("Management", "GET", "/workflows/pets")[1]
    assert described == [
        {
            "workflowName": "pets",
            "workflowUrl": "pets.war",
            "minWorkers": 1,
            "maxWorkers": 1,
            "batchSize": 2,
            "maxBatchDelay": 5,
            "workflowDag": "{pre=[dog, cat], dog=[join], cat=[join]}",
        }
    ]
    listed = server.ask("Management", "GET", "/models")[1]["models"]
    assert [model["modelName"] for model in listed] == ["pets__cat", "pets__dog"]

    answer = server.ask("Inference", "POST", "/wfpredict/pets", b"woof")
    assert answer == (200, {"cat": {"cat": "WOOF"}, "dog": {"dog": "WOOF"}})
    status, said = server.ask("Management", "POST", "/workflows?url=pets.war")
    assert (status, said["type"]) == (409, "ConflictStatusException")

    assert server.ask("Management", "DELETE", "/workflows/pets") == (200, {"status": 'Workflow "pets" unregistered'})
    assert server.ask("Management", "GET", "/models")[1]["models"] == []
    assert server.unpacked() == []
    status, said = server.ask("Inference", "POST", "/wfpredict/pets", b"woof")
    assert (status, said["type"], said["message"]) == (404, "WorkflowNotFoundException", "Workflow not found: pets")


def test_several_last_nodes_answer_in_one_object_and_a_failing_one_is_named(server: Running) -> None:
    server.ask("Management", "POST", "/workflows?url=leaves.war")
    try:
        good = server.ask("Inference", "POST", "/wfpredict/leaves", b"hi")
        status, said = server.ask("Inference", "POST", "/wfpredict/leaves", b"BAD")
        assert good == (200, {"dog": {"dog": "HI"}, "cat": {"cat": "HI"}})
        assert status == 200, said  # the handlers look for lower case, and the first node made it upper case
    finally:
        server.ask("Management", "DELETE", "/workflows/leaves")


def test_a_workflow_whose_model_cannot_load_leaves_nothing_behind(server: Running) -> None:
    status, said = server.ask("Management", "POST", "/workflows?url=sad.war")

    assert status == 500
    assert "sad has failed to register" in said["message"]
    assert "not today" in said["message"]
    assert server.ask("Management", "GET", "/workflows")[1]["workflows"] == []
    assert server.ask("Management", "GET", "/models")[1]["models"] == []
    assert server.unpacked() == []


@pytest.mark.parametrize(
    ("path", "status", "kind", "words"),
    [
        ("/workflows", 400, "BadRequestException", "Parameter url is required."),
        ("/workflows?url=circle.war", 400, "InvalidModelException", "goes round in a circle"),
        ("/workflows?url=nothing.war", 404, "WorkflowNotFoundException", "not found in workflow store: nothing.war"),
    ],
)
def test_a_bad_registration_is_refused(server: Running, path: str, status: int, kind: str, words: str) -> None:
    got, said = server.ask("Management", "POST", path)

    assert (got, said["type"]) == (status, kind)
    assert words in said["message"]
    assert server.unpacked() == []
