"""`shoal torchserve`: TorchServe's command, flag for flag."""

import argparse
import os
import sys
from collections.abc import Sequence
from pathlib import Path

import click

from shoal import app
from shoal.config import snapshot
from shoal.config.deployment import Deployment
from shoal.config.torchserve import deployment, properties
from shoal.config.upstream import needs_certificate
from shoal.launch.certificate import own_certificate
from shoal.launch.command import (
    Refused,
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
from shoal.version import __version__

COMPATIBLE = "0.12.0"  # the release whose behaviour is kept
WORDS = Words(
    is_running="TorchServe is already running, please use torchserve --stop to stop TorchServe.",
    has_stopped="TorchServe has stopped.",
    is_not_running="TorchServe is not currently running.",
)


@click.command(
    context_settings={"ignore_unknown_options": True, "allow_extra_args": True, "help_option_names": []},
    add_help_option=False,
)
@click.argument("arguments", nargs=-1, type=click.UNPROCESSED)
def torchserve(arguments: tuple[str, ...]) -> None:
    """Start and stop a server with TorchServe's own flags, files and APIs."""
    sys.exit(main(arguments))


def main(arguments: Sequence[str], run: Run | None = None) -> int:
    """Do what the flags say; the exit code. A start without --foreground returns once the server has started."""
    flags = _parser().parse_args(with_dashes(arguments))
    if flags.version:
        say(f"TorchServe Version is {COMPATIBLE}\nserved by Shoal {__version__}")
        return 0
    if flags.stop:
        return stop(WORDS)
    return start(WORDS, lambda: configure(flags), run or app.run_deployment, is_foreground=flags.foreground)


def configure(flags: argparse.Namespace) -> Deployment:
    """Find the settings file, read it, and put variables and flags over it."""
    for flag, folder in (("--model-store", flags.model_store), ("--workflow-store", flags.workflow_store)):
        if folder:
            existing_folder(flag, folder)
    keep_snapshots = not flags.no_config_snapshots
    file = read(settings_file(flags.ts_config, keep_snapshots=keep_snapshots))
    told = given(
        {
            "model_store": flags.model_store,
            "workflow_store": flags.workflow_store,
            "load_models": ",".join(flags.models) if flags.models else None,
            "cpp_log_config": flags.cpp_log_config,
            "plugins_path": flags.plugins_path,
            "disable_token_authorization": "true" if flags.disable_token_auth else None,
            "enable_model_api": "true" if flags.enable_model_api else None,
        }
    )
    held = properties(file, os.environ, told)
    store = held.get("model_store", "").strip()
    if not store:
        raise Refused("Missing mandatory parameter --model-store")
    existing_folder("model_store", store)
    certificate = own_certificate() if needs_certificate(held) else None
    found = deployment(file, os.environ, told, keep_snapshots=keep_snapshots, own_certificate=certificate)
    return note_log_config(found, flags.log_config)


def settings_file(named: str | None, *, keep_snapshots: bool) -> Path | None:
    """Choose the file: TS_CONFIG_FILE, --ts-config, the newest snapshot, config.properties here; or none."""
    if path := named_file(os.environ, "TS_CONFIG_FILE", "--ts-config", named):
        return path
    if keep_snapshots and (last := snapshot.newest(os.path.join(os.environ.get("LOG_LOCATION") or "logs", "config"))):
        return last
    here = Path("config.properties")
    return here if here.is_file() else None


def _parser() -> argparse.ArgumentParser:
    parser = argparse.ArgumentParser("shoal torchserve", description="TorchServe's command, served by Shoal.")
    action = parser.add_mutually_exclusive_group()
    action.add_argument("-v", "--version", action="store_true", help="show the versions and leave")
    action.add_argument("--start", action="store_true", help="start the server (what is meant when nothing is said)")
    action.add_argument("--stop", action="store_true", help="stop the server and wait until it is gone")
    parser.add_argument("--ts-config", metavar="FILE", help="settings, in Java's .properties form")
    parser.add_argument("--model-store", metavar="FOLDER", help="where model archives are; needed here or in settings")
    parser.add_argument("--workflow-store", metavar="FOLDER", help="where workflow archives are")
    parser.add_argument("--models", nargs="+", metavar="[NAME=]ARCHIVE", help="models to load, or all")
    parser.add_argument("--log-config", metavar="FILE", help="accepted; Log4j files have no effect")
    parser.add_argument("--cpp-log-config", metavar="FILE", help="accepted; there are no C++ workers")
    parser.add_argument("--foreground", action="store_true", help="do not return until the server ends")
    parser.add_argument("--no-config-snapshots", "--ncs", action="store_true", help="keep and restore no snapshots")
    parser.add_argument("--plugins-path", "--ppath", metavar="FOLDER", help="accepted; Java plug-ins have no effect")
    parser.add_argument("--disable-token-auth", "--dt", action="store_true", help="ask clients for no keys")
    parser.add_argument("--enable-model-api", action="store_true", help="let clients register and remove models")
    return parser
