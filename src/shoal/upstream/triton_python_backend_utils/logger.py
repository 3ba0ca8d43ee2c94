"""Logger: what a model writes to the server's log."""

import logging
import sys
from enum import IntEnum

_log = logging.getLogger("shoal.model")


class Level(IntEnum):
    """How much it matters."""

    INFO = 0
    WARNING = 1
    ERROR = 2
    VERBOSE = 3


_LEVELS = {
    Level.INFO: logging.INFO,
    Level.WARNING: logging.WARNING,
    Level.ERROR: logging.ERROR,
    Level.VERBOSE: logging.DEBUG,
}


class Logger:
    """Writes lines; those that warn go to standard error, the rest to standard output."""

    LogLevel = Level
    INFO = Level.INFO
    WARNING = Level.WARNING
    ERROR = Level.ERROR
    VERBOSE = Level.VERBOSE

    @staticmethod
    def log(message: str, level: Level = Level.INFO) -> None:
        """Write a line."""
        if not isinstance(message, str) or not isinstance(level, Level):
            raise TypeError(f"Logger takes a str and a level such as Logger.INFO, got {message!r} and {level!r}")
        _log.log(_LEVELS[level], "%s", message)

    @staticmethod
    def log_info(message: str) -> None:
        """Write a line that informs."""
        Logger.log(message, Level.INFO)

    @staticmethod
    def log_warn(message: str) -> None:
        """Write a line that warns."""
        Logger.log(message, Level.WARNING)

    @staticmethod
    def log_error(message: str) -> None:
        """Write a line that tells of an error."""
        Logger.log(message, Level.ERROR)

    @staticmethod
    def log_verbose(message: str) -> None:
        """Write a line for who wants to know everything."""
        Logger.log(message, Level.VERBOSE)


def show() -> None:
    """Let the lines be seen in this process."""
    if _log.handlers:
        return
    calm, loud = logging.StreamHandler(sys.stdout), logging.StreamHandler(sys.stderr)
    calm.addFilter(lambda record: record.levelno < logging.WARNING)
    loud.setLevel(logging.WARNING)
    _log.setLevel(logging.INFO)
    _log.propagate = False
    for handler in (calm, loud):
        _log.addHandler(handler)
