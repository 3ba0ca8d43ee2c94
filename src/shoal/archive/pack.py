"""Packing: a model's files to an archive that TorchServe, Multi Model Server and Shoal can read.

The same files give the same bytes: members are in the order of their names and carry no times. Only the manifest's
`createdOn` moves, and it stands still when SOURCE_DATE_EPOCH is set.
"""

import glob
import gzip
import io
import json
import os
import re
import secrets
import shutil
import tarfile
import zipfile
from collections.abc import Callable, Mapping
from datetime import UTC, datetime
from pathlib import Path
from typing import Any, Literal

import msgspec

from shoal.archive.manifest import MANIFEST
from shoal.errors import InvalidInput
from shoal.version import __version__

Format = Literal["default", "zip-store", "tgz", "no-archive"]
NAME = r"^[A-Za-z0-9][A-Za-z0-9_\-.]*$"
BUILT_IN = (
    "base_handler",
    "text_classifier",
    "image_classifier",
    "object_detector",
    "image_segmenter",
    "dali_image_classifier",
    "vllm_handler",
    "trt_llm_handler",
)
EPOCH = (1980, 1, 1, 0, 0, 0)  # the first moment a zip can name


class Parcel(msgspec.Struct, frozen=True, kw_only=True):
    """What goes into one archive: the manifest, and the file for each member."""

    name: str
    manifest: dict[str, Any]
    members: dict[str, Path]

    @property
    def manifest_bytes(self) -> bytes:
        """The manifest as it is written."""
        return json.dumps(self.manifest, indent=2).encode()


def torchserve_parcel(
    name: str,
    version: str,
    handler: str,
    *,
    serialized_file: str = "",
    model_file: str = "",
    extra_files: str = "",
    requirements_file: str = "",
    config_file: str = "",
    runtime: str = "python",
    environment: Mapping[str, str] = os.environ,
) -> Parcel:
    """Gather what torch-model-archiver would. Raises InvalidInput naming what is not there."""
    _check_name(name)
    members: dict[str, Path] = {}
    model: dict[str, Any] = {"modelName": name}
    if serialized_file:
        model["serializedFile"] = _add(members, serialized_file)
    model["handler"] = handler if handler in BUILT_IN else _add_handler(members, handler)
    if model_file:
        model["modelFile"] = _add(members, model_file)
    model["modelVersion"] = version
    for pattern in filter(None, (text.strip() for text in extra_files.split(","))):
        _add_extra(members, pattern)
    if requirements_file:
        model["requirementsFile"] = _add(members, requirements_file)
    if config_file:
        model["configFile"] = _add(members, config_file)
    manifest = {"createdOn": _now(environment), "runtime": runtime, "model": model}
    return Parcel(
        name=name, manifest=manifest | {"archiverVersion": __version__}, members=dict(sorted(members.items()))
    )


def mms_parcel(name: str, model_path: str, handler: str, *, runtime: str = "python") -> Parcel:
    """Gather what model-archiver of Multi Model Server would: a whole folder."""
    _check_name(name)
    folder = Path(model_path)
    if not folder.is_dir():
        raise InvalidInput(
            f"Given model-path {model_path} is not a valid directory. Point to a valid model-path directory."
        )
    members: dict[str, Path] = {}
    _add_folder(members, folder, compiled=False)
    members.pop(MANIFEST, None)
    module = handler.partition(":")[0].removesuffix(".py")
    if f"{module}.py" not in members:
        raise InvalidInput(f"handler {handler} names {module}.py, and {model_path} has no such file")
    manifest = {
        "runtime": runtime,
        "model": {"modelName": name, "handler": handler},
        "modelServerVersion": "1.0",
        "implementationVersion": "1.0",
        "specificationVersion": "1.0",
    }
    return Parcel(name=name, manifest=manifest, members=dict(sorted(members.items())))


def target_of(parcel: Parcel, export_path: str, form: Format) -> Path:
    """Give the path an archive will have."""
    folder = Path(export_path or ".")
    if not folder.is_dir():
        raise InvalidInput(
            f"Given export-path {export_path} is not a directory. Point to a valid export-path directory."
        )
    endings = {"default": ".mar", "zip-store": ".mar", "tgz": ".tar.gz", "no-archive": ""}
    return folder / f"{parcel.name}{endings[form]}"


def write(
    parcel: Parcel, target: Path, form: Format, *, force: bool = False, on_bytes: Callable[[int], None] = lambda _: None
) -> None:
    """Write an archive; what stood there is replaced only with `force`, and only once the new one is whole."""
    if not force and (target.exists() or target.is_symlink()):
        raise InvalidInput(
            f"{target} already exists.\nPlease specify --force/-f option to overwrite the model archive output file."
        )
    part = target.with_name(f".{target.name}.{secrets.token_hex(8)}.part")
    try:
        match form:
            case "no-archive":
                _write_folder(parcel, part, on_bytes)
            case "tgz":
                _write_tar(parcel, part, on_bytes)
            case _:
                _write_zip(parcel, part, on_bytes, stored=form == "zip-store")
        if target.is_dir() and not target.is_symlink():
            shutil.rmtree(target)
        part.replace(target)
    except OSError as error:
        raise InvalidInput(f"cannot write {target}: {error.strerror or error}") from None
    finally:
        if part.is_dir():
            shutil.rmtree(part, ignore_errors=True)
        else:
            part.unlink(missing_ok=True)


def _write_zip(parcel: Parcel, path: Path, on_bytes: Callable[[int], None], *, stored: bool) -> None:
    method = zipfile.ZIP_STORED if stored else zipfile.ZIP_DEFLATED
    with zipfile.ZipFile(path, "x", method) as archive:
        for name, source in [*parcel.members.items(), (MANIFEST, None)]:
            info = zipfile.ZipInfo(name, EPOCH)
            info.compress_type = method
            info.external_attr = 0o100644 << 16
            info.file_size = source.stat().st_size if source else len(parcel.manifest_bytes)
            with _open(parcel, source) as reader, archive.open(info, "w") as writer:
                while piece := reader.read(1 << 20):
                    writer.write(piece)
                    on_bytes(len(piece))


def _write_tar(parcel: Parcel, path: Path, on_bytes: Callable[[int], None]) -> None:
    with (
        open(path, "xb") as file,
        gzip.GzipFile("", "wb", fileobj=file, mtime=0) as packed,
        tarfile.open(fileobj=packed, mode="w:", format=tarfile.PAX_FORMAT) as archive,
    ):
        for name, source in [*parcel.members.items(), (MANIFEST, None)]:
            info = tarfile.TarInfo(f"{parcel.name}/{name}")
            info.size = source.stat().st_size if source else len(parcel.manifest_bytes)
            info.mode = 0o644
            with _open(parcel, source) as reader:
                archive.addfile(info, reader)
            on_bytes(info.size)


def _write_folder(parcel: Parcel, path: Path, on_bytes: Callable[[int], None]) -> None:
    for name, source in [*parcel.members.items(), (MANIFEST, None)]:
        target = path / name
        target.parent.mkdir(parents=True, exist_ok=True)
        with _open(parcel, source) as reader, open(target, "xb") as writer:
            shutil.copyfileobj(reader, writer, 1 << 20)
            on_bytes(writer.tell())


def _open(parcel: Parcel, source: Path | None) -> io.BufferedIOBase:
    return open(source, "rb") if source else io.BytesIO(parcel.manifest_bytes)


def _check_name(name: str) -> None:
    if not re.match(NAME, name):
        raise InvalidInput(
            f"Model name contains special characters.\nThe allowed regular expression filter for model name is: {NAME}"
        )


def _add(members: dict[str, Path], name: str) -> str:
    """Add one file under its last name; two different files of one name cannot both go in."""
    path = Path(name)
    if not path.is_file():
        raise InvalidInput(f"File does not exist: {name}")
    _put(members, path.name, path)
    return path.name


def _put(members: dict[str, Path], member: str, path: Path) -> None:
    other = members.setdefault(member, path)
    if other.resolve() != path.resolve():
        raise InvalidInput(f"{other} and {path} would both be {member} in the archive; rename one of them")


def _add_handler(members: dict[str, Path], handler: str) -> str:
    """Add the file of a handler: `dir/file.py`, `dir/file`, or either with `:function` behind it."""
    path, colon, function = handler.partition(":")
    file = path if path.endswith(".py") else f"{path}.py"
    if not Path(file).is_file() and "/" not in path and path not in BUILT_IN:
        known = ", ".join(BUILT_IN)
        raise InvalidInput(f"File does not exist: {file}; a handler is a Python file, or one of {known}")
    _add(members, file)
    return f"{Path(path).name}{colon}{function}"


def _add_extra(members: dict[str, Path], pattern: str) -> None:
    """Add files by name or pattern, and what is inside folders."""
    names = [pattern] if Path(pattern).exists() else sorted(glob.glob(pattern))
    if not names:
        raise InvalidInput(f"File does not exist: {pattern}")
    for name in names:
        if Path(name).is_dir():
            _add_folder(members, Path(name), compiled=True)
        else:
            _add(members, name)


def _add_folder(members: dict[str, Path], folder: Path, *, compiled: bool) -> None:
    """Add all files below a folder but what Python left there; `compiled`: a .pyc on its own is somebody's module."""
    for path in sorted(folder.rglob("*")):
        inside = path.relative_to(folder)
        if path.is_file() and "__pycache__" not in inside.parts and (compiled or path.suffix != ".pyc"):
            _put(members, inside.as_posix(), path)


def _now(environment: Mapping[str, str]) -> str:
    epoch = environment.get("SOURCE_DATE_EPOCH", "")
    now = datetime.fromtimestamp(int(epoch), UTC) if epoch.isdecimal() else datetime.now()  # local, as upstream
    return now.strftime("%d/%m/%Y %H:%M:%S")
