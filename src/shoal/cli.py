"""The `shoal` command: finds what is asked for, and ends every failure in a line that a person can act on."""

import contextlib
import faulthandler
import importlib
import sys
from typing import cast

import click

from shoal.console import err
from shoal.errors import LoadFailed, ServingError
from shoal.version import __version__, is_compiled

PLACES = {  # of the commands: imported when they are asked for, as a tool needs no server
    "archive": "shoal.launch.archiver:archive",
    "bench": "shoal.tools.bench.command:bench",
    "check": "shoal.tools.check.command:check",
    "demo": "shoal.launch.serve:demo",
    "doctor": "shoal.tools.doctor.command:doctor",
    "models": "shoal.tools.models:models",
    "multi-model-server": "shoal.launch.multi_model_server:multi_model_server",
    "mxnet-model-server": "shoal.launch.multi_model_server:mxnet_model_server",
    "profile": "shoal.tools.profile.command:profile",
    "serve": "shoal.launch.serve:serve",
    "torchserve": "shoal.launch.torchserve:torchserve",
    "tritonserver": "shoal.launch.tritonserver:tritonserver",
    "tune": "shoal.tools.tune.command:tune",
}


class Commands(click.Group):
    """Commands by their places."""

    def list_commands(self, ctx: click.Context) -> list[str]:
        """All names, in order."""
        return sorted(PLACES)

    def get_command(self, ctx: click.Context, cmd_name: str) -> click.Command | None:
        """Import one command; None where there is no such."""
        if (place := PLACES.get(cmd_name)) is None:
            return None
        module, _, name = place.partition(":")
        return cast(click.Command, getattr(importlib.import_module(module), name))


@click.group(cls=Commands, context_settings={"help_option_names": ["-h", "--help"]})
@click.version_option(
    __version__, prog_name="shoal", message=f"%(prog)s, version %(version)s{', compiled' if is_compiled() else ''}"
)
def cli() -> None:
    """Serve models: many small calls leave as one batch, each caller gets its own answer back."""


def main() -> None:
    """Entry point: every failure that was foreseen ends in one line a person can act on."""
    with contextlib.suppress(OSError, ValueError):  # standard error that is no file
        faulthandler.enable()  # a crash in native code says where it was
    try:
        cli(standalone_mode=False)
    except click.ClickException as error:
        error.show()
        sys.exit(error.exit_code)
    except click.Abort:
        sys.exit(130)
    except LoadFailed as error:
        if error.traceback:
            err.print(error.traceback.rstrip(), markup=False, style="dim")
        _say(str(error))
        sys.exit(1)
    except ServingError as error:
        _say(str(error))
        sys.exit(2)
    except OSError as error:
        _say(f"cannot listen: {error}")
        sys.exit(1)


def _say(message: str) -> None:
    err.print("[bold red]error:[/] ", end="")
    err.print(message, markup=False, soft_wrap=True)
