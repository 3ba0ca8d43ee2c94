"""Deployment: what starts a server besides its own settings: models to load, defaults for registrations, tuning.

`shoal serve` makes one from its flags; other servers' files and commands are turned into one (`config/torchserve.py`).
"""

from collections.abc import Mapping, Sequence
from typing import Any, Literal

import msgspec

from shoal.config.server import ServerConfig
from shoal.config.triton import TritonSettings


class Defaults(msgspec.Struct, frozen=True, forbid_unknown_fields=True, kw_only=True):
    """What a model gets where neither its registration nor its archive says otherwise."""

    flavour: Literal["shoal", "torchserve", "mms"] = "shoal"  # of what carries no manifest
    registered_workers: int = 1  # for models registered by a client; TorchServe's own default is 0
    startup_workers: int = 1  # for models that are loaded when the server starts
    batch_size: int = 0  # 0: nobody said
    max_batch_delay: float = 100.0  # ms
    response_timeout: float = 120.0  # s
    startup_timeout: float = 120.0  # s
    queue_size: int = 8192
    handler: str = ""  # where the manifest names none
    envelope: Literal["", "body", "json", "kserve", "kservev2"] = ""
    decode_input: bool = True
    limit_image_pixels: bool = True
    max_response_size: int = 0
    hidden_environment: str = ""
    environment: dict[str, str] = {}
    install_requirements: bool = False  # an archive's requirements are installed, for that model alone
    allow_pickle: bool = False
    gpus: int = 0  # how many the machine has, or may use
    first_worker_id: int = 9000  # ids that describe calls show; they are counted up from here, never used again


class Deployment(msgspec.Struct, frozen=True, kw_only=True):
    """One server and what it serves."""

    server: ServerConfig
    defaults: Defaults = Defaults()
    startup: Sequence[tuple[str, str]] = ()  # name (empty: the archive's own) and location of each model to load
    tuning: Mapping[str, Mapping[str, Mapping[str, Any]]] = {}  # TorchServe's `models`: by name, by version
    snapshot: Mapping[str, Any] | None = None  # the `model_snapshot` to restore; then `startup` is not looked at
    workflow_store: str = ""
    properties: Mapping[str, str] = {}  # the other server's settings as they came out, for snapshots
    snapshots: str = ""  # the folder snapshots are kept in; empty: none are
    triton: TritonSettings | None = None  # model repositories of Triton, and how they are looked after
    notes: Sequence[str] = ()  # settings that have no effect here, one line each, for the log
