"""Reading weights without running what is in them: pickled code is refused unless the operator allowed it."""

import os
import pickle
import re
import zipfile
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from typing import Any

import torch

ALLOW_PICKLE = "SHOAL_ALLOW_PICKLE"  # set to 1 in workers whose configuration says `allow_pickle`
# Constants of an exported program that are objects, not tensors. Torch finds its files whatever their case.
PICKLED = re.compile(r"(?is)(?:[^/]+/)?data/constants/((?:opaque|custom)_obj_.*|(?!tensor_).*(?<!\.json))")
FORCE = "TORCH_FORCE_WEIGHTS_ONLY_LOAD"  # torch's own switch; it holds for every load torch makes inside another


def load_weights(path: str, map_location: Any = None) -> Any:
    """What `torch.save` put into this file: tensors and plain values, and code only where pickles are allowed."""
    if may_unpickle():
        return torch.load(path, map_location=map_location, weights_only=False)
    with _explained(path):
        return torch.load(path, map_location=map_location, weights_only=True)


def load_exported(path: str) -> Any:
    """The program that `torch.export.save` put into this file."""
    if may_unpickle():
        return torch.export.load(path)
    if objects := pickled_objects(path):
        raise pickle.UnpicklingError(
            f"{os.path.basename(path)} carries a pickled object ({objects[0]}), and loading it would run code; export "
            "the model without constants that are objects, or allow this file, if you trust it, with `allow_pickle`"
        )
    with _explained(path), _weights_only():
        return torch.export.load(path)


def pickled_objects(path: str) -> list[str]:
    """Name what torch would unpickle in an exported program whatever its switches say; none in a file that is none."""
    names: list[str] = []
    with suppress(OSError, zipfile.BadZipFile), zipfile.ZipFile(path) as archive:
        names += archive.namelist()
    with suppress(RuntimeError):  # torch's own reader has the last word on what is in there
        names += torch._C.PyTorchFileReader(path).get_all_records()
    return [name for name in names if PICKLED.fullmatch(name)]


def may_unpickle() -> bool:
    """Whether the operator allows files whose loading runs code that they carry."""
    return os.environ.get(ALLOW_PICKLE) == "1"


@contextmanager
def _weights_only() -> Iterator[None]:
    before = os.environ.get(FORCE)
    os.environ[FORCE] = "1"
    try:
        yield
    finally:
        if before is None:
            del os.environ[FORCE]
        else:
            os.environ[FORCE] = before


@contextmanager
def _explained(path: str) -> Iterator[None]:
    try:
        yield
    except (pickle.UnpicklingError, EOFError, LookupError) as error:  # the last two for bytes that are no pickle
        raise pickle.UnpicklingError(_refusal(path, error)) from None


def _refusal(path: str, error: Exception) -> str:
    name = os.path.basename(path)
    code = _code_in(path) or _named_by(error)
    if not code:
        return f"{name} cannot be read as weights: it is damaged, or was not written by torch.save"
    return (
        f"{name} carries code ({', '.join(code)}), and loading it would run that code. Give a file of tensors alone, "
        "as torch.save(model.state_dict(), ...) makes it, or allow this one, if you trust it, with `allow_pickle`"
    )


def _code_in(path: str) -> list[str]:
    try:
        return sorted(torch.serialization.get_unsafe_globals_in_checkpoint(path))
    except Exception:  # whatever a file that is no checkpoint makes the reader stumble over
        return []


def _named_by(error: Exception) -> list[str]:
    _, found, rest = str(error).partition("Unsupported global: GLOBAL ")
    return [rest.split()[0]] if found else []
