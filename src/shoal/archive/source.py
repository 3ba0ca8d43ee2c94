"""What an operator names: a Python file, a folder or an archive, as it is or in the model store."""

from pathlib import Path

from shoal.errors import InvalidInput


def find_source(path: str, model_store: str = "") -> Path:
    """Find what an operator named on the command line: as it is, or in the model store. Raises InvalidInput."""
    tried = [Path(path), *([Path(model_store) / path] if model_store else [])]
    for candidate in tried:
        if candidate.exists():
            return candidate.resolve()
    places = " or ".join(str(candidate.absolute()) for candidate in tried)
    raise InvalidInput(f"no model at {path!r}: there is no file or folder {places}")


def name_of(source: Path) -> str:
    """Give the name a model has when nobody said one: its file's or folder's, with odd characters replaced."""
    stem = source.name if source.is_dir() else source.stem
    return "".join(c if c.isalnum() or c in "._-" else "_" for c in stem).lstrip(".") or "model"
