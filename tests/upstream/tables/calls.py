"""The gRPC calls of TorchServe: predictions, streams of them, and management."""

import json

from tests.upstream.rows import ALL_READY, call, manage


def predict(model: str, **wanted: object) -> dict[str, object]:
    """A gRPC request to the echo model."""
    return {"model_name": model, "input": {"data": json.dumps({"do": wanted} if wanted else {"a": 1})}}


INFERENCE, MANAGEMENT = "InferenceAPIsService", "ManagementAPIsService"
GRPC = (
    call("grpc ping", f"{INFERENCE}/Ping"),
    call("grpc predict", f"{INFERENCE}/Predictions", predict("echo")),
    call(
        "grpc predict two inputs",
        f"{INFERENCE}/Predictions",
        {"model_name": "echo", "model_version": "1.0", "input": {"data": b"\xff", "more": "x"}},
    ),
    call("grpc predict nothing", f"{INFERENCE}/Predictions", {"model_name": "echo"}),
    call("grpc predict without a model", f"{INFERENCE}/Predictions", {"input": {"data": "x"}}),
    call("grpc predict on an unknown model", f"{INFERENCE}/Predictions", predict("nobody")),
    call(
        "grpc predict on an unknown version",
        f"{INFERENCE}/Predictions",
        {"model_name": "echo", "model_version": "9.9", "input": {"data": "x"}},
    ),
    call("grpc predict without workers", f"{INFERENCE}/Predictions", predict("odd")),
    call("grpc error", f"{INFERENCE}/Predictions", predict("echo", **{"raise": "value"})),
    call("grpc out of memory", f"{INFERENCE}/Predictions", predict("echo", **{"raise": "memory"})),
    *(
        call(f"grpc refusal {code}", f"{INFERENCE}/Predictions", predict("echo", refuse="no", code=code))
        for code in (400, 401, 403, 404, 409, 413, 416, 418, 429, 499, 500, 501, 504, 513)
    ),
    call("grpc own status", f"{INFERENCE}/Predictions", predict("echo", status=404, **{"return": "text"})),
    call("grpc bytes", f"{INFERENCE}/Predictions", predict("echo", **{"return": "bytes"})),
    call("grpc nested", f"{INFERENCE}/Predictions", predict("echo", **{"return": "nested"})),
    call("grpc stream", f"{INFERENCE}/StreamPredictions", predict("echo", stream=["one", "two", "three"])),
    call("grpc stream of one", f"{INFERENCE}/StreamPredictions", predict("echo", stream=["one"])),
    call("grpc stream that is none", f"{INFERENCE}/StreamPredictions", predict("echo", **{"return": "text"})),
    call("grpc stream that fails", f"{INFERENCE}/StreamPredictions", predict("echo", **{"raise": "value"})),
    call("grpc stream of an unknown model", f"{INFERENCE}/StreamPredictions", predict("nobody")),
    call("grpc first piece of a stream", f"{INFERENCE}/Predictions", predict("echo", stream=["one", "two"])),
    call("grpc list", f"{MANAGEMENT}/ListModels", {"limit": 2}),
    call("grpc list the next", f"{MANAGEMENT}/ListModels", {"limit": 2, "next_page_token": 2}),
    call("grpc list without a limit", f"{MANAGEMENT}/ListModels"),
    call("grpc describe", f"{MANAGEMENT}/DescribeModel", {"model_name": "echo"}),
    call("grpc describe all", f"{MANAGEMENT}/DescribeModel", {"model_name": "echo", "model_version": "all"}),
    call("grpc describe an unknown model", f"{MANAGEMENT}/DescribeModel", {"model_name": "nobody"}),
    call(
        "grpc describe an unknown version",
        f"{MANAGEMENT}/DescribeModel",
        {"model_name": "echo", "model_version": "9.9"},
    ),
    call("grpc describe without a model", f"{MANAGEMENT}/DescribeModel"),
    call(
        "grpc register",
        f"{MANAGEMENT}/RegisterModel",
        {"url": "echo.mar", "model_name": "rpc", "initial_workers": 1, "synchronous": True, "batch_size": 2},
    ),
    manage("describe what gRPC registered", "GET", "/models/rpc", until=ALL_READY),
    call(
        "grpc register in the background",
        f"{MANAGEMENT}/RegisterModel",
        {"url": "echo.mar", "model_name": "rpc_later", "initial_workers": 1},
    ),
    call("grpc register without workers", f"{MANAGEMENT}/RegisterModel", {"url": "echo.mar", "model_name": "rpc_idle"}),
    call("grpc register without a url", f"{MANAGEMENT}/RegisterModel"),
    call("grpc register what is not there", f"{MANAGEMENT}/RegisterModel", {"url": "nothing.mar"}),
    call(
        "grpc register with a bad runtime",
        f"{MANAGEMENT}/RegisterModel",
        {"url": "echo.mar", "model_name": "x", "runtime": "perl"},
    ),
    call("grpc register again", f"{MANAGEMENT}/RegisterModel", {"url": "echo.mar", "model_name": "rpc"}),
    call("grpc scale", f"{MANAGEMENT}/ScaleWorker", {"model_name": "rpc", "min_worker": 2, "synchronous": True}),
    call(
        "grpc scale a version",
        f"{MANAGEMENT}/ScaleWorker",
        {"model_name": "rpc", "model_version": "1.0", "min_worker": 1, "max_worker": 1, "synchronous": True},
    ),
    call("grpc scale in the background", f"{MANAGEMENT}/ScaleWorker", {"model_name": "rpc", "min_worker": 1}),
    call(
        "grpc scale with bad limits",
        f"{MANAGEMENT}/ScaleWorker",
        {"model_name": "rpc", "min_worker": 2, "max_worker": 1},
    ),
    call("grpc scale an unknown model", f"{MANAGEMENT}/ScaleWorker", {"model_name": "nobody", "min_worker": 1}),
    call("grpc set default", f"{MANAGEMENT}/SetDefault", {"model_name": "rpc", "model_version": "1.0"}),
    call("grpc set an unknown default", f"{MANAGEMENT}/SetDefault", {"model_name": "rpc", "model_version": "9.9"}),
    call(
        "grpc set default of an unknown model",
        f"{MANAGEMENT}/SetDefault",
        {"model_name": "nobody", "model_version": "1.0"},
    ),
    call("grpc unregister", f"{MANAGEMENT}/UnregisterModel", {"model_name": "rpc"}),
    call("grpc unregister again", f"{MANAGEMENT}/UnregisterModel", {"model_name": "rpc"}),
)
