"""A running server, asked by its own routes: what it is, which models it has, and what each would do here."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote

import msgspec

from shoal.config import pbtxt
from shoal.errors import InvalidInput, ServingError
from shoal.tools.calls import Reply, ServerFailed, Site, call
from shoal.tools.doctor.findings import Diagnosis, Finding, Subject
from shoal.tools.doctor.repositories import check_message
from shoal.tools.management import Management

WITHIN = 10.0
SHOAL, TORCHSERVE, MMS = "Shoal APIs", "TorchServe APIs", "Model Server APIs"
NAMES = {
    SHOAL: "Shoal",
    TORCHSERVE: "TorchServe (or Shoal in its place)",
    MMS: "Multi Model Server (or Shoal in its place)",
}


def check_server(site: Site, token: str) -> Diagnosis:
    """Find out what listens there, and look at its models."""
    headers = {"Authorization": f"Bearer {token}"} if token else {}
    about = _json(call(site, "GET", "/v2", headers=headers, timeout=WITHIN))
    if "triton" in str(about.get("name", "")).lower():
        return _triton(site, about, headers)
    title = _title(site, headers)
    for place in (site, msgspec.structs.replace(site, port=site.port + 1)):
        if (found := _managed(place, token, title)) is not None:
            return found
    if title or _ping(site, headers):
        raise InvalidInput(
            f"{site.url} is the inference address of {NAMES.get(title, 'a server')}; give its management address, "
            "usually one port further (8081), and --token where it asks for a key"
        )
    raise InvalidInput(f"{site.url} answers, but is none of TorchServe, Multi Model Server, Triton and Shoal")


def _managed(site: Site, token: str, title: str) -> Diagnosis | None:
    """Look at a server through its management API; None where there is none."""
    server = Management(site, token)
    try:
        names = server.names()
    except (ServerFailed, KeyError, AttributeError, TypeError):
        return None
    title = _title(site, {"Authorization": f"Bearer {token}"} if token else {}) or title
    is_ours = title == SHOAL
    subjects = []
    for name in names:
        try:
            facts = server.describe(name, "all")
        except ServerFailed:  # Multi Model Server knows no versions
            facts = server.describe(name)
        subjects += [Subject(_name(each), NAMES.get(title, "model"), _model(each, is_ours=is_ours)) for each in facts]
    what = f"a running {NAMES.get(title, 'server with a management API')}, its management at {site.url}"
    return Diagnosis(site.url, what, subjects)


def _name(facts: Mapping[str, Any]) -> str:
    return f"{facts.get('modelName', '')} {facts.get('modelVersion', '')}".strip()


def _model(facts: Mapping[str, Any], *, is_ours: bool) -> list[Finding]:
    findings = []
    workers = facts.get("workers") or []
    ready = sum(worker.get("status") == "READY" for worker in workers)
    if workers and not ready:
        findings.append(
            Finding("fails", "no worker of it is ready on the server that runs now", "see that server's log")
        )
    if is_ours:
        if problem := facts.get("error"):
            findings.append(Finding("fails", str(problem)))
        return findings
    if facts.get("runtime") == "LSP":
        findings.append(Finding("fails", "runtime LSP: there are no C++ workers here", "keep this model on TorchServe"))
    if str(facts.get("parallelType") or "") not in ("", "none"):
        text = f"parallelType {facts['parallelType']}: each worker loads the whole model"
        findings.append(Finding("fails", text, "serve a model that fits on one device, or keep this one on TorchServe"))
    if facts.get("batchSize") == 1:
        change = "register it with batch_size=1 to keep requests apart"
        findings.append(Finding("differs", "it runs one request at a time; here it is batched adaptively", change))
    if url := str(facts.get("modelUrl", "")):
        change = f"shoal doctor on {url} looks into the archive, which a running server does not show"
        findings.append(Finding("works", f"its archive is {url}", change))
    return findings


def _triton(site: Site, about: Mapping[str, Any], headers: Mapping[str, str]) -> Diagnosis:
    reply = call(site, "POST", "/v2/repository/index", body=b"{}", headers=headers, timeout=WITHIN)
    if reply.status >= 400:
        raise ServerFailed(f"{site.url} does not list its models: {reply.status}: {reply.problem}", reply.status)
    index = reply.value if isinstance(reply.value, list) else []
    subjects = [_of_triton(site, entry, headers) for entry in index if isinstance(entry, dict) and entry.get("name")]
    version = str(about.get("version", ""))
    return Diagnosis(site.url, f"a running Triton {version} (or Shoal in its place)", subjects)


def _of_triton(site: Site, entry: Mapping[str, Any], headers: Mapping[str, str]) -> Subject:
    name, version = str(entry["name"]), str(entry.get("version", ""))
    label, kind = f"{name} {version}".strip(), "Triton model"
    if entry.get("state") not in (None, "", "READY"):
        reason = str(entry.get("reason") or entry["state"])
        return Subject(label, kind, [Finding("differs", f"it is not loaded on the server that runs now: {reason}")])
    path = (
        f"/v2/models/{quote(name, safe='')}" + (f"/versions/{quote(version, safe='')}" if version else "") + "/config"
    )
    reply = call(site, "GET", path, headers=headers, timeout=WITHIN)
    if reply.status >= 400:
        return Subject(
            label, kind, [Finding("differs", f"its settings are not shown: {reply.status}: {reply.problem}")]
        )
    try:
        message = pbtxt.parse_json(reply.body, f"the settings of {name}")
    except ServingError as error:
        return Subject(label, kind, [Finding("fails", str(error), "correct config.pbtxt")])
    is_ensemble = message.WhichOneof("scheduling_choice") == "ensemble_scheduling"
    kind = "Triton ensemble" if is_ensemble else f"Triton model, {message.backend or message.platform}"
    return Subject(label, kind, list(check_message(message, None, [])))


def _title(site: Site, headers: Mapping[str, str]) -> str:
    try:
        found = _json(call(site, "GET", "/api-description", headers=headers, timeout=WITHIN))
        if not found:
            found = _json(call(site, "OPTIONS", "/", headers=headers, timeout=WITHIN))
    except ServerFailed:
        return ""
    info = found.get("info")
    return str(info.get("title", "")) if isinstance(info, dict) else ""


def _ping(site: Site, headers: Mapping[str, str]) -> bool:
    return "status" in _json(call(site, "GET", "/ping", headers=headers, timeout=WITHIN))


def _json(reply: Reply) -> dict[str, Any]:
    try:
        found = reply.value
    except ServerFailed:
        return {}
    return found if isinstance(found, dict) and reply.status < 400 else {}
