"""What is read from files and forms: multipart bodies, settings, manifests, archives. Only their own errors leave."""

import gzip
import io
import shutil
import tarfile
import tempfile
import zipfile
from collections.abc import Hashable
from pathlib import Path
from random import Random

from shoal.archive.entries import Limits
from shoal.archive.manifest import LEGACY_MANIFEST, MANIFEST, read_manifest, read_settings
from shoal.archive.unpack import unpack
from shoal.archive.workflow import read_specification
from shoal.config import pbtxt, properties, torchserve
from shoal.errors import BadArchive, ConfigError, InvalidInput, ServingError
from shoal.frontend.forms import form_parts
from tests.fuzz.target import expect

TYPES = (b"multipart/form-data; boundary=x", b"application/x-www-form-urlencoded", b'multipart/mixed; boundary="a b"')
PART = b'--x\r\nContent-Disposition: form-data; name="a"; filename="b.png"\r\nContent-Type: image/png\r\n\r\ndata\r\n'


class Forms:
    """Multipart and url-encoded bodies."""

    name = "forms"
    share = 40
    seeds = (
        b"\0" + PART + b"--x--\r\n",
        b'\0--x\r\nContent-Disposition: form-data; name="t"\r\n\r\n1\r\n' + PART + b"--x--",
        b"\1a=1&b=%20x+y&a=2",
        b'\2--a b\r\nContent-Disposition: form-data; name="q"\r\n\r\n\r\n--a b--',
    )
    words = (
        b"\r\n",
        b"--x",
        b"--x--",
        b"--",
        b'name="',
        b"filename*=utf-8''%ff",
        b"Content-Disposition: ",
        b"%",
        b"&",
        b"=",
        b"\0",
    )

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Take it apart."""
        kind = TYPES[(data[0] if data else 0) % len(TYPES)]
        try:
            parts = form_parts(kind, data[1:], is_lenient=random.random() < 0.5)
        except InvalidInput as error:
            return str(error)[:40]
        expect(all(part.name.encode() is not None for part in parts), "a name that cannot travel")
        return len(parts)


class Properties:
    """config.properties, read and turned into a deployment."""

    name = "properties"
    share = 8
    seeds = (
        b"inference_address=http://127.0.0.1:8080\nload_models=all\nmodel_store=/m\n# c\nnumber_of_gpu=0\n",
        b'models={"m": {"1.0": {"batchSize": 4, "minWorkers": 1}}}\ndefault_work'
        b"ers_per_model: 2\nallowed_urls=file://.*\n",
        b"install_py_dep_per_model=true\nmax_request_size \\\n = 65535\ngrpc_inf"
        b"erence_port=7070\nenable_envvars_config=true\n",
    )
    words = (
        b"\\u00e9",
        b"\\",
        b"=",
        b":",
        b"\n",
        b"$$HOME$$",
        b"model_snapshot=",
        b"{",
        b"}",
        b"\xff",
        b"management_address=",
    )

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Read it as a server that starts does."""
        try:
            values = properties.parse(data.decode("utf-8", "replace"))
            made = torchserve.deployment(values, {"HOME": "/"}, {"model_store": "/m"})
        except ConfigError as error:
            return str(error)[:30]
        return len(made.notes)


class Settings:
    """config.pbtxt and its JSON."""

    name = "pbtxt"
    share = 8
    seeds = (
        b'name: "m"\nbackend: "onnxruntime"\nmax_batch_size: 8\ninput [{ name: "'
        b'I" data_type: TYPE_FP32 dims: [ -1, 4 ] }]\n',
        b'output { name: "O" data_type: TYPE_STRING dims: 1 }\ninstance_group [{'
        b" count: 2 kind: KIND_CPU }]\ndynamic_batching {}\n",
        b'{"name": "m", "maxBatchSize": 4, "input": [{"name": "I", "dataType": "TYPE_INT8", "dims": ["3"]}]}',
        b'sequence_batching { control_input [{ name: "S" control [{ kind: CONTRO'
        b"L_SEQUENCE_START int32_false_true: [0,1] }] }] }",
    )
    words = (
        b"{",
        b"}",
        b"[",
        b"]",
        b"<",
        b">",
        b":",
        b'"',
        b"'",
        b"#",
        b"\\377",
        b"dims: ",
        b"parameters {",
        b"key: ",
        b"1e9",
        b"\xff",
    )

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Read it in both forms."""
        found = []
        text = data.decode("utf-8", "replace")
        for read in (pbtxt.parse, pbtxt.parse_json):
            try:
                read(text, "it").SerializeToString()
            except ConfigError as error:
                found.append(str(error)[-30:])
        return tuple(found)


class Manifests:
    """MANIFEST.json in its forms, model-config.yaml and a workflow's specification."""

    name = "manifests"
    share = 10
    seeds = (
        b'\0{"model": {"modelName": "m", "handler": "h.py", "serializedFile": "m'
        b'.pt", "configFile": "c.yaml"}, "runtime": "python"}',
        b'\1{"Model": {"Model-Name": "m", "Service": "s.py", "Signature": "signature.json"}, "Engine": {"MXNet": 1}}',
        b"\2minWorkers: 1\nmaxWorkers: 2\nhandler:\n  a: [1, 2, {b: c}]\n",
        b"\2a: &x [1]\nb: *x\nc: !!float 1.5\nd: 2001-12-14\n",
        b"\3models:\n  min-workers: 1\n  a:\n    url: a.mar\ndag:\n  pre: [a]\n",
    )
    words = (
        b"{",
        b"}",
        b"[",
        b"]",
        b": ",
        b'"',
        b"\n",
        b"&x ",
        b"*x",
        b"!!python/object:",
        b"../",
        b"\\ud800",
        b"- ",
        b"<<: ",
        b"null",
    )

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="shoal-fuzz-", dir=_memory()))
        (self._folder / "MAR-INF").mkdir()
        (self._folder / "WAR-INF").mkdir()
        workflow = '{"workflow": {"workflowName": "w", "specFile": "spec.yaml", "handler": "h.py"}}'
        (self._folder / "WAR-INF" / "MANIFEST.json").write_text(workflow)
        (self._folder / "h.py").write_text("")

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Read it where it is found in an archive."""
        folder, limits = self._folder, Limits()
        kind = (data[0] if data else 0) % 4
        name = (MANIFEST, LEGACY_MANIFEST, "c.yaml", "spec.yaml")[kind]
        (folder / name).write_bytes(data[1:])
        try:
            if kind < 2:
                return read_manifest(folder, limits) is None
            return len(read_settings(folder, name, limits)) if kind == 2 else len(read_specification(folder).edges)
        except BadArchive as error:
            return str(error)[:40]
        finally:
            (folder / name).unlink()

    def close(self) -> None:
        """Remove what it wrote to."""
        shutil.rmtree(self._folder)


class Archives:
    """Zip and tar archives, unpacked."""

    name = "archives"
    share = 4
    words = (
        b"PK\1\2",
        b"PK\3\4",
        b"PK\5\6",
        b"PK\6\7",
        b"../",
        b"/",
        b"\0",
        b"\xff\xff\xff\xff",
        b"MAR-INF/MANIFEST.json",
        b"ustar",
    )

    def __init__(self) -> None:
        self._folder = Path(tempfile.mkdtemp(prefix="shoal-fuzz-", dir=_memory()))
        self.seeds = (_zip(zipfile.ZIP_DEFLATED), _zip(zipfile.ZIP_STORED), b"T" + _tar())

    def attempt(self, data: bytes, random: Random) -> Hashable:
        """Unpack it; it fails whole, or everything lies in its folder."""
        archive, target = self._folder / "a.mar", self._folder / "out"
        archive.write_bytes(gzip.compress(data[1:], 1) if data[:1] == b"T" else data)
        try:
            unpack(archive, target, Limits(unpacked=2**20, ratio_free=2**18, entries=50))
        except ServingError as error:
            expect(not target.exists(), "what failed is still there")
            return str(error)[:40]
        else:
            found = sorted(path for path in target.rglob("*"))
            expect(not any(path.is_symlink() for path in found), "a link was unpacked")
            shutil.rmtree(target)
            return len(found)
        finally:
            expect({path.name for path in self._folder.iterdir()} == {"a.mar"}, "something lies outside")

    def close(self) -> None:
        """Remove what it wrote to."""
        shutil.rmtree(self._folder)


def _memory() -> str | None:
    return "/dev/shm" if Path("/dev/shm").is_dir() else None


def _zip(method: int) -> bytes:
    made = io.BytesIO()
    with zipfile.ZipFile(made, "w", method) as archive:
        archive.writestr("MAR-INF/MANIFEST.json", '{"model": {}}')
        archive.writestr("h.py", "def handle(data, context): return data\n" * 4)
        archive.writestr("folder/", "")
    return made.getvalue()


def _tar() -> bytes:
    made = io.BytesIO()
    with tarfile.open(fileobj=made, mode="w") as archive:
        for name, content in (("m/h.py", b"pass\n"), ("m/MAR-INF/MANIFEST.json", b"{}")):
            entry = tarfile.TarInfo(name)
            entry.size = len(content)
            archive.addfile(entry, io.BytesIO(content))
    return made.getvalue()
