"""Weights that carry code: which classes a file of torch's would call when it is read, found without reading it."""

import pickletools
import zipfile
from pathlib import Path

LARGEST = 64 * 2**20  # bytes of the part that is looked at
HARMLESS = ("torch", "collections.OrderedDict", "_codecs.encode", "numpy", "builtins.set")


def foreign_classes(path: Path) -> list[str]:
    """Name what an eager checkpoint would import besides torch; nothing for TorchScript, or what is no such file."""
    try:
        with zipfile.ZipFile(path) as archive:
            names = archive.namelist()
            pickles = [name for name in names if name.endswith("/data.pkl") or name == "data.pkl"]
            is_script = any("/code/" in name or name.endswith("constants.pkl") for name in names)
            if not pickles or is_script or archive.getinfo(pickles[0]).file_size > LARGEST:
                return []
            return _classes(archive.read(pickles[0]))
    except (OSError, zipfile.BadZipFile, ValueError, RuntimeError, NotImplementedError):
        return []


def _classes(data: bytes) -> list[str]:
    """Walk the pickle's instructions; nothing of it is run."""
    found: dict[str, None] = {}
    texts: list[str] = []
    for opcode, argument, _ in pickletools.genops(data):
        if opcode.name == "GLOBAL":
            found[str(argument).replace(" ", ".")] = None
        elif opcode.name == "STACK_GLOBAL" and len(texts) >= 2:
            found[f"{texts[-2]}.{texts[-1]}"] = None
        elif isinstance(argument, str):
            texts.append(argument)
    return [name for name in found if not name.startswith(HARMLESS)]
