"""Upstream's logs: everything on standard output in its form, and the files that tools of TorchServe and MMS read.

Loggers keep their names; here each gets the label and the files that upstream has for it.
"""

import contextlib
import logging
import os
import queue
import re
import sys
from collections.abc import Callable, Sequence
from datetime import datetime
from logging.handlers import QueueListener, RotatingFileHandler
from typing import Any, Literal

from shoal.errors import ConfigError
from shoal.redact import redact

ACCESS = logging.getLogger("shoal.access")
METRICS = "shoal.metrics."  # and the label: TS_METRICS or MODEL_METRICS
LABELS = {
    ACCESS.name: "ACCESS_LOG",
    "shoal.handler": "MODEL_LOG",
    f"{METRICS}TS_METRICS": "TS_METRICS",
    f"{METRICS}MODEL_METRICS": "MODEL_METRICS",
}
LEVELS = {logging.DEBUG: "DEBUG", logging.INFO: "INFO ", logging.WARNING: "WARN ", logging.ERROR: "ERROR"}
LIKE_A_RECORD = re.compile(r"\d{4}-\d\d-\d\dT")
LARGEST = 100 * 2**20  # bytes of a file before the next is begun
KEPT = 5
HELD = 0.1  # s that lines of the access log are held back
WAITING = 100_000  # records held for the thread that writes; then whoever logs waits for it
IN_NAMES = {"model", "version", "worker", "stream", "traceback"}


def access_line(peer: str, method: str, target: str, protocol: str, status: int, milliseconds: float) -> str:
    """Give the line of the access log for one call; nothing a client sends can begin another line."""
    return _printable(f'/{peer} "{method} {target} {protocol}" {status} {milliseconds:.0f}')


def write_metrics(log: Literal["TS_METRICS", "MODEL_METRICS"], lines: Sequence[str]) -> None:
    """Log lines of metrics, all of them as one record: there are many."""
    _write_lines(logging.getLogger(METRICS + log), lines)


class AccessLog:
    """Lines of the access log, held back for a moment and written together: one for each answer is a good deal."""

    def __init__(self, later: Callable[[float, Callable[[], None]], object]) -> None:
        self._later = later
        self._lines: list[str] = []

    def add(self, peer: str, method: str, target: str, status: int, milliseconds: float) -> None:
        """Take the line of one answer."""
        if not self._lines:
            self._later(HELD, self.flush)
        self._lines.append(access_line(peer, method, target, "HTTP/1.1", status, milliseconds))

    def flush(self) -> None:
        """Write what is held."""
        lines, self._lines = self._lines, []
        _write_lines(ACCESS, lines)


def _write_lines(logger: logging.Logger, lines: Sequence[str]) -> None:
    if lines and logger.isEnabledFor(logging.INFO):
        logger.info("%s", lines[0], extra={"lines": lines})


class UpstreamLines(logging.Formatter):
    """`2024-01-31T02:09:57,347 [INFO ] thread LOGGER - message`, or `brief`: the time and the message."""

    def __init__(self, flavour: Literal["torchserve", "mms"], *, brief: bool = False) -> None:
        super().__init__()
        self._labels = LABELS | ({f"{METRICS}TS_METRICS": "MMS_METRICS"} if flavour == "mms" else {})
        self._brief = brief

    def format(self, record: logging.LogRecord) -> str:
        """Write a record as one line, and below it a traceback, none of whose lines can pass for a record."""
        moment = f"{datetime.fromtimestamp(int(record.created)):%Y-%m-%dT%H:%M:%S},{int(record.msecs):03d}"
        if lines := getattr(record, "lines", None):
            label = self._labels.get(record.name, record.name)
            prefix = f"{moment} - " if self._brief else f"{moment} [INFO ] {_thread(record, {})} {label} - "
            return "\n".join([prefix + _printable(line) for line in lines])
        fields: dict[str, Any] = getattr(record, "fields", {})
        message = _printable(record.getMessage())
        if others := " ".join(f"{key}={value}" for key, value in fields.items() if key not in IN_NAMES):
            message += f" [{_printable(others)}]"
        if self._brief:
            return f"{moment} - {message}"
        level = LEVELS.get(record.levelno, f"{record.levelname:<5}")
        text = f"{moment} [{level}] {_thread(record, fields)} {self._labels.get(record.name, record.name)} - {message}"
        traceback = self.formatException(record.exc_info) if record.exc_info else str(fields.get("traceback", ""))
        lines = (_printable(line) for line in traceback.splitlines())
        return "\n".join([text, *(f"    {line}" if LIKE_A_RECORD.match(line) else line for line in lines)])


class Screen(logging.StreamHandler[Any]):
    """Standard output; a server in the background lives on when whoever read it has left."""

    def handleError(self, record: logging.LogRecord) -> None:
        """Write nothing more where nobody reads."""
        if isinstance(sys.exc_info()[1], OSError):
            self.setLevel(logging.CRITICAL + 1)
        else:
            super().handleError(record)


class RollingFile(RotatingFileHandler):
    """A file that is begun anew each day and at a size; the last few are kept."""

    def __init__(self, path: str, *, largest: int = LARGEST, kept: int = KEPT) -> None:
        super().__init__(path, maxBytes=largest, backupCount=kept, encoding="utf-8", errors="replace")
        self._day = datetime.fromtimestamp(os.path.getmtime(path)).date()
        self._ends = 0.0  # Unix time until which `_day` is known to last

    def shouldRollover(self, record: logging.LogRecord) -> bool:
        """Say whether a record belongs into the next file."""
        if record.created >= self._ends:
            today = datetime.fromtimestamp(record.created)
            self._ends = record.created - record.created % 60 + 60  # days begin with a minute, in every time zone
            if today.date() != self._day:
                self._day = today.date()
                return os.path.getsize(self.baseFilename) > 0
        return bool(super().shouldRollover(record))


class Waiting(logging.Handler):
    """Hands records to the thread that writes them; when that is far behind, it is waited for."""

    def __init__(self, waiting: "queue.Queue[logging.LogRecord]") -> None:
        super().__init__()
        self._waiting = waiting

    def emit(self, record: logging.LogRecord) -> None:
        """Put a record into the queue, its message made now: what it is made of may change."""
        record.msg, record.args = record.getMessage(), None
        self._waiting.put(record)


def set_up_upstream_logs(
    flavour: Literal["torchserve", "mms"],
    level: str,
    *,
    log_location: str = "",
    metrics_location: str = "",
    is_async: bool = False,
) -> Callable[[], None]:
    """Send the `shoal` loggers to standard output and upstream's files; the result writes what is held and closes.

    A location that is empty has no files.
    """
    short = "mms" if flavour == "mms" else "ts"
    screen = Screen(sys.stdout)
    screen.setFormatter(UpstreamLines(flavour))
    handlers: list[logging.Handler] = [screen]
    for folder, name, logger in (
        (log_location, f"{short}_log.log", ""),
        (log_location, "access_log.log", ACCESS.name),
        (log_location, "model_log.log", "shoal.handler"),
        (metrics_location, f"{short}_metrics.log", f"{METRICS}TS_METRICS"),
        (metrics_location, "model_metrics.log", f"{METRICS}MODEL_METRICS"),
    ):
        if folder:
            brief = logger.startswith((ACCESS.name, METRICS))
            handlers.append(_file(folder, name, logger, UpstreamLines(flavour, brief=brief)))
    root = logging.getLogger("shoal")
    root.setLevel(level.upper())
    root.propagate = False
    closing = contextlib.ExitStack()
    for handler in handlers:
        closing.callback(handler.close)
    if is_async:
        waiting: queue.Queue[logging.LogRecord] = queue.Queue(WAITING)
        listener = QueueListener(waiting, *handlers, respect_handler_level=True)
        listener.start()
        closing.callback(listener.stop)
        closing.callback(waiting.join)
        handlers = [Waiting(waiting)]
    root.handlers[:] = handlers
    closing.callback(root.handlers.clear)
    return closing.close


def _file(folder: str, name: str, logger: str, form: logging.Formatter) -> logging.Handler:
    try:
        os.makedirs(folder, exist_ok=True)
        handler = RollingFile(os.path.join(folder, name))
    except OSError as error:
        where = "METRICS_LOCATION" if "metrics" in name else "LOG_LOCATION"
        raise ConfigError(f"cannot write {name} in {folder}: {error.strerror}; {where} names the folder") from None
    if logger:
        handler.addFilter(logging.Filter(logger))
    handler.setFormatter(form)
    return handler


def _thread(record: logging.LogRecord, fields: dict[str, Any]) -> str:
    """Name the worker a record is about, as upstream names its threads; else the thread."""
    if "worker" in fields:
        stream = f"-{fields['stream']}" if "stream" in fields else ""
        return _printable(f"W-{fields['worker']}-{fields.get('model')}_{fields.get('version')}{stream}")
    return "main" if record.threadName == "MainThread" else str(record.threadName)


def _printable(text: str) -> str:
    """Keep control characters and secrets out of a line."""
    text = redact(text)
    return text if text.isprintable() else "".join(c if c.isprintable() or c == "\t" else repr(c)[1:-1] for c in text)
