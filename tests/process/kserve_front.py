"""A real server with real workers that speaks KServe v2 over HTTP and gRPC, on free ports."""

import asyncio
import contextlib
import logging
import os
import sys
import threading
import time
from collections.abc import Iterator
from concurrent.futures import Future
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import uvloop

from shoal.app import App
from shoal.config.model import Batching, Interface, ModelConfig, TensorSpec
from shoal.config.server import ServerConfig
from shoal.frontend.exchange import Exchange
from shoal.frontend.grpc.kserve import KServe
from shoal.frontend.http2.limits import Http2Limits
from shoal.frontend.http2.server import Http2Listener
from shoal.frontend.hub import HttpLimits
from shoal.frontend.kserve.control import Fixed
from shoal.frontend.kserve.describe import About
from shoal.frontend.kserve.desk import Desk
from shoal.frontend.kserve.infer import Infer
from shoal.frontend.kserve.memory import Regions
from shoal.frontend.kserve.parts import Parts
from shoal.frontend.kserve.routes import Routes
from shoal.frontend.kserve.settings import LogSettings, TraceSettings
from shoal.frontend.listen import Listener
from shoal.series.triton import Series
from tests.serving import MODELS

LARGEST = 32 * 2**20
WIDTHS = {"FP32": 4, "INT32": 4, "FP16": 2, "BYTES": 0}


@dataclass
class Front:
    """The addresses of a running server."""

    http: int
    grpc: str
    app: App
    series: Series


def model(
    name: str, datatype: str, dims: list[int], *, inputs: int = 1, does: str = "echo", rows: int = 4, **fields: Any
) -> ModelConfig:
    """Settings of a model that gives its inputs back, or does what it is told."""
    ends = [""] if inputs == 1 else [str(number) for number in range(inputs)]
    known = {f"IN{end}": (datatype, WIDTHS[datatype], [dim for dim in dims if dim > 0]) for end in ends}
    return ModelConfig(
        name=name,
        version="1",
        path=str(MODELS / "tensors.py"),
        batching=Batching(policy="fixed", batch_size=rows or 1, max_batch_delay=0.0),
        interface=Interface(
            inputs=[TensorSpec(name=f"IN{end}", datatype=datatype, dims=dims) for end in ends],
            outputs=[TensorSpec(name=f"OUT{end}", datatype=datatype, dims=dims) for end in ends],
            max_batch_size=rows,
            is_decoupled=does == "count",
        ),
        parameters={"inputs": known, "does": does},
        isolate=False,
        **fields,
    )


MODEL_CONFIGS = [
    model("plain", "FP32", [4]),
    model("image", "FP32", [150_000], rows=8),
    model("nobatch", "INT32", [-1, 2], rows=0),
    model("strs", "BYTES", [-1]),
    model("half", "FP16", [2]),
    model("fails", "INT32", [1], does="obey"),
    model("deco", "INT32", [1], does="count"),
    model("two", "INT32", [2], inputs=2),
]


def put_together(app: App) -> tuple[Parts, Routes, Series]:
    """The parts of KServe v2 around a server's models."""
    series = Series(time.time)
    lend = app.arena.lend if app.arena else lambda _: None
    regions = Regions(is_on=True, lend=lend, largest=LARGEST)
    desk = Desk(
        app.repository,
        app.clock,
        regions,
        lambda model, index, kind, seconds: series.of(model.scheduler.stats).response(index, kind, seconds),
    )
    parts = Parts(
        desk,
        Fixed(app.repository),
        lambda model: series.statistics(model.scheduler.stats),
        About("triton", "2.51.0", lambda: True, desk.all_ready),
        TraceSettings(),
        LogSettings(logging.getLogger("shoal").setLevel),
    )
    return parts, Routes(parts, Infer(desk, largest=LARGEST)), series


@contextlib.contextmanager
def fronting(models: list[ModelConfig] | None = None, http_port: int = 0, grpc_port: int = 0) -> Iterator[Front]:
    """Serve these models while the block runs."""
    config = ServerConfig(port=0, management_port=0, metrics_port=0, drain_timeout=5.0)
    started: Future[Front] = Future()
    stopping = asyncio.Event()
    loops: list[asyncio.AbstractEventLoop] = []

    async def serve() -> None:
        loops.append(asyncio.get_running_loop())
        app = App(config, models or MODEL_CONFIGS)
        parts, routes, series = put_together(app)
        build = app.repository._build

        def watched(config: ModelConfig) -> Any:
            made = build(config)
            series.watch(made.scheduler.stats)
            return made

        app.repository._build = watched

        def answer(exchange: Exchange) -> None:
            assert routes.take(exchange), f"{exchange.target!r} is nobody's"

        await app.start()
        lend = app.arena.lend if app.arena else lambda _: None
        http = Listener(answer, HttpLimits(max_body=LARGEST), lend, host="127.0.0.1", port=http_port, unix_path=None)
        grpc = Http2Listener(
            KServe(parts).services(), Http2Limits(max_message=LARGEST), host="127.0.0.1", port=grpc_port
        )
        await http.start()
        await grpc.start()
        started.set_result(Front(int(http.address.rpartition(":")[2]), grpc.address, app, series))
        await stopping.wait()
        await http.drain(5.0)
        await grpc.drain(5.0)
        await app.drain()

    def run() -> None:
        with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
            try:
                runner.run(serve())
            except BaseException as error:
                if started.done():
                    raise
                started.set_exception(error)

    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    try:
        yield started.result(60)
    finally:
        if loops:
            loops[0].call_soon_threadsafe(stopping.set)
        thread.join()


if __name__ == "__main__":  # for clients of another environment: python -m tests.process.kserve_front 18000 18001
    with fronting(http_port=int(sys.argv[1]), grpc_port=int(sys.argv[2])) as front:
        Path(sys.argv[3]).write_text(str(os.getpid()))
        sys.stdin.read()
