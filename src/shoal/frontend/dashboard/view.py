"""What the dashboard is told of models: a line for each of them, and everything about the one that is looked at."""

from collections.abc import Iterable
from typing import Any

from shoal.core.model import WorkerFacts
from shoal.frontend.dashboard.track import RECENT, Track
from shoal.frontend.describe import policy_of, url_of

MOST_TEXT = 2_000  # characters of an error
MOST_TRACEBACK = 8_000


def line_of(track: Track, is_default: bool) -> dict[str, Any]:
    """Say of a model what a list has room for."""
    model = track.model
    workers = model.pool.describe()
    stats, batcher = model.scheduler.stats, model.scheduler.batcher
    recent = list(track.cells)[-RECENT:]
    seconds = sum(cell.seconds for cell in recent)
    batches = sum(cell.batches for cell in recent)
    p50, _, p99 = track.recent()
    return {
        "name": model.name,
        "version": model.version,
        "is_default": is_default,
        "state": model.life.value,
        "trouble": _cut(model.error or model.pool.trouble or _first_error(workers), MOST_TEXT),
        "workers": len(workers),
        "ready": sum(worker.state == "ready" for worker in workers),
        "wanted": model.pool.size,
        "instances": batcher.fleet.size,
        "waiting": len(batcher.queue),
        "running": model.scheduler.running,
        "rate": round(sum(cell.arrived for cell in recent) / seconds, 2) if seconds else 0.0,
        "rows": round(sum(cell.rows for cell in recent) / batches, 2) if batches else None,
        "busy": round(sum(cell.busy * cell.seconds for cell in recent) / seconds, 3) if seconds else 0.0,
        "p50": p50,
        "p99": p99,
        "answered": stats.answered,
        "failed": stats.failed + stats.expired,
    }


def whole_of(track: Track, cells_made: int) -> dict[str, Any]:
    """Say of a model what there is to say; of its cells, those made after so many."""
    model = track.model
    stats, policy = model.scheduler.stats, model.scheduler.batcher.policy
    return {
        "name": model.name,
        "version": model.version,
        "state": model.life.value,
        "error": _cut(model.error, MOST_TEXT),
        "traceback": _cut(model.traceback, MOST_TRACEBACK),
        "url": url_of(model),
        "policy": policy_of(model),
        "limit": policy.limit,
        "queue_size": model.config.queue_size,
        "min_workers": model.min_workers,
        "max_workers": model.max_workers,
        "workers": [_worker(worker) for worker in model.pool.describe()],
        "instances": list(model.scheduler.held),
        "totals": {
            "answered": stats.answered,
            "failed": stats.failed,
            "expired": stats.expired,
            "withdrawn": stats.withdrawn,
            "refused": stats.refused,
            "reruns": stats.reruns,
            "restarts": stats.restarts,
        },
        "recent": track.recent(),
        "sizes": track.sizes(),
        "reasons": track.reasons(),
        "cells": track.cells_since(cells_made),
    }


def _worker(worker: WorkerFacts) -> dict[str, Any]:
    return {
        "id": worker.id,
        "pid": worker.pid,
        "state": worker.state,
        "since": round(worker.since, 1),
        "restarts": worker.restarts,
        "memory": worker.memory,
        "device": worker.device,
        "error": _cut(worker.last_error, MOST_TEXT),
        "traceback": _cut(worker.traceback, MOST_TRACEBACK),
    }


def _first_error(workers: Iterable[WorkerFacts]) -> str:
    return next((worker.last_error for worker in workers if worker.state != "ready" and worker.last_error), "")


def _cut(text: str, most: int) -> str:
    return text if len(text) <= most else f"{text[:most]} ... ({len(text) - most} characters more)"
