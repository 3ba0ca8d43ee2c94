import json
import os
from pathlib import Path
from typing import Any

import pytest

from shoal.config.properties import read_properties
from shoal.config.snapshot import SnapshotModel, Snapshots, file_name, newest, read_snapshot, snapshot_of
from shoal.errors import ConfigError

NOON = 1_700_000_000.25


def model(name: str = "m", version: str = "1.0", **values: Any) -> SnapshotModel:
    known: dict[str, Any] = {"is_default": True, "archive": f"{name}.mar", "min_workers": 1, "max_workers": 2, **values}
    return SnapshotModel(name=name, version=version, **known)


def text(*models: SnapshotModel, **changes: Any) -> str:
    content = snapshot_of("s", 1, models)
    for settings in (s for versions in content["models"].values() for s in versions.values()):
        settings.update(changes)
        for key in [key for key, value in settings.items() if value is None]:
            del settings[key]
    return json.dumps(content)


def test_a_snapshot_says_it_in_upstreams_words() -> None:
    models = [model(), model(version="2.0", is_default=False, batch_size=4, max_batch_delay=50.0, runtime="python3")]

    found = snapshot_of("x.cfg", 1234, models)

    assert (found["name"], found["modelCount"], found["created"]) == ("x.cfg", 2, 1234)
    assert found["models"]["m"]["1.0"] == {
        "defaultVersion": True,
        "marName": "m.mar",
        "minWorkers": 1,
        "maxWorkers": 2,
        "batchSize": 1,
        "maxBatchDelay": 100,
        "responseTimeout": 120,
        "startupTimeout": 120,
        "runtimeType": "python",
    }
    second = found["models"]["m"]["2.0"]
    assert (second["defaultVersion"], second["batchSize"], second["maxBatchDelay"]) == (False, 4, 50)
    assert second["runtimeType"] == "python3"


def test_what_is_saved_is_restored_with_every_setting(tmp_path: Path) -> None:
    (tmp_path / "m.mar").touch()
    properties = {"inference_address": "http://127.0.0.1:0", "foo": "ü = \\", "model_snapshot": "old"}
    path = Snapshots(str(tmp_path / "logs" / "config"), properties, lambda: NOON).save("startup", [model()])

    assert path is not None
    assert path.name.endswith("250-startup.cfg")
    found = read_properties(path)
    assert {key: found[key] for key in ("inference_address", "foo")} == {
        key: properties[key] for key in ("inference_address", "foo")
    }
    restored = read_snapshot(found["model_snapshot"], str(tmp_path))
    assert restored == snapshot_of(path.name, 1_700_000_000_250, [model()])
    assert os.listdir(path.parent) == [path.name]


def test_the_newest_is_found_by_its_name(tmp_path: Path) -> None:
    for name in (
        "20240102030405006-shutdown.cfg",
        "20240102030405007-snapshot.cfg",
        "20231231235959999-startup.cfg",
        "20990101000000000-other.cfg",
        "x20990101000000000-startup.cfg",
        ".snapshot-abc",
    ):
        (tmp_path / name).touch()

    assert newest(str(tmp_path)) == tmp_path / "20240102030405007-snapshot.cfg"
    assert newest(str(tmp_path / "none")) is None
    assert newest(str(Path(__file__).parent)) is None


def test_names_tell_the_order_even_within_a_moment(tmp_path: Path) -> None:
    moments = iter([NOON, NOON, NOON - 60])
    snapshots = Snapshots(str(tmp_path), {}, lambda: next(moments))

    paths = [snapshots.save("snapshot", [model(version=str(number))]) for number in range(3)]

    assert sorted(filter(None, paths)) == paths
    assert len(set(paths)) == 3
    assert newest(str(tmp_path)) == paths[2]


def test_a_name_is_a_moment_and_a_kind() -> None:
    name = file_name("shutdown", 1_700_000_000_007)

    assert len(name) == len("20240102030405006-shutdown.cfg")
    assert name.endswith("007-shutdown.cfg")


def test_without_a_folder_nothing_is_saved(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)

    assert Snapshots("", {"a": "b"}, lambda: NOON).save("startup", [model()]) is None
    assert os.listdir(tmp_path) == []


def test_a_disk_that_fails_is_logged_and_hurts_nobody(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    (tmp_path / "file").touch()

    assert Snapshots(str(tmp_path / "file"), {}, lambda: NOON).save("startup", []) is None
    assert "cannot save snapshot" in caplog.text


def test_older_snapshots_get_what_they_lack(tmp_path: Path) -> None:
    (tmp_path / "m.mar").touch()
    old = text(model(), responseTimeout=None, startupTimeout=None, runtimeType=None, maxBatchDelay=None)

    settings = read_snapshot(old, str(tmp_path))["models"]["m"]["1.0"]

    assert (settings["responseTimeout"], settings["startupTimeout"]) == (120, 120)
    assert (settings["runtimeType"], settings["maxBatchDelay"]) == ("python", 100)


def test_an_archive_is_looked_for_in_the_store_and_where_it_says(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    (tmp_path / "store" / "m.mar").touch()
    (tmp_path / "folder").mkdir()

    for archive in ("m.mar", "/elsewhere/m.mar", str(tmp_path / "folder")):
        read_snapshot(text(model(archive=archive)), str(tmp_path / "store"))


@pytest.mark.parametrize(
    ("content", "says"),
    [
        ("{", "model_snapshot is not JSON"),
        ("[]", "model_snapshot: expected"),
        ('{"models": []}', "model_snapshot: expected"),
        ('{"models": {"m": {}}}', "expected the versions of m"),
        ('{"models": {"m": {"1.0": 3}}}', "expected the settings of m, version 1.0, got 3"),
        (text(model(archive="gone.mar")), "the archive of m, version 1.0, 'gone.mar', is not in"),
        (text(model(archive="..")), "the archive of m, version 1.0, '..', is not in"),
        (text(model(archive="")), "the archive of m, version 1.0, '', is not in"),
        (text(model(), marName=None), "the archive of m, version 1.0, None, is not in"),
        (text(model(), batchSize=0), "batchSize of m, version 1.0 must be 1 or more, got 0"),
        (text(model(archive="/a/../m.mar")), "the archive of m, version 1.0, '/a/../m.mar', is not in"),
        (text(model(), maxWorkers=True), "maxWorkers of m, version 1.0 must be 0 or more, got True"),
        (text(model(), minWorkers=-1), "minWorkers of m, version 1.0 must be 0 or more, got -1"),
        (text(model(), startupTimeout="x"), "startupTimeout of m, version 1.0 must be 1 or more, got 'x'"),
        (text(model(is_default=False)), "one version of m must be the default one"),
        (text(model(), model(version="2.0")), "one version of m must be the default one"),
    ],
)
def test_a_snapshot_that_cannot_be_restored_is_refused_whole(tmp_path: Path, content: str, says: str) -> None:
    (tmp_path / "m.mar").touch()

    with pytest.raises(ConfigError) as refused:
        read_snapshot(content, str(tmp_path))
    assert says in str(refused.value)


def test_no_workers_is_a_number_of_workers(tmp_path: Path) -> None:
    (tmp_path / "m.mar").touch()

    read_snapshot(text(model(min_workers=0, max_workers=0, max_batch_delay=0)), str(tmp_path))


def test_a_file_as_upstream_writes_it_is_restored(tmp_path: Path) -> None:
    (tmp_path / "echo").mkdir()
    content = (
        r'{\n  "name"\: "20261115083729218-startup.cfg",\n  "modelCount"\: 1,\n  "created"\: 1794731849224,\n'
        r'  "models"\: {\n    "echo"\: {\n      "1.0"\: {\n        "defaultVersion"\: true,\n'
        r'        "marName"\: "echo",\n        "minWorkers"\: 2,\n        "maxWorkers"\: 2,\n'
        r'        "batchSize"\: 1,\n        "maxBatchDelay"\: 100,\n        "responseTimeout"\: 120,\n'
        r'        "startupTimeout"\: 120,\n        "runtimeType"\: "python"\n      }\n    }\n  }\n}'
    )
    path = tmp_path / "20261115083729218-startup.cfg"
    path.write_text(
        f"#Saving snapshot\n#Sun Nov 15 08:37:29 UTC 2026\ninference_address=http\\://127.0.0.1\\:19180\n"
        f"model_snapshot={content}\nfoo_bar=abc\n"
    )
    found = read_properties(path)

    assert (found["inference_address"], found["foo_bar"]) == ("http://127.0.0.1:19180", "abc")
    restored = read_snapshot(found["model_snapshot"], str(tmp_path))
    assert restored["models"]["echo"]["1.0"]["minWorkers"] == 2
    assert restored["created"] == 1794731849224
