"""What a server says of itself and lets be changed: metadata, statistics, settings, shared memory."""

import time
from typing import Any

from tests.upstream.triton.tables.inference import FOUR
from tests.upstream.triton.words import Case, Client, Given, Wanted, ask, infer, plain

READY = (
    ask("the server is live", "is_server_live"),
    ask("the server is ready", "is_server_ready"),
    ask("a model is ready", "is_model_ready", "echo"),
    ask("a version is ready", "is_model_ready", "echo", "1"),
    ask("a version is not ready", "is_model_ready", "echo", "4"),
    ask("nobody is ready", "is_model_ready", "nobody"),
)
ABOUT = (
    ask("about the server", "get_server_metadata"),
    *[
        ask(f"about {name}", "get_model_metadata", name)
        for name in ("echo", "image", "strings", "typed", "reshaped", "pair", "many", "counter", "versions")
    ],
    ask("about a version", "get_model_metadata", "versions", "1"),
    ask("about a version that is not chosen", "get_model_metadata", "versions", "2"),
    ask("about nobody", "get_model_metadata", "nobody"),
    *[
        ask(f"the configuration of {name}", "get_model_config", name)
        for name in ("echo", "image", "reshaped", "pair", "queued", "many", "counter", "versions")
    ],
    ask("the configuration of nobody", "get_model_config", "nobody"),
    ask("the configuration of no version", "get_model_config", "echo", "5"),
    ask("the index", "get_model_repository_index"),
    ask("load where nobody may", "load_model", "echo"),
    ask("unload where nobody may", "unload_model", "echo"),
    infer("the lower version", "versions", Given("IN", [1, 2], "INT32"), model_version="1"),
    infer("the version that is not chosen", "versions", Given("IN", [1, 2], "INT32"), model_version="2"),
    infer("the newest version", "versions", Given("IN", [1, 2], "INT32")),
)
STATISTICS = (
    Case("statistics of a version", lambda client: later(client, "versions", "3")),
    ask("statistics of all versions", "get_inference_statistics", "versions"),
    *[ask(f"statistics of {name}", "get_inference_statistics", name) for name in ("image", "strings", "reshaped")],
    ask("statistics of behave", "get_inference_statistics", "behave"),
    ask("statistics of many", "get_inference_statistics", "many"),
    ask("statistics of nobody", "get_inference_statistics", "nobody"),
    ask("statistics of no version", "get_inference_statistics", "echo", "9"),
    Case("statistics of everybody", lambda client: names_of(client.ask("get_inference_statistics"))),
)
SETTINGS = (
    ask("what is traced", "get_trace_settings"),
    ask("what is traced of a model", "get_trace_settings", "echo"),
    ask("what is traced of nobody", "get_trace_settings", "nobody"),
    ask("trace less often", "update_trace_settings", settings={"trace_rate": "50", "log_frequency": "7"}),
    ask("trace a model more often", "update_trace_settings", model_name="echo", settings={"trace_rate": "3"}),
    ask("trace a model as the others", "update_trace_settings", model_name="echo", settings={"trace_rate": None}),
    ask("trace as before", "update_trace_settings", settings={"trace_rate": None, "log_frequency": None}),
    ask("trace times", "update_trace_settings", settings={"trace_level": ["TIMESTAMPS"]}),
    ask("trace nothing", "update_trace_settings", settings={"trace_level": ["OFF"]}),
    ask("trace something unknown", "update_trace_settings", settings={"trace_level": ["EVERYTHING"]}),
    ask("trace into a file", "update_trace_settings", settings={"trace_file": "x"}),
    ask("trace at a rate that is a word", "update_trace_settings", settings={"trace_rate": "often"}),
    ask("trace so many", "update_trace_settings", settings={"trace_count": "-2"}),
    ask("trace an unknown setting", "update_trace_settings", settings={"colour": "x"}),
    plain("trace at a rate that is a number", "POST", "/v2/trace/setting", {"trace_rate": 5}),
    plain("trace by no json", "POST", "/v2/trace/setting", "{"),
    ask("what is logged", "get_log_settings"),
    ask("log less", "update_log_settings", {"log_info": False, "log_verbose_level": 0}),
    ask("log in another form", "update_log_settings", {"log_format": "ISO8601"}),
    ask("log in a form that is none", "update_log_settings", {"log_format": "poem"}),
    ask("log into a file", "update_log_settings", {"log_file": "x"}),
    ask("log by a number that is none", "update_log_settings", {"log_info": 3}),
    ask("log as before", "update_log_settings", {"log_info": True, "log_format": "default"}),
    plain("log by no json", "POST", "/v2/logging", "{"),
)


def later(client: Client, *arguments: str) -> Any:
    """Ask for statistics once they are complete: an answer leaves before it is counted."""
    time.sleep(0.5)
    return client.ask("get_inference_statistics", *arguments)


def names_of(statistics: Any) -> list[str]:
    """Whose statistics these are, without the numbers."""
    return sorted(f"{one['name']} {one['version']}" for one in statistics["model_stats"])


def share(client: Client) -> Any:
    """Register an object and infer from it and into it."""
    key = client.region("main", FOUR.values, "FP32", 256)
    client.ask("register_system_shared_memory", "main", key, 256)
    placed = Given("IN", FOUR.values, place=("main", 16, 0))
    head = client.infer("echo", placed, wanted=(Wanted("OUT", place=("main", 16, 64)),), reads=False)
    return {"head": head, "found": client.peek("main", "FP32", 4, 64)}


def hide(answer: Any) -> Any:
    """A status without the keys, which differ by client."""
    return str(answer).replace("_http_aio", "").replace("_http", "").replace("_grpc_aio", "").replace("_grpc", "")


def at(size: int, offset: int) -> Given:
    """Four numbers from a place in the region."""
    return Given("IN", FOUR.values, place=("main", size, offset))


MEMORY = (
    ask("no region is there", "get_system_shared_memory_status"),
    Case("from shared memory into it", share),
    Case("the regions", lambda client: hide(client.ask("get_system_shared_memory_status"))),
    Case("a region", lambda client: hide(client.ask("get_system_shared_memory_status", "main"))),
    ask("nothing of a region that is not there", "get_system_shared_memory_status", "other"),
    Case(
        "a region twice",
        lambda client: client.ask("register_system_shared_memory", "main", "/shoal_upstream_main_http", 256),
    ),
    ask("an object that is not there", "register_system_shared_memory", "more", "/shoal_upstream_nothing", 16),
    Case("more than the object has", lambda client: _register(client, "more", 4096, 0)),
    Case("behind the object", lambda client: _register(client, "more", 16, 4096)),
    Case("a piece of the object", lambda client: _register(client, "more", 16, 64)),
    infer("numbers from a piece", "echo", Given("IN", FOUR.values, place=("more", 16, 0))),
    infer("numbers behind the region", "echo", at(16, 256)),
    infer("numbers across the end", "echo", at(16, 248)),
    infer("too few numbers in the region", "echo", at(12, 0)),
    infer("a window that is too small", "echo", FOUR, wanted=(Wanted("OUT", place=("main", 8, 64)),)),
    infer("a window behind the region", "echo", FOUR, wanted=(Wanted("OUT", place=("main", 16, 300)),)),
    infer("a larger window", "echo", at(16, 0), wanted=(Wanted("OUT", place=("main", 64, 64)),), reads=False),
    ask("unregister a piece", "unregister_system_shared_memory", "more"),
    ask("unregister what is not there", "unregister_system_shared_memory", "more"),
    ask("unregister everything", "unregister_system_shared_memory"),
    ask("no region is left", "get_system_shared_memory_status"),
    ask("no region of a gpu", "get_cuda_shared_memory_status"),
    ask("forget regions of a gpu", "unregister_cuda_shared_memory"),
    plain("a region without a key", "POST", "/v2/systemsharedmemory/region/x/register", {"byte_size": 4}),
    plain("a region without a size", "POST", "/v2/systemsharedmemory/region/x/register", {"key": "/x"}),
    plain("a region by no json", "POST", "/v2/systemsharedmemory/region/x/register", "{"),
)


def _register(client: Client, name: str, size: int, offset: int) -> Any:
    key = f"/shoal_upstream_main_{client.transport.replace(' ', '_')}"
    return client.ask("register_system_shared_memory", name, key, size, offset)


ALL = (*READY, *ABOUT, *STATISTICS, *SETTINGS, *MEMORY)
