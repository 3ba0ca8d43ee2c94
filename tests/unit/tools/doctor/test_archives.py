import datetime
import io
import json
import pickle
import zipfile
from pathlib import Path

import pytest

from shoal.tools.doctor.archives import check_archive
from shoal.tools.doctor.findings import Subject
from shoal.tools.doctor.stores import plain_deployment
from tests.serving import MODELS
from tests.unit.archive.archives import DATA, make_mar, make_zip

FIXED = {"model-config.yaml": b"batchSize: 4\n"}
SET = {"configFile": "model-config.yaml"}


def checked(path: Path) -> Subject:
    return check_archive(path, plain_deployment())


def worst(subject: Subject) -> list[str]:
    return [finding.text for finding in subject.findings if finding.level == "fails"]


def test_an_archive_with_nothing_wrong_works(tmp_path: Path) -> None:
    found = checked(make_mar(tmp_path / "m.mar", FIXED, **SET))

    assert (found.name, found.kind, found.level, found.findings) == ("m 1.0", "TorchServe archive", "works", [])


def test_an_archive_without_a_batch_size_differs_and_says_how_to_keep_it(tmp_path: Path) -> None:
    (finding,) = checked(make_mar(tmp_path / "m.mar")).findings

    assert finding.level == "differs"
    assert "batchSize: 1 in model-config.yaml" in finding.change


@pytest.mark.parametrize("path", sorted(DATA.glob("*.mar")), ids=lambda path: path.name)
def test_archives_of_the_real_archivers_are_read(path: Path) -> None:
    assert checked(path).kind in ("TorchServe archive", "Multi Model Server archive")


@pytest.mark.parametrize("name", ["functions", "mms_legacy", "mms_tricks", "plain_class", "tricks"])
def test_folders_that_the_server_serves_are_not_refused(name: str) -> None:
    assert worst(checked(MODELS / "upstream" / name)) == []


@pytest.mark.parametrize(
    ("files", "model", "problem"),
    [
        ({}, {"handler": "other.py"}, "the archive has no other.py"),
        ({}, {"handler": "dali_image_classifier"}, "NVIDIA DALI"),
        ({}, {"serializedFile": "w.pt"}, "serializedFile is w.pt, which is not in the archive"),
        ({}, {"modelFile": "net.py"}, "modelFile is net.py, which is not in the archive"),
        ({}, {"requirementsFile": "r.txt"}, "requirementsFile is r.txt, which is not in the archive"),
        ({"r.txt": b"no-such-package>=1\n"}, {"requirementsFile": "r.txt"}, "it requires no-such-package"),
        ({"r.txt": b"$$$\n"}, {"requirementsFile": "r.txt"}, "is not a requirement"),
        ({"h.py": b"import no_such_module\n"}, {}, "h.py line 1 imports no_such_module"),
        ({"net.py": b"import no_such_module\n"}, {"modelFile": "net.py"}, "net.py line 1 imports no_such_module"),
        ({"model-config.yaml": b"parallelType: tp\n"}, SET, "parallelType has no effect"),
        ({"model-config.yaml": b"sequenceBatching: true\n"}, SET, "sequenceBatching has no effect"),
        ({"model-config.yaml": b"a: [\n"}, SET, "model-config.yaml line"),
    ],
)
def test_what_will_not_work_is_said(
    tmp_path: Path, files: dict[str, bytes], model: dict[str, str], problem: str
) -> None:
    found = checked(make_mar(tmp_path / "m.mar", files, **model))

    assert found.level == "fails"
    assert any(problem in text for text in worst(found)), worst(found)


@pytest.mark.parametrize("runtime", ["LSP", "java"])
def test_a_runtime_that_is_not_here_is_refused(tmp_path: Path, runtime: str) -> None:
    written = {"runtime": runtime, "model": {"modelName": "m", "modelVersion": "1.0", "handler": "h.py"}}
    found = checked(make_zip(tmp_path / "m.mar", {"h.py": b"", "MAR-INF/MANIFEST.json": json.dumps(written).encode()}))

    assert any(runtime in text for text in worst(found))


def test_a_key_without_effect_differs(tmp_path: Path) -> None:
    found = checked(
        make_mar(tmp_path / "m.mar", {"model-config.yaml": b"batchSize: 4\nasyncCommunication: true\n"}, **SET)
    )

    assert [(each.level, "asyncCommunication has no effect" in each.text) for each in found.findings] == [
        ("differs", True)
    ]


def test_another_version_of_a_package_is_pointed_out(tmp_path: Path) -> None:
    found = checked(make_mar(tmp_path / "m.mar", FIXED | {"r.txt": b"pytest==0.1\n"}, requirementsFile="r.txt", **SET))

    (finding,) = found.findings
    assert finding.level == "differs"
    assert finding.text.startswith("it requires pytest==0.1; ")
    assert "install_py_dep_per_model=true" in finding.change


def test_weights_that_carry_code_are_named(tmp_path: Path) -> None:
    data = io.BytesIO()
    with zipfile.ZipFile(data, "w") as archive:
        archive.writestr("archive/data.pkl", pickle.dumps(datetime.timedelta(1), 2))

    found = checked(make_mar(tmp_path / "m.mar", {"w.pt": data.getvalue()}, serializedFile="w.pt"))

    assert "w.pt carries code (datetime.timedelta)" in worst(found)[0]


def test_what_is_no_archive_is_a_finding_and_not_a_crash(tmp_path: Path) -> None:
    (tmp_path / "m.mar").write_bytes(b"rubbish")
    found = checked(tmp_path / "m.mar")

    assert found.level == "fails"
    assert found.name == "m"


def test_an_archive_that_reaches_outside_is_refused(tmp_path: Path) -> None:
    found = checked(make_zip(tmp_path / "m.mar", {"../evil": b"x"}))

    assert "leads out of the archive" in worst(found)[0]
    assert not (tmp_path / "evil").exists()


def test_a_zip_without_a_manifest_is_no_model(tmp_path: Path) -> None:
    assert "has no MAR-INF/MANIFEST.json" in worst(checked(make_zip(tmp_path / "m.mar", {"a": b""})))[0]


def test_a_workflow_whose_models_are_not_in_the_store_will_not_work(tmp_path: Path) -> None:
    manifest = json.dumps({"workflow": {"workflowName": "w", "specFile": "spec.yaml"}}).encode()
    spec = b"models:\n  one: {url: one.mar}\n  two: {url: two.mar}\ndag:\n  one: [two]\n"
    war = make_zip(tmp_path / "w.war", {"WAR-INF/MANIFEST.json": manifest, "spec.yaml": spec})
    make_mar(tmp_path / "one.mar")

    found = check_archive(war, plain_deployment(str(tmp_path)))

    assert (found.name, found.kind) == ("w", "workflow archive")
    assert worst(found) == ["models.two: two.mar is not in the model store"]
