"""Calls from inside a model to other models and to the repository; none of them can be made yet."""

from typing import NoReturn

from shoal.upstream.triton_python_backend_utils.errors import TritonModelException


def refuse(what: str) -> NoReturn:
    """Say that a call cannot be made."""
    raise TritonModelException(f"{what} is not supported yet: a model cannot call the server it runs in")


def load_model(model_name: str, config: str = "", files: dict[str, bytes] | None = None) -> None:
    """Load a model of the repository."""
    refuse(f"load_model({model_name!r})")


def unload_model(model_name: str, unload_dependents: bool = False) -> None:
    """Unload a model."""
    refuse(f"unload_model({model_name!r})")


def is_model_ready(model_name: str, model_version: str = "") -> bool:
    """Whether a model can be called."""
    refuse(f"is_model_ready({model_name!r})")
