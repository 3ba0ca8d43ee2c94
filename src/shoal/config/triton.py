"""TritonSettings: what a server in the place of Triton is told besides addresses and limits."""

from typing import Literal, NamedTuple

import msgspec


class Restriction(NamedTuple):
    """APIs that are only for those who send a header with this value."""

    apis: frozenset[str]
    header: str
    value: str


class RateResource(NamedTuple):
    """How much there is of something that instances need; on one device, or on each."""

    name: str
    amount: int
    device: int | None = None


class TritonSettings(msgspec.Struct, frozen=True, kw_only=True):
    """Model repositories and what is done with them."""

    repositories: list[str]
    mode: Literal["none", "poll", "explicit"] = "none"  # who may load and unload models
    load_models: list[str] = []  # at the start, in mode explicit; `*`: all
    poll_every: float = 15.0  # s, in mode poll
    exit_on_error: bool = True  # a model that fails to load at the start ends the server
    strict_readiness: bool = True  # ready means that every model is
    completes: bool = True  # what configurations leave out is asked of the models
    config_name: str = ""  # configs/<this>.pbtxt is read before config.pbtxt
    loads_at_once: int = 4
    default_max_batch_size: int = 0  # of completed models; 0: the backend's own
    gpus: int = 0  # of the machine
    is_adaptive: bool = False  # a model that names no scheduler batches as the server sees fit
    id: str = "triton"  # the server's name in its metadata
    cache_size: int = 0  # bytes of answers that are kept; 0: none are
    client_shared_memory: bool = False  # clients may register shared memory
    http_header_forward: str = ""  # a regular expression: headers that become parameters of a request
    grpc_header_forward: str = ""
    http_restrictions: list[Restriction] = []
    grpc_restrictions: list[Restriction] = []
    rate_limit: bool = False  # instances wait for the resources they name
    rate_resources: list[RateResource] = []
    metrics: dict[str, str] = {}  # counter_latencies, summary_latencies, summary_quantiles, histogram_latencies
