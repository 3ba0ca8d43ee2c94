"""`shoal tritonserver`: Triton's command, flag for flag, in the foreground."""

import logging
import os
import sys
from collections.abc import Sequence

import click

from shoal import app
from shoal.app import App
from shoal.config.deployment import Deployment
from shoal.config.devices import machine
from shoal.config.exposure import open_repository
from shoal.config.tritonserver import BARE, KNOWN, WITHOUT_EFFECT, deployment, parse
from shoal.errors import ServingError
from shoal.launch.command import Run, say
from shoal.telemetry import set_up_logs
from shoal.version import __version__

log = logging.getLogger("shoal")
COMPATIBLE = "2.51.0"  # the release whose behaviour is kept


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def tritonserver(arguments: tuple[str, ...]) -> None:
    """Serve Triton model repositories with tritonserver's own flags and APIs."""
    sys.exit(main(arguments))


def main(arguments: Sequence[str], run: Run | None = None) -> int:
    """Do what the flags say; the exit code. It returns when the server has ended."""
    try:
        flags = parse(arguments)
        if "help" in flags:
            say(help_text())
            return 0
        if "version" in flags:
            say(f"tritonserver {COMPATIBLE}\nserved by Shoal {__version__}")
            return 0
        found = deployment(flags, os.environ, machine(os.environ))
        set_up_logs(found.server.log_level, found.server.log_format)
        _introduce(found)
        return (run or app.run_deployment)(found, announce)
    except ServingError as error:
        return _complain(str(error))
    except OSError as error:
        return _complain(f"cannot listen: {error}")


def announce(running: App) -> None:
    """Say where the server is, in the lines that scripts wait for."""
    addresses = running.addresses
    for api, words in (
        ("grpc inference", "Started GRPCInferenceService at"),
        ("inference", "Started HTTPService at"),
        ("metrics", "Started Metrics Service at"),
    ):
        if api in addresses:
            log.info("%s %s", words, addresses[api].partition("://")[2])


def help_text() -> str:
    """List the flags that are taken."""
    used = sorted(KNOWN - WITHOUT_EFFECT.keys())
    lines = ["Usage: shoal tritonserver --model-repository=FOLDER [--FLAG=VALUE ...]", "", "tritonserver's own flags:"]
    lines += [f"  --{name}" + ("" if name in BARE else " VALUE") for name in used]
    return "\n".join([*lines, "", "taken without effect:", *(f"  --{name}" for name in sorted(WITHOUT_EFFECT))])


def _introduce(found: Deployment) -> None:
    """Log what is started, and every flag that has no effect."""
    assert found.triton is not None
    repositories = ", ".join(found.triton.repositories)
    log.info("Shoal %s in the place of Triton %s: model repository %s", __version__, COMPATIBLE, repositories)
    if open_to := open_repository(found.server, found.triton):
        log.warning(
            "%s: as upstream has it, whoever reaches this port can load and unload models; "
            "--http-restricted-api and --grpc-restricted-protocol ask for a header",
            " and ".join(open_to),
        )
    for note in found.notes:
        log.warning("%s", note)


def _complain(text: str) -> int:
    sys.stderr.write(f"error: {text}\n")
    sys.stderr.flush()
    return 1
