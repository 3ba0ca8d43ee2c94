"""The model repository as clients act on it: list, load, unload."""

from base64 import b64decode
from binascii import Error as NotBase64
from collections.abc import Mapping, Sequence
from typing import Any, NamedTuple, Protocol

from shoal.core.model import Life
from shoal.core.repository import Repository
from shoal.errors import InvalidInput, Unavailable
from shoal.frontend.kserve.status import Unsupported

NOT_EXPLICIT = "explicit model load / unload is not allowed if polling is enabled"
NO_REPOSITORIES = "'repository_name' specification is not supported"
STATES = {
    Life.LOADING: "LOADING",
    Life.READY: "READY",
    Life.DRAINING: "UNLOADING",
    Life.DRAINED: "UNAVAILABLE",
    Life.UNLOADED: "UNAVAILABLE",
    Life.FAILED: "UNAVAILABLE",
}


class Line(Protocol):
    """A line of the index: a model, and where known a version, its state and why."""

    @property
    def name(self) -> str: ...  # noqa: D102
    @property
    def version(self) -> str: ...  # noqa: D102
    @property
    def state(self) -> str: ...  # noqa: D102
    @property
    def reason(self) -> str: ...  # noqa: D102


class Control(Protocol):
    """Who loads and unloads models."""

    @property
    def mode(self) -> str:
        """Say when models are loaded: none, poll or explicit."""
        ...

    async def index(self, *, ready: bool = False) -> Sequence[Line]:
        """Tell of every model, or of those that are ready."""
        ...

    async def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        """Load a model, or load it anew; comes back once it is ready."""
        ...

    def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        """Take a model out; what it has is finished behind the caller's back."""
        ...


class Listed(NamedTuple):
    """A line of the index of a server whose models were named when it started."""

    name: str
    version: str
    state: str
    reason: str


class Fixed:
    """The models of a server that were named when it started; none is loaded or unloaded by clients."""

    mode = "none"

    def __init__(self, repository: Repository) -> None:
        self._repository = repository

    async def index(self, *, ready: bool = False) -> list[Listed]:
        """Tell of every model."""
        models = sorted(self._repository, key=lambda model: (model.name, model.version))
        lines = [Listed(model.name, model.version, STATES[model.life], model.error) for model in models]
        return [line for line in lines if line.state == "READY" or not ready]

    async def load(self, name: str, parameters: Mapping[str, str | bytes]) -> None:
        """Refuse."""
        raise Unavailable(NOT_EXPLICIT)

    def unload(self, name: str, *, unload_dependents: bool = False) -> None:
        """Refuse."""
        raise Unavailable(NOT_EXPLICIT)


async def list_models(control: Control, ready: bool) -> list[dict[str, str]]:
    """Give the index as clients read it: what is not known of a model is left out."""
    return [
        {
            field: value
            for field in ("name", "version", "state", "reason")
            if (value := getattr(line, field)) or field == "name"
        }
        for line in await control.index(ready=ready)
    ]


def check_explicit(control: Control, repository_name: str = "") -> None:
    """Refuse to load and unload where nobody may, and in repositories that are named."""
    if repository_name:
        raise Unsupported(NO_REPOSITORIES)
    if control.mode != "explicit":
        raise Unavailable(NOT_EXPLICIT)


def read_load(body: Mapping[str, Any]) -> dict[str, str | bytes]:
    """Read the parameters of a load over HTTP: texts; files in base64."""
    found: dict[str, str | bytes] = {}
    for name, value in _parameters(body).items():
        if not isinstance(value, str):
            raise InvalidInput(f"load parameter '{name}' is a string, got {type(value).__name__}")
        if name.startswith("file:"):
            try:
                found[name] = b64decode(value, validate=True)
            except (NotBase64, ValueError):
                raise InvalidInput(f"load parameter '{name}' is not in base64") from None
        elif name == "config":
            found[name] = value
        else:
            raise InvalidInput(f"unknown load parameter '{name}'; known are 'config' and 'file:<version>/<path>'")
    return found


def read_unload(body: Mapping[str, Any]) -> bool:
    """Read whether models that only others need go as well."""
    value = _parameters(body).get("unload_dependents", False)
    if not isinstance(value, bool):
        raise InvalidInput("parameter 'unload_dependents' is true or false")
    return value


def _parameters(body: Mapping[str, Any]) -> Mapping[str, Any]:
    parameters = body.get("parameters", {})
    if not isinstance(parameters, Mapping):
        raise InvalidInput("'parameters' is an object")
    return parameters
