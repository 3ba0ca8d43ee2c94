"""The one place the version is written, and whether what runs is the compiled build of it."""

from importlib.util import find_spec

__version__ = "0.1.0"


def is_compiled() -> bool:
    """Whether the modules that every request passes are compiled in this installation."""
    spec = find_spec("shoal.core.request")
    return spec is not None and not (spec.origin or "").endswith(".py")
