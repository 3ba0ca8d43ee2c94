"""A server in mode explicit: what clients load, change and unload; and a server whose methods need a key."""

import base64
import json
import time
from pathlib import Path
from typing import Any

from tests.upstream.triton.repository import SOURCES
from tests.upstream.triton.tables.inference import FOUR, do
from tests.upstream.triton.words import (
    GRPC,
    HTTP,
    Case,
    Client,
    Given,
    ask,
    infer,
    plain,
    rpc,
)

NUMBERS = Given("IN", [1, 2], "INT32")
SOURCE = Path(SOURCES / "echo.py").read_bytes()
SMALL = {
    "backend": "python",
    "max_batch_size": 2,
    "input": [{"name": "IN", "data_type": "TYPE_FP32", "dims": [-1]}],
    "output": [{"name": "OUT", "data_type": "TYPE_FP32", "dims": [-1]}],
    "instance_group": [{"count": 1, "kind": "KIND_CPU"}],
}


def gone(client: Client, name: str) -> Any:
    """Unload a model, and wait until it is."""
    said = client.ask("unload_model", name)
    is_ready = client.ask("is_model_ready", name)
    for _ in range(100):
        if "UNLOADING" not in str(client.ask("get_model_repository_index")):
            break
        time.sleep(0.1)
    return [said, is_ready]


def load_files(client: Client, **options: Any) -> Any:
    """Load a model from files that are sent along."""
    return client.ask("load_model", "sent", files={"file:1/model.py": SOURCE}, **options)


EXPLICIT = (
    ask("the index at the start", "get_model_repository_index"),
    ask("load a model", "load_model", "echo"),
    infer("what was loaded answers", "echo", FOUR),
    ask("the index with one", "get_model_repository_index"),
    ask("statistics before it is loaded again", "get_inference_statistics", "echo"),
    ask("load it again", "load_model", "echo"),
    ask("statistics after it was loaded again", "get_inference_statistics", "echo"),
    ask("load with other settings", "load_model", "echo", config=json.dumps(SMALL)),
    ask("the other settings", "get_model_config", "echo"),
    infer("too many rows for the other settings", "echo", Given("IN", [[1.0]] * 3)),
    ask("load with settings that are none", "load_model", "echo", config="{"),
    ask(
        "load with settings of another",
        "load_model",
        "echo",
        config=json.dumps({**SMALL, "colour": 1}),
    ),
    infer("it still answers", "echo", FOUR),
    ask("load what cannot be loaded", "load_model", "broken"),
    ask("the index with a failure", "get_model_repository_index"),
    ask("load nobody", "load_model", "nobody"),
    ask("load two versions of three", "load_model", "versions"),
    ask("about two versions", "get_model_metadata", "versions"),
    Case("load from files without settings", load_files),
    Case("load from files", lambda client: load_files(client, config=json.dumps(SMALL))),
    infer("from files", "sent", FOUR),
    Case("unload a model", lambda client: gone(client, "echo")),
    infer("what was unloaded does not answer", "echo", FOUR),
    ask("about what was unloaded", "get_model_metadata", "echo"),
    ask("statistics of what was unloaded", "get_inference_statistics", "echo"),
    ask("the index with one unloaded", "get_model_repository_index"),
    ask("unload it again", "unload_model", "echo"),
    ask("unload nobody", "unload_model", "nobody"),
    ask("unload with what it needs", "unload_model", "versions", unload_dependents=True),
    Case("unload the files", lambda client: gone(client, "sent")),
    ask("ready in the end", "is_server_ready"),
    plain("the index of what is ready", "POST", "/v2/repository/index", {"ready": True}),
    plain("the index of a repository", "POST", "/v2/repository/some/index", b""),
    plain("the index by no json", "POST", "/v2/repository/index", "{"),
    plain("load from a repository", "POST", "/v2/repository/some/models/echo/load", b""),
    plain(
        "load with an unknown parameter",
        "POST",
        "/v2/repository/models/echo/load",
        {"parameters": {"own": "1"}},
    ),
    plain(
        "load with settings that are a number",
        "POST",
        "/v2/repository/models/echo/load",
        {"parameters": {"config": 1}},
    ),
    plain(
        "load with a file that is no base64",
        "POST",
        "/v2/repository/models/sent/load",
        {"parameters": {"config": json.dumps(SMALL), "file:1/model.py": "%%%"}},
    ),
    plain(
        "load with a file from elsewhere",
        "POST",
        "/v2/repository/models/sent/load",
        {
            "parameters": {
                "config": json.dumps(SMALL),
                "file:../../model.py": base64.b64encode(SOURCE).decode(),
            }
        },
    ),
    plain("load by no json", "POST", "/v2/repository/models/echo/load", "{"),
    plain(
        "unload with a word",
        "POST",
        "/v2/repository/models/echo/unload",
        {"parameters": {"unload_dependents": "x"}},
    ),
    rpc(
        "load from a repository over grpc",
        "RepositoryModelLoad",
        {"repository_name": "some", "model_name": "echo"},
    ),
    rpc(
        "load with an unknown parameter over grpc",
        "RepositoryModelLoad",
        {"model_name": "echo", "parameters": {"own": {"string_param": "1"}}},
    ),
    rpc(
        "load with settings that are a number over grpc",
        "RepositoryModelLoad",
        {"model_name": "echo", "parameters": {"config": {"int64_param": 1}}},
    ),
    rpc("the index of what is ready over grpc", "RepositoryIndex", {"ready": True}),
)

KEY, WRONG = {"admin-key": "open"}, {"admin-key": "shut"}
GRPC_KEY = (("triton-grpc-protocol-admin-key", "open"),)
TOLD = {"inputs": [{"name": "IN", "shape": [1, 1], "datatype": "BYTES", "data": ["told"]}]}
TOLD_MESSAGE = {
    "model_name": "behave",
    "inputs": [
        {
            "name": "IN",
            "datatype": "BYTES",
            "shape": [1, 1],
            "contents": {"bytes_contents": ["dG9sZA=="]},
        }
    ],
}
GUARDED = (
    plain("live needs no key", "GET", "/v2/health/live"),
    plain("metadata without a key", "GET", "/v2"),
    plain("metadata with another key", "GET", "/v2", None, WRONG),
    plain("metadata with the key", "GET", "/v2/models/behave", None, KEY),
    plain("the index without a key", "POST", "/v2/repository/index", b""),
    plain("the index with the key", "POST", "/v2/repository/index", b"", KEY),
    plain("statistics without a key", "GET", "/v2/models/behave/stats"),
    plain("logging needs no key", "GET", "/v2/logging"),
    plain("an unknown model without a key", "GET", "/v2/models/nobody"),
    plain(
        "headers become parameters",
        "POST",
        "/v2/models/behave/infer",
        TOLD,
        {"X-Colour": "red", "X-Size": "3", "Y-Colour": "blue"},
    ),
    plain(
        "headers in any case",
        "POST",
        "/v2/models/behave/infer",
        TOLD,
        {"x-COLOUR": "red"},
    ),
    plain(
        "a header beside a parameter",
        "POST",
        "/v2/models/behave/infer",
        {**TOLD, "parameters": {"own": 1}},
        {"X-Colour": "red"},
    ),
    plain(
        "a header with the name of a parameter",
        "POST",
        "/v2/models/behave/infer",
        {**TOLD, "parameters": {"X-Colour": "blue"}},
        {"X-Colour": "red"},
    ),
    plain(
        "headers for a generation",
        "POST",
        "/v2/models/behave/generate",
        {"IN": "told"},
        {"X-Colour": "red"},
    ),
    infer(
        "headers of a client",
        "behave",
        do("told"),
        headers={"x-colour": "red", "y-colour": "blue"},
        on=HTTP,
    ),
    ask("metadata with the key of a client", "get_server_metadata", headers=KEY, on=HTTP),
    ask(
        "metadata with the key of a client over grpc",
        "get_server_metadata",
        headers=dict(GRPC_KEY),
        on=GRPC,
    ),
    ask("metadata of a client without a key", "get_server_metadata"),
    Case(
        "metadata with the key of a plugin",
        lambda client: client.plugged({**KEY, **dict(GRPC_KEY)}, "get_model_metadata", "behave"),
    ),
    rpc("live needs no key over grpc", "ServerLive", {}),
    rpc("metadata without a key over grpc", "ServerMetadata", {}),
    rpc(
        "metadata with another key over grpc",
        "ServerMetadata",
        {},
        metadata=(("triton-grpc-protocol-admin-key", "shut"),),
    ),
    rpc(
        "metadata with the plain header over grpc",
        "ServerMetadata",
        {},
        metadata=(("admin-key", "open"),),
    ),
    rpc(
        "metadata with the key over grpc",
        "ModelMetadata",
        {"name": "behave"},
        metadata=GRPC_KEY,
    ),
    rpc("the index without a key over grpc", "RepositoryIndex", {}),
    rpc("the index with the key over grpc", "RepositoryIndex", {}, metadata=GRPC_KEY),
    rpc("logging needs no key over grpc", "LogSettings", {}),
    rpc(
        "metadata becomes parameters",
        "ModelInfer",
        TOLD_MESSAGE,
        metadata=(("x-colour", "red"), ("y-colour", "blue")),
    ),
    rpc(
        "metadata on a stream",
        "ModelStreamInfer",
        TOLD_MESSAGE,
        metadata=(("x-colour", "red"),),
    ),
)
