"""What can be said of a model: TorchServe's keys with real values, then what only Shoal knows."""

from collections.abc import Mapping
from datetime import UTC, datetime
from itertools import count
from typing import Any
from weakref import WeakKeyDictionary

from shoal.core.model import Model, Pool, WorkerFacts
from shoal.frontend.dialect import Dialect

MMS_KEYS = (
    *("modelName", "modelUrl", "runtime", "minWorkers", "maxWorkers", "batchSize", "maxBatchDelay"),
    *("loadedAtStartup", "workers", "state", "error", "traceback"),
)
MMS_WORKER_KEYS = ("id", "startTime", "status", "gpu", "memoryUsage", "pid", "restarts", "lastError", "traceback")


class Describer:
    """Describes models. Workers get numbers in the order in which they are first asked about; none is given twice."""

    def __init__(self, dialect: Dialect, first_worker: int) -> None:
        self._dialect = dialect
        self._next = count(first_worker)
        self._numbers: WeakKeyDictionary[Pool, dict[str, int]] = WeakKeyDictionary()

    def describe(self, model: Model, gpu_usage: Mapping[int, str]) -> dict[str, Any]:
        """Tell of one version; `gpu_usage` says how busy each GPU is."""
        config, scheduler, stats = model.config, model.scheduler, model.scheduler.stats
        waiting = len(scheduler.batcher.queue)
        is_fixed = config.batching.rule == "fixed"
        limit = max(1, config.batching.batch_size) if config.continuous else scheduler.batcher.policy.limit
        ids = [gpu for device in config.devices if (gpu := gpu_of(device)) is not None]
        facts: dict[str, Any] = {
            "modelName": model.name,
            "modelVersion": model.version,
            "modelUrl": url_of(model),
            "runtime": config.runtime,
            "minWorkers": model.min_workers,
            "maxWorkers": model.max_workers,
            "batchSize": limit,
            "maxBatchDelay": _whole(config.batching.max_batch_delay) if is_fixed else 0,
            "responseTimeout": _whole(config.response_timeout),
            "startupTimeout": _whole(config.startup_timeout),
            "maxRetryTimeoutInSec": _whole(config.retry_for),
            "clientTimeoutInMills": _whole(1000 * config.request_timeout),
            "parallelType": "",
            "parallelLevel": 0,
            "deviceType": "gpu" if any(gpu_of(d) is not None for d in config.devices or [config.device]) else "cpu",
            **({"deviceIds": ids} if ids else {}),
            "continuousBatching": config.continuous,
            "useJobTicket": config.job_tickets,
            "useVenv": bool(config.python or config.packages),
            "stateful": False,
            "sequenceMaxIdleMSec": 0,
            "sequenceTimeoutMSec": 0,
            "maxNumSequence": 0,
            "maxSequenceJobQueueSize": 0,
            "loadedAtStartup": config.loaded_at_startup,
            "workers": [self._worker(model, worker, gpu_usage) for worker in model.pool.describe()],
            "jobQueueStatus": {
                "remainingCapacity": max(0, config.queue_size - waiting),
                "pendingRequests": waiting,
            },
            "state": model.life.value,
            "secondsInState": round(model.since, 3),
            "error": model.error,
            "traceback": model.traceback,
            "batching": {
                "policy": policy_of(model),
                **({"proof": model.proof.words} if config.prove_batching and not config.continuous else {}),
                "reasons": stats.reasons,
                "answered": stats.answered,
                "failed": stats.failed,
                **scheduler.batcher.policy.describe(),
            },
            "faults": {
                "reruns": stats.reruns,
                "restarts": stats.restarts,
                "recycled": stats.recycled,
                "outOfMemory": stats.out_of_memory,
                "ceilings": stats.ceilings,
                "poisonRemembered": len(scheduler.poison.blamed),
                "poisonRefused": scheduler.poison.refused,
            },
        }
        return {key: facts[key] for key in MMS_KEYS} if self._dialect.is_bare else facts

    def _worker(self, model: Model, worker: WorkerFacts, gpu_usage: Mapping[int, str]) -> dict[str, Any]:
        is_counted = self._dialect.counts_workers
        status = ("READY" if worker.state == "ready" else "UNLOADING") if is_counted else worker.state.upper()
        gpu = gpu_of(worker.device)
        facts = {
            "id": str(self.number_of(model, worker.id)) if is_counted else worker.id,
            "startTime": datetime.fromtimestamp(worker.started, UTC).isoformat(timespec="milliseconds")[:-6] + "Z",
            "status": status,
            "memoryUsage": worker.memory,
            "pid": worker.pid,
            "gpu": gpu is not None,
            "gpuUsage": "N/A" if gpu is None else gpu_usage.get(gpu, "N/A"),
            "secondsInStatus": round(worker.since, 3),
            "secondsAtBatch": round(worker.busy, 3),
            "answered": worker.answered,
            "restarts": worker.restarts,
            "lastError": worker.last_error,
            "traceback": worker.traceback,
        }
        return {key: facts[key] for key in MMS_WORKER_KEYS} if self._dialect.is_bare else facts

    def number_of(self, model: Model, worker: str) -> int:
        """Give a worker's number."""
        numbers = self._numbers.setdefault(model.pool, {})
        if worker not in numbers:
            numbers[worker] = next(self._next)
        return numbers[worker]


def url_of(model: Model) -> str:
    """Give what the model was registered by."""
    return model.config.url or model.config.path


def gpu_of(device: str) -> int | None:
    """Give the number of a GPU; None for what is none."""
    kind, _, number = device.partition(":")
    if kind not in ("cuda", "gpu"):
        return None
    return int(number) if number.isdecimal() else 0


def policy_of(model: Model) -> str:
    """Give the name of the rule by which batches leave."""
    if model.config.continuous:
        return "continuous"
    return "single" if model.proof.can_batch is False else model.config.batching.rule


def _whole(value: float) -> int | float:
    return int(value) if value == int(value) else value
