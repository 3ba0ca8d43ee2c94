"""The tree of domain errors: what went wrong, in Shoal's words.

No protocol speaks here. `frontend/status.py` says what HTTP calls each of these; an error that crosses a process
is a message with fields (`wire/messages.py`), never a pickled exception.
"""


class ServingError(Exception):
    """Anything that ends a request, a load or a start-up with a reason a person can read."""


class InvalidInput(ServingError):
    """What the client sent cannot be understood; it says what was wrong and what would be right."""


class Unreadable(InvalidInput):
    """An item that `decode` could not read; its cause is what was raised."""


class TooLarge(InvalidInput):
    """What the client sent is over a limit."""


class Poisoned(InvalidInput):
    """Requests with this very content took workers down; it is refused for a while."""


class BadArchive(InvalidInput):
    """An archive, its manifest or its requirements cannot be used; nothing of it was kept."""


class DownloadFailed(InvalidInput):
    """An archive could not be fetched from where it was said to be."""


class Unauthorised(ServingError):
    """The caller showed no key, a wrong one, or one that has expired."""


class ModelNotFound(ServingError):
    """No model of this name is here."""

    def __init__(self, model: str) -> None:
        super().__init__(f"Model not found: {model}")


class SourceNotFound(ModelNotFound):
    """What a registration named is not there, or not where it may be taken from."""

    def __init__(self, message: str) -> None:
        ServingError.__init__(self, message)


class VersionNotFound(ServingError):
    """The model is here, this version of it is not."""

    def __init__(self, model: str, version: str) -> None:
        super().__init__(f"Model version: {version} does not exist for model: {model}")


class WorkflowNotFound(ModelNotFound):
    """No workflow of this name is here."""

    def __init__(self, workflow: str) -> None:
        ServingError.__init__(self, f"Workflow not found: {workflow}")


class Conflict(ServingError):
    """The state of the server does not allow it: registered twice, or the default version taken away."""


class Protected(Conflict):
    """The default version of a model cannot be taken away while others are left."""


class Unavailable(ServingError):
    """The model cannot take the request now; `retry_after` seconds is the honest hint."""

    def __init__(self, message: str, retry_after: float = 1.0) -> None:
        super().__init__(message)
        self.retry_after = retry_after


class QueueFull(Unavailable):
    """As many requests wait as are allowed to."""

    def __init__(self, model: str, depth: int, retry_after: float) -> None:
        super().__init__(f"model {model!r} already has {depth} requests waiting", retry_after)


class ShareUsed(QueueFull):
    """One client has as many requests waiting as one may."""

    def __init__(self, model: str, client: str, waiting: int, limit: int, retry_after: float) -> None:
        message = f"client {client} already has {waiting} of the {limit} requests that may wait for model {model!r}"
        Unavailable.__init__(self, message, retry_after)


class LevelFull(QueueFull):
    """As many requests of a priority level wait as its queue policy allows."""

    def __init__(self, retry_after: float) -> None:
        Unavailable.__init__(self, "Exceeds maximum queue size", retry_after)


class SequenceLost(Unavailable):
    """The sequence ended before this request's turn came; it has to be started again."""


class DeadlineExceeded(ServingError):
    """The deadline passed, or cannot be met, before the answer could be computed."""


class QueueTimeout(DeadlineExceeded):
    """The model's queue policy, or the sequence's own time-out, did not let the request wait any longer."""


class Withdrawn(ServingError):
    """The client left; nobody reads this answer."""


class HandlerFailed(ServingError):
    """The user's code raised, or answered something that cannot be sent.

    `status` is the code the handler chose for the client, if it chose one; `traceback` is the real one, for the log
    and, in development mode, for the client.
    """

    def __init__(self, message: str, *, status: int | None = None, traceback: str = "") -> None:
        super().__init__(message)
        self.status = status
        self.traceback = traceback


class WorkerDied(ServingError):
    """The process that held the request died, and it may not be tried again."""


class ResponseTimeout(ServingError):
    """The batch took longer than the model's response time-out; its worker was replaced."""


class LoadFailed(ServingError):
    """A model could not be loaded; `traceback` is where its own code failed, if it did."""

    def __init__(self, message: str, traceback: str = "") -> None:
        super().__init__(message)
        self.traceback = traceback


class LoadOutOfMemory(LoadFailed):
    """Memory, of the machine or of a device, ran out while a model was loaded."""


class ConfigError(ServingError):
    """A setting is unknown or has a value that means nothing; it names the setting and what would be right."""


class ProtocolError(ServingError):
    """The other process speaks another version, or sent something that is no message."""
