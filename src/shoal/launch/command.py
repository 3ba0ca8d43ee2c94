"""What the commands of TorchServe and MMS have in common: one server at a time, started, announced and stopped."""

import contextlib
import logging
import os
import sys
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path

import msgspec

from shoal.app import App
from shoal.config.deployment import Deployment
from shoal.config.exposure import fetches_anywhere, open_management
from shoal.config.properties import read_properties
from shoal.errors import ServingError
from shoal.launch import daemon
from shoal.logs import set_up_upstream_logs
from shoal.version import __version__

log = logging.getLogger("shoal")
Run = Callable[[Deployment, Callable[[App], None]], int]


@dataclass(frozen=True)
class Words:
    """What a command says, as scripts expect it."""

    is_running: str
    has_stopped: str
    is_not_running: str


class Refused(Exception):
    """What was asked cannot be done; upstream says this on standard output and leaves with 1."""


def with_dashes(arguments: Sequence[str]) -> list[str]:
    """Write `--model_store` as `--model-store`: older guides have it so."""
    return [_with_dashes(argument) if argument.startswith("--") else argument for argument in arguments]


def start(words: Words, configure: Callable[[], Deployment], run: Run, *, is_foreground: bool) -> int:
    """Start a server unless one is running; what cannot be done is said and gives an exit code other than 0."""
    path = daemon.pid_file()
    try:
        if daemon.running(path):
            raise Refused(words.is_running)
        if daemon.remove_orphan(path):
            say("Removing orphan pid file.")
        deployment = configure()
        if is_foreground:
            return _serve(deployment, path, run, lambda: None)
        return daemon.start_in_background(lambda report: _serve(deployment, path, run, report))
    except Refused as refusal:
        say(str(refusal))
    except ServingError as error:
        _complain(str(error))
    except OSError as error:
        _complain(f"cannot listen: {error}")
    return 1


def stop(words: Words) -> int:
    """Stop the server that is running, and wait until it is gone."""
    path = daemon.pid_file()
    try:
        pid = daemon.running(path)
        if not pid:
            if daemon.remove_orphan(path):
                say("Removing orphan pid file.")
            say(words.is_not_running)
            return 0
        if not daemon.stop(pid, path):
            _complain(f"process {pid} did not stop in {daemon.PATIENCE:g} s; it may still be finishing requests")
            return 1
    except ServingError as error:
        _complain(str(error))
        return 1
    except OSError as error:
        _complain(f"cannot stop the server: {error}")
        return 1
    say(words.has_stopped)
    return 0


def named_file(environment: Mapping[str, str], variable: str, flag: str, given: str | None) -> Path | None:
    """Find the settings file that a variable or a flag names; the variable wins."""
    if name := environment.get(variable):
        return existing_file(variable, name)
    return existing_file(flag, given) if given else None


def note_log_config(deployment: Deployment, name: str | None) -> Deployment:
    """Note that a Log4j file has no effect, where one is named; it must be there all the same."""
    if not name:
        return deployment
    existing_file("--log-config", name)
    note = "--log-config has no effect: logs have upstream's form, but Log4j does not write them"
    return msgspec.structs.replace(deployment, notes=[*deployment.notes, note])


def existing_file(flag: str, name: str) -> Path:
    """Give the path of a file that must be there."""
    if not os.path.isfile(name):
        raise Refused(f"{flag} file not found: {name}")
    return Path(name)


def existing_folder(flag: str, name: str) -> None:
    """See that a folder is there."""
    if not os.path.isdir(name):
        raise Refused(f"{flag} directory not found: {name}")


def read(path: Path | None) -> dict[str, str]:
    """Read a settings file, if there is one."""
    return read_properties(path) if path else {}


def given(flags: Mapping[str, str | None]) -> dict[str, str]:
    """Leave out the flags that were not given."""
    return {key: value for key, value in flags.items() if value is not None}


def say(text: str) -> None:
    """Write a line to standard output, if anybody reads it."""
    with contextlib.suppress(OSError):
        sys.stdout.write(f"{text}\n")
        sys.stdout.flush()


def _serve(deployment: Deployment, path: Path, run: Run, report: Callable[[], None]) -> int:
    """Be the server until it is told to stop."""
    server = deployment.server
    close_logs = set_up_upstream_logs(
        "mms" if server.compat == "mms" else "torchserve",
        server.log_level,
        log_location=server.log_location,
        metrics_location=server.metrics_location,
        is_async=server.async_logging,
    )
    try:
        with daemon.holding(path):
            _introduce(deployment)
            return run(deployment, lambda app: _announce(app, report))
    finally:
        close_logs()


def _introduce(deployment: Deployment) -> None:
    """Log what is started, and every setting that has no effect."""
    server, defaults = deployment.server, deployment.defaults
    log.info(
        "Shoal %s in the place of %s: model store %s, %d GPUs, %d workers per model, token authorization %s",
        __version__,
        {"mms": "Multi Model Server"}.get(server.compat, "TorchServe"),
        server.model_store or "none",
        defaults.gpus,
        defaults.startup_workers,
        "on" if server.token_authorization else "off",
    )
    if found := open_management(server):
        log.warning("%s: as upstream has it, whoever reaches this port can load code; no key is asked for", found[0])
    if fetches_anywhere(server):
        log.warning("allowed_urls: as upstream has it, models are fetched from any address that a client names")
    for note in deployment.notes:
        log.warning("%s", note)


def _announce(app: App, report: Callable[[], None]) -> None:
    """Say where the server is, and the line that scripts wait for."""
    for name, address in app.addresses.items():
        log.info("%s API bind to: %s", name.capitalize(), address)
    say("Model server started.")
    report()


def _with_dashes(argument: str) -> str:
    name, equals, value = argument.partition("=")
    return name.replace("_", "-") + equals + value


def _complain(text: str) -> None:
    sys.stderr.write(f"error: {text}\n")
    sys.stderr.flush()
