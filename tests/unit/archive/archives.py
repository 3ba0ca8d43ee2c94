"""Archives for tests: good ones, and ones that nobody's archiver would write."""

import gzip
import io
import json
import tarfile
import zipfile
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

DATA = Path(__file__).parent / "data"  # made by torch-model-archiver 0.12.0 and by MMS' model-archiver 1.0.3
HANDLER = b"def handle(data, context):\n    return data\n"


def manifest(**model: Any) -> bytes:
    return json.dumps({"runtime": "python", "model": {"modelName": "m", "modelVersion": "1.0", **model}}).encode()


def make_zip(path: Path, entries: Mapping[str, bytes] | Iterable[tuple[str | zipfile.ZipInfo, bytes]]) -> Path:
    pairs = entries.items() if isinstance(entries, Mapping) else entries
    with zipfile.ZipFile(path, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in pairs:
            archive.writestr(name, content)
    return path


def make_mar(path: Path, files: Mapping[str, bytes] | None = None, **model: Any) -> Path:
    entries = {"h.py": HANDLER, **(files or {}), "MAR-INF/MANIFEST.json": manifest(**{"handler": "h.py"} | model)}
    return make_zip(path, entries)


def member(name: str, content: bytes = b"", *, kind: bytes = tarfile.REGTYPE, link: str = "") -> tarfile.TarInfo:
    info = tarfile.TarInfo(name)
    info.type = kind
    info.linkname = link
    info.size = len(content)
    return info


def make_tar(path: Path, entries: Iterable[tuple[tarfile.TarInfo, bytes]]) -> Path:
    with tarfile.open(path, "w:gz") as archive:
        for info, content in entries:
            archive.addfile(info, io.BytesIO(content))
    return path


def make_tgz(path: Path, files: Mapping[str, bytes]) -> Path:
    return make_tar(path, [(member(name, content), content) for name, content in files.items()])


def raw_gzip(path: Path, content: bytes) -> Path:
    path.write_bytes(gzip.compress(content))
    return path


def files_in(folder: Path) -> dict[str, bytes]:
    return {
        path.relative_to(folder).as_posix(): path.read_bytes() for path in sorted(folder.rglob("*")) if path.is_file()
    }
