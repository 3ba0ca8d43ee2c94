"""All runs of the suite."""

from tests.upstream.triton.repository import MODELS
from tests.upstream.triton.tables import control, errors, inference, server, streams
from tests.upstream.triton.words import Case, Run

UNUSED = "what no case has called"

RUNS: tuple[Run, ...] = (
    Run(
        "main",
        tuple(name for name in MODELS if name != "broken"),
        (
            *inference.ALL,
            *errors.ALL,
            *server.ALL,
            *streams.ALL,
            Case(UNUSED, lambda client: client.unused()),
        ),
    ),
    Run(
        "explicit",
        ("echo", "versions", "broken"),
        control.EXPLICIT,
        ("--model-control-mode=explicit",),
    ),
    Run(
        "guarded",
        ("behave",),
        control.GUARDED,
        (
            "--http-restricted-api=metadata,model-repository,statistics:admin-key=open",
            "--grpc-restricted-protocol=metadata,model-repository,statistics:admin-key=open",
            "--http-header-forward-pattern=x-.*",
            "--grpc-header-forward-pattern=x-.*",
        ),
    ),
)
