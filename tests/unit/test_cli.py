"""The `shoal` command finds its parts where it says, and imports no more of them than it needs."""

import subprocess
import sys

import click
import pytest

from shoal.cli import PLACES, cli


@pytest.mark.parametrize("name", PLACES)
def test_a_command_is_where_it_is_said_to_be(name: str) -> None:
    command = cli.get_command(click.Context(cli), name)

    assert command is not None
    assert command.name == name


def test_there_is_nothing_else() -> None:
    assert cli.list_commands(click.Context(cli)) == sorted(PLACES)
    assert cli.get_command(click.Context(cli), "swim") is None


@pytest.mark.parametrize("said", ["--version", "bench --help", "check --help", "models --help", "tune --help"])
def test_what_starts_no_server_imports_none(said: str) -> None:
    code = "import sys; from shoal.cli import cli; cli(standalone_mode=False); print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", code, *said.split()], capture_output=True, text=True, check=True)

    assert not {"shoal.app", "shoal.apis", "prometheus_client"} & set(done.stdout.split())
