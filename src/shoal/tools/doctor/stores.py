"""A TorchServe or MMS model store with its config.properties: the settings, the ports, and every archive in it."""

import errno
import os
import socket
from collections.abc import Iterator, Mapping
from pathlib import Path

from shoal.archive.store import ENDINGS
from shoal.config import mms, torchserve
from shoal.config.deployment import Deployment
from shoal.config.devices import machine
from shoal.config.properties import read_properties
from shoal.config.server import ServerConfig
from shoal.errors import ServingError
from shoal.tools.doctor.archives import check_archive
from shoal.tools.doctor.findings import Diagnosis, Finding, Subject, differs

SETTINGS = "config.properties"
FOR_MMS = ("preload_model", "default_response_timeout_seconds")  # keys that only Multi Model Server has


def is_store(folder: Path) -> bool:
    """Whether archives lie here, packed or unpacked."""
    return any(_archives(folder))


def check_store(folder: Path, settings: Path | None) -> Diagnosis:
    """Look at a folder of archives, and at the settings that go with it."""
    settings = settings or next(
        (file for file in (folder / SETTINGS, folder.parent / SETTINGS) if file.is_file()), None
    )
    deployment, server = _server(settings, str(folder))
    subjects = [*([server] if server else []), *(check_archive(path, deployment) for path in _archives(folder))]
    if server is not None:
        server.findings.extend(_listed(deployment, folder))
    is_mms = deployment.server.compat == "mms"
    command = "multi-model-server" if is_mms else "torchserve --ncs"
    flag = f" --{'mms' if is_mms else 'ts'}-config {settings}" if settings else ""
    what = f"a model store of {'Multi Model Server' if is_mms else 'TorchServe'}"
    return Diagnosis(str(folder), what, subjects, f"shoal {command} --start --model-store {folder}{flag}")


def check_settings(file: Path) -> Diagnosis:
    """Look at a config.properties, and at the store that it names."""
    deployment, server = _server(file, "")
    assert server is not None
    store = Path(deployment.server.model_store) if deployment.server.model_store else None
    subjects = [server]
    if store is not None and store.is_dir():
        subjects += [check_archive(path, deployment) for path in _archives(store)]
        server.findings.extend(_listed(deployment, store))
    elif server.level != "fails":
        named = f"model_store is {store}, which is no folder" if store else "it names no model_store"
        server.findings.append(Finding("fails" if store else "differs", named, "start with --model-store FOLDER"))
    flag = (
        "multi-model-server --start --mms-config"
        if deployment.server.compat == "mms"
        else "torchserve --start --ts-config"
    )
    return Diagnosis(str(file), "settings of TorchServe or Multi Model Server", subjects, f"shoal {flag} {file}")


def plain_deployment(store: str = "") -> Deployment:
    """What TorchServe would have with no settings at all."""
    return torchserve.deployment({}, os.environ, {"model_store": store} if store else {}, keep_snapshots=False)


def _archives(folder: Path) -> Iterator[Path]:
    for path in sorted(folder.iterdir()):
        if path.name.startswith("."):
            continue
        is_packed = path.is_file() and path.name.lower().endswith(ENDINGS)
        if is_packed or any((path / name).is_file() for name in ("MAR-INF/MANIFEST.json", "MANIFEST.json")):
            yield path


def _server(file: Path | None, store: str) -> tuple[Deployment, Subject | None]:
    if file is None:
        return plain_deployment(store), None
    findings: list[Finding] = []
    found: Deployment | None = None
    try:
        values = read_properties(file)
        found = _deployed(values, store)
        findings += differs(found.notes)
        findings += ports(found.server)
    except ServingError as error:
        findings.append(Finding("fails", str(error), f"correct {file}"))
    return found or plain_deployment(store), Subject(str(file), "settings", findings)


def _deployed(values: Mapping[str, str], store: str) -> Deployment:
    flags = {"model_store": store} if store else {}
    here = machine(os.environ)
    if any(key in values for key in FOR_MMS):
        return mms.deployment(values, os.environ, flags, machine=here)
    pair = ("", "") if not values.get("keystore") else None  # whether TLS can be had is asked when it starts
    return torchserve.deployment(values, os.environ, flags, machine=here, keep_snapshots=False, own_certificate=pair)


def _listed(deployment: Deployment, store: Path) -> Iterator[Finding]:
    """The models that are to be loaded, and are not there."""
    for name, location in deployment.startup:
        if location.lower() == "all" or "://" in location:
            continue
        tried = [store / Path(location).name, *(store / f"{Path(location).name}{ending}" for ending in ENDINGS)]
        if not any(path.exists() for path in tried):
            yield Finding(
                "fails", f"load_models names {name or location}, and {store} has no {location}", "put it there"
            )


def ports(server: ServerConfig) -> Iterator[Finding]:
    """The ports that somebody else has now."""
    wanted = {
        "inference": (server.host, server.port),
        "management": (server.management_host, server.management_port),
        "metrics": (server.metrics_host or server.host, server.metrics_port),
        "gRPC inference": (server.grpc_host, server.grpc_port),
        "gRPC management": (server.grpc_management_host, server.grpc_management_port),
    }
    for name, (host, port) in wanted.items():
        if port and port > 0 and is_taken(host, port):
            text = f"port {port} of the {name} API is in use now"
            yield Finding("differs", text, "stop the server that has it before Shoal starts, or choose another port")


def is_taken(host: str, port: int) -> bool:
    """Whether a listener could not be opened there."""
    try:
        (family, kind, _, _, address), *_ = socket.getaddrinfo(host or None, port, type=socket.SOCK_STREAM)
        with socket.socket(family, kind) as probe:
            probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
            probe.bind(address)
    except OSError as error:
        return error.errno == errno.EADDRINUSE
    return False
