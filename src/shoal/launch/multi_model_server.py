"""`shoal multi-model-server` and its older name `shoal mxnet-model-server`: the command of MMS, flag for flag."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from shoal import app
from shoal.config.deployment import Deployment
from shoal.config.mms import SAGEMAKER, deployment, properties
from shoal.config.upstream import needs_certificate
from shoal.launch.certificate import own_certificate
from shoal.launch.command import (
    Run,
    Words,
    existing_folder,
    given,
    named_file,
    note_log_config,
    read,
    say,
    start,
    stop,
    with_dashes,
)

WORDS = Words(
    is_running="Model server is already running, please use multi-model-server --stop to stop MMS.",
    has_stopped="Model server stopped.",
    is_not_running="Model server is not currently running.",
)
OLD_NAME = "Warning: Calling MMS with mxnet-model-server. Please move to multi-model-server."
RAW = {"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []}


@click.command("multi-model-server", context_settings=RAW, add_help_option=False)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def multi_model_server(arguments: tuple[str, ...]) -> None:
    """Start and stop a server with Multi Model Server's own flags, files and APIs."""
    sys.exit(main(arguments))


@click.command("mxnet-model-server", context_settings=RAW, add_help_option=False, hidden=True)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def mxnet_model_server(arguments: tuple[str, ...]) -> None:
    """Do the same under its older name."""
    say(OLD_NAME)
    sys.exit(main(arguments))


def main(arguments: Sequence[str], run: Run | None = None) -> int:
    """Do what the flags say; the exit code. A start without --foreground returns once the server has started."""
    flags = _parser().parse_args(with_dashes(arguments))
    if flags.stop:
        return stop(WORDS)
    return start(WORDS, lambda: configure(flags), run or app.run_deployment, is_foreground=flags.foreground)


def configure(flags: argparse.Namespace) -> Deployment:
    """Find the settings file, read it, and put variables and flags over it."""
    if flags.model_store:
        existing_folder("--model-store", flags.model_store)
    file = _settings(flags.mms_config)
    told = given(
        {
            "model_store": flags.model_store,
            "load_models": ",".join(flags.models) if flags.models else None,
        }
    )
    held = properties(file, os.environ, told)
    if store := held.get("model_store", "").strip():
        existing_folder("model_store", store)
    certificate = own_certificate() if needs_certificate(held) else None
    return note_log_config(deployment(file, os.environ, told, own_certificate=certificate), flags.log_config)


def _settings(named: str | None) -> dict[str, str]:
    """Choose the file: MMS_CONFIG_FILE, --mms-config (`sagemaker` is one we bring), config.properties here; or none."""
    if named == "sagemaker" and not os.environ.get("MMS_CONFIG_FILE"):
        return SAGEMAKER
    path = named_file(os.environ, "MMS_CONFIG_FILE", "--mms-config", named)
    here = Path("config.properties")
    return read(path or (here if here.is_file() else None))


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("shoal multi-model-server", description="The command of MMS, served by Shoal.")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("--start", action="store_true", help="start the server (what is meant when nothing is said)")
    action.add_argument("--stop", action="store_true", help="stop the server and wait until it is gone")
    parser.add_argument("--mms-config", metavar="FILE", help="settings, in Java's .properties form, or sagemaker")
    parser.add_argument("--model-store", metavar="FOLDER", help="where model archives are")
    parser.add_argument("--models", nargs="+", metavar="[NAME=]ARCHIVE", help="models to load, or all")
    parser.add_argument("--log-config", metavar="FILE", help="accepted; Log4j files have no effect")
    parser.add_argument("--foreground", action="store_true", help="do not return until the server ends")
    return parser
