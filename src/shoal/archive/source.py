"""Where a model's files are: a Python file or a folder, inside the model store or named by the operator."""

from pathlib import Path

from shoal.errors import InvalidInput, ModelNotFound


def find_source(path: str, model_store: str = "") -> Path:
    """Find what an operator named on the command line: as it is, or in the model store. Raises InvalidInput."""
    tried = [Path(path), *([Path(model_store) / path] if model_store else [])]
    for candidate in tried:
        if candidate.exists():
            return candidate.resolve()
    places = " or ".join(str(candidate.absolute()) for candidate in tried)
    raise InvalidInput(f"no model at {path!r}: there is no file or folder {places}")


def find_in_store(url: str, model_store: str) -> Path:
    """Find what a client of the management API named: inside the model store and nowhere else."""
    if not model_store:
        raise InvalidInput("the server has no model store; start it with --model-store DIR to register models by name")
    store = Path(model_store).resolve()
    try:
        source = (store / url).resolve()
        is_inside = source.is_relative_to(store) and source != store
        is_there = is_inside and source.exists()
    except (OSError, ValueError, RuntimeError):  # too long, a NUL in it, links in a circle: no file has such a name
        is_inside, is_there = True, False
    if not is_inside:
        raise ModelNotFound(f"{url} (Relative path is not allowed in url)")
    if not is_there:
        raise ModelNotFound(f"{url} (no such file or folder in the model store)")
    return source


def name_of(source: Path) -> str:
    """Give the name a model has when nobody said one: its file's or folder's, with odd characters replaced."""
    stem = source.name if source.is_dir() else source.stem
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in stem).lstrip(".") or "model"
