"""A server's management API, as far as `shoal models` needs it; TorchServe's and Multi Model Server's answer too."""

from collections.abc import Mapping
from typing import Any
from urllib.parse import quote, urlencode

import msgspec

from shoal.tools.calls import ServerFailed, Site, ask

PAGE = 100
MOST_PAGES = 1000
SLOW = 1800.0  # s for a model to be fetched, unpacked and loaded


class ModelRow(msgspec.Struct, frozen=True):
    """One version of a model."""

    name: str
    version: str
    is_default: bool
    state: str
    ready: int
    workers: int
    waiting: int
    batch_size: int
    answered: int
    failed: int
    memory: int  # bytes of all workers
    problem: str


class Management:
    """Asks one server."""

    def __init__(self, site: Site, token: str) -> None:
        self._site = site
        self._headers = {"Authorization": f"Bearer {token}"} if token else {}

    @property
    def url(self) -> str:
        """Where it is."""
        return self._site.url

    def names(self) -> list[str]:
        """Name all models."""
        found: list[str] = []
        token = ""
        for _ in range(MOST_PAGES):
            query = {"limit": str(PAGE), **({"next_page_token": token} if token else {})}
            page = self._ask("GET", f"/models?{urlencode(query)}")
            found += [str(each["modelName"]) for each in page.get("models", [])]
            token = str(page.get("nextPageToken") or "")
            if not token:
                break
        return found

    def describe(self, name: str, version: str = "") -> list[dict[str, Any]]:
        """Tell of a model's default version, of one of its versions, or of `all`."""
        found = self._ask("GET", _path(name, version))
        return found if isinstance(found, list) else [found]

    def rows(self) -> list[ModelRow]:
        """Tell of every version of every model; one that leaves meanwhile is left out."""
        rows: list[ModelRow] = []
        for name in self.names():
            try:
                default = str(self.describe(name)[0].get("modelVersion", ""))
                rows += [_row(facts, default) for facts in self._versions(name)]
            except ServerFailed as error:
                if error.status != 404:
                    raise
        return rows

    def register(self, url: str, parameters: Mapping[str, str]) -> str:
        """Register a model; gives what the server said."""
        query = {"url": url, "synchronous": "true", **parameters}
        return self._said("POST", f"/models?{urlencode(query)}")

    def scale(self, name: str, version: str, workers: int) -> str:
        """Have so many workers, no fewer and no more."""
        query = {"min_worker": str(workers), "max_worker": str(workers), "synchronous": "true"}
        return self._said("PUT", f"{_path(name, version)}?{urlencode(query)}")

    def share(self, name: str, version: str, weight: float) -> str:
        """Let a version have so many percent of the requests that name none; 0 takes its share back."""
        return self._said("PUT", f"{_path(name, version)}/canary?{urlencode({'weight': f'{weight:g}'})}")

    def remove(self, name: str, version: str) -> str:
        """Take a model away."""
        return self._said("DELETE", _path(name, version))

    def set_default(self, name: str, version: str) -> str:
        """Choose what a bare name means."""
        return self._said("PUT", f"{_path(name, version)}/set-default")

    def _versions(self, name: str) -> list[dict[str, Any]]:
        try:
            return self.describe(name, "all")
        except ServerFailed as error:
            if error.status not in (404, 405):  # Multi Model Server knows no versions
                raise
        return self.describe(name)

    def _said(self, method: str, path: str) -> str:
        answer = self._ask(method, path)
        return str(answer.get("status", answer) if isinstance(answer, dict) else answer)

    def _ask(self, method: str, path: str) -> Any:
        return ask(self._site, method, path, headers=self._headers, timeout=30.0 if method == "GET" else SLOW)


def _path(name: str, version: str) -> str:
    return f"/models/{quote(name, safe='')}" + (f"/{quote(version, safe='')}" if version else "")


def _row(facts: Mapping[str, Any], default: str) -> ModelRow:
    workers = facts.get("workers") or []
    batching = facts.get("batching") or {}
    queue = facts.get("jobQueueStatus") or {}
    ready = sum(worker.get("status") == "READY" for worker in workers)
    version = str(facts.get("modelVersion", ""))
    errors = [str(worker["lastError"]) for worker in workers if worker.get("lastError")]
    return ModelRow(
        name=str(facts["modelName"]),
        version=version,
        is_default=version == default,
        state=str(facts.get("state") or ("ready" if ready else "no worker")),
        ready=ready,
        workers=len(workers),
        waiting=int(queue.get("pendingRequests", 0)),
        batch_size=int(facts.get("batchSize", 0)),
        answered=int(batching.get("answered", 0)),
        failed=int(batching.get("failed", 0)),
        memory=sum(int(worker.get("memoryUsage", 0)) for worker in workers),
        problem=str(facts.get("error") or (errors[0] if errors else "")),
    )
