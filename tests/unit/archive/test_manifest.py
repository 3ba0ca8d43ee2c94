import json
from pathlib import Path
from typing import Any

import msgspec
import pytest

from shoal.archive.entries import Limits
from shoal.archive.manifest import Manifest, read_manifest, read_settings
from shoal.archive.unpack import unpack
from shoal.errors import BadArchive
from tests.unit.archive.archives import DATA

LIMITS = Limits()


def put(folder: Path, values: Any, name: str = "MAR-INF/MANIFEST.json") -> Path:
    (folder / name).parent.mkdir(exist_ok=True)
    (folder / name).write_text(values if isinstance(values, str) else json.dumps(values))
    return folder


def test_the_manifest_of_torch_model_archiver_is_read(tmp_path: Path) -> None:
    unpack(DATA / "ts_echo.mar", tmp_path / "out", LIMITS)

    assert read_manifest(tmp_path / "out", LIMITS) == Manifest(
        name="ts_echo",
        version="2.1",
        handler="echo_handler.py",
        runtime="python",
        serialized_file="w.pt",
        model_file="net.py",
        requirements_file="requirements.txt",
        config_file="model-config.yaml",
        flavour="torchserve",
    )


def test_the_manifest_of_mms_model_archiver_is_read(tmp_path: Path) -> None:
    unpack(DATA / "mms_echo.tar.gz", tmp_path / "out", LIMITS)

    assert read_manifest(tmp_path / "out", LIMITS) == Manifest(
        name="mms_echo", handler="service:handle", runtime="python", flavour="mms"
    )


def test_the_manifest_of_a_0_x_archive_is_read(tmp_path: Path) -> None:
    model = {"Model-Name": "squeeze", "Service": "vision_service.py", "Signature": "signature.json", "Symbol": "s.json"}
    put(tmp_path, {"Engine": {"MXNet": 0.12}, "Model-Archive-Version": 0.1, "Model": model}, "MANIFEST.json")

    assert read_manifest(tmp_path, LIMITS) == Manifest(name="squeeze", handler="vision_service.py", flavour="mms")


def test_no_manifest_is_no_error(tmp_path: Path) -> None:
    assert read_manifest(tmp_path, LIMITS) is None
    assert read_manifest(put(tmp_path, {"name": "a web page"}, "MANIFEST.json"), LIMITS) is None


def test_an_empty_manifest_says_nothing(tmp_path: Path) -> None:
    assert read_manifest(put(tmp_path, {}), LIMITS) == Manifest()
    assert read_manifest(put(tmp_path, {"model": None, "runtime": None}), LIMITS) == Manifest()


def test_older_keys_are_no_trouble(tmp_path: Path) -> None:
    values = {
        "createdOn": "15/11/2024 02:04:50",
        "runtime": "python3",
        "model": {"modelName": "m", "modelVersion": "1.0", "extensions": {"a": 1}, "description": "x"},
        "engine": {"engineName": "MXNet"},
        "publisher": {"author": "a"},
        "license": "Apache 2.0",
        "modelServerVersion": "1.0",
        "implementationVersion": "1.0",
        "specificationVersion": "1.0",
    }
    read = read_manifest(put(tmp_path, values), LIMITS)

    assert read == Manifest(name="m", version="1.0", runtime="python3", flavour="torchserve")


@pytest.mark.parametrize(("written", "read"), [("1.10", "1.10"), ("2", "2"), ('"v3"', "v3"), ("1e2", "1e2")])
def test_a_version_that_is_a_number_stays_as_it_was_written(tmp_path: Path, written: str, read: str) -> None:
    found = read_manifest(put(tmp_path, f'{{"model": {{"modelVersion": {written}}}}}'), LIMITS)

    assert found is not None and found.version == read


@pytest.mark.parametrize(
    ("values", "words"),
    [
        ("[]", "MANIFEST.json: an object is expected, and this is a list"),
        ("{", "not valid JSON"),
        ("", "not valid JSON"),
        ("[" * 100_000, "not valid JSON"),
        ({"model": "m"}, "model: an object is expected, and this is a text"),
        ({"model": {"modelName": ["m"]}}, "modelName is a text, not a list"),
        ({"model": {"handler": {"a": 1}}}, "handler is a text, not an object"),
        ({"model": {"modelVersion": True}}, "modelVersion is a text, not true or false"),
        ({"runtime": ["python"]}, "runtime is a text"),
        ({"model": {"configFile": "../../etc/passwd"}}, "configFile '../../etc/passwd' leads out"),
        ({"model": {"requirementsFile": "/etc/passwd"}}, "requirementsFile '/etc/passwd' leads out"),
    ],
)
def test_a_wrong_manifest_is_refused_with_the_key(tmp_path: Path, values: Any, words: str) -> None:
    with pytest.raises(BadArchive, match=words):
        read_manifest(put(tmp_path, values), LIMITS)


def test_a_manifest_of_any_length_is_not_read(tmp_path: Path) -> None:
    put(tmp_path, {"model": {"description": "x" * 5000}})

    with pytest.raises(BadArchive, match="more than 1000 bytes"):
        read_manifest(tmp_path, Limits(settings=1000))


def test_a_manifest_that_is_not_text_is_refused(tmp_path: Path) -> None:
    put(tmp_path, "")
    (tmp_path / "MAR-INF" / "MANIFEST.json").write_bytes(b'{"runtime": "\xff"}')

    with pytest.raises(BadArchive, match="not UTF-8"):
        read_manifest(tmp_path, LIMITS)


def test_a_byte_order_mark_is_no_trouble(tmp_path: Path) -> None:
    assert read_manifest(put(tmp_path, "\ufeff{}"), LIMITS) == Manifest()


def yaml(folder: Path, text: str) -> dict[str, Any]:
    (folder / "c.yaml").write_text(text)
    return read_settings(folder, "c.yaml", LIMITS)


def test_settings_are_read_whole(tmp_path: Path) -> None:
    read = yaml(tmp_path, "batchSize: 4\nhandler:\n  profile: true\n1: one\n")

    assert read == {"batchSize": 4, "handler": {"profile": True}, "1": "one"}
    assert yaml(tmp_path, "") == yaml(tmp_path, "# nothing\n") == {}


@pytest.mark.parametrize(
    ("text", "words"),
    [
        ("a: 1\nb: [1, 2\nc: 3\n", "c.yaml line 3"),
        ("a: 1\n\tb: 2\n", "c.yaml line 2"),
        ("- a\n- b\n", "settings by name are expected, and this is a list"),
        ("!!python/object/apply:os.system [echo]", "line 1"),
        ("when: 2024-99-99", "c.yaml"),
        ("[" * 1200, "c.yaml"),
    ],
)
def test_broken_settings_are_refused_with_the_line(tmp_path: Path, text: str, words: str) -> None:
    with pytest.raises(BadArchive, match=words):
        yaml(tmp_path, text)


@pytest.mark.parametrize(
    "text",
    [
        "a: &a [x, x, x, x, x, x, x, x, x, x]\n"
        + "".join(f"{c}: &{c} [{', '.join(['*' + p] * 10)}]\n" for p, c in zip("abcdefg", "bcdefgh", strict=True)),
        "a: &a\n  - *a\n",
    ],
)
def test_a_few_lines_cannot_stand_for_more_than_memory_holds(tmp_path: Path, text: str) -> None:
    with pytest.raises(BadArchive, match="more than 100000 values"):
        yaml(tmp_path, text)


def test_what_was_read_can_be_sent_to_a_worker(tmp_path: Path) -> None:
    read = yaml(
        tmp_path, "when: 2024-01-02\nat: 2024-01-02T03:04:05\nset: !!set {a, b}\nnumbers: {1: 2}\nraw: !!binary aGk=\n"
    )

    assert msgspec.msgpack.decode(msgspec.msgpack.encode(read))["when"] == "2024-01-02"


def test_settings_that_are_not_there_or_elsewhere_are_refused(tmp_path: Path) -> None:
    folder = tmp_path / "model"
    folder.mkdir()
    (tmp_path / "secret.yaml").write_text("a: 1")
    (folder / "link.yaml").symlink_to(tmp_path / "secret.yaml")

    with pytest.raises(BadArchive, match=r"gone\.yaml cannot be read: No such file"):
        read_settings(folder, "gone.yaml", LIMITS)
    with pytest.raises(BadArchive, match="leads out"):
        read_settings(folder, "link.yaml", LIMITS)
