import socket
from pathlib import Path

import pytest

from shoal.tools.doctor.findings import Diagnosis, Finding, Subject
from shoal.tools.doctor.stores import check_settings, check_store, is_taken
from tests.unit.archive.archives import make_mar

FREE = (
    "inference_address=http://127.0.0.1:0\nmanagement_address=http://127.0.0.1:0\nmetrics_address=http://127.0.0.1:0\n"
    "grpc_inference_port=0\ngrpc_management_port=0\n"
)


def store(folder: Path, settings: str | None = None) -> Diagnosis:
    (folder / "store").mkdir()
    make_mar(folder / "store" / "m.mar", {"model-config.yaml": b"batchSize: 4\n"}, configFile="model-config.yaml")
    if settings is not None:
        (folder / "config.properties").write_text(FREE + settings)
    return check_store(folder / "store", None)


def texts(found: Diagnosis, level: str) -> list[str]:
    return [each.text for subject in found.subjects for each in subject.findings if each.level == level]


def test_a_store_alone_is_looked_at_with_torchserves_defaults(tmp_path: Path) -> None:
    found = store(tmp_path)

    assert [(subject.name, subject.level) for subject in found.subjects] == [("m 1.0", "works")]
    assert found.start == f"shoal torchserve --ncs --start --model-store {tmp_path / 'store'}"


def test_settings_beside_the_store_are_found_and_every_key_without_effect_is_told(tmp_path: Path) -> None:
    found = store(tmp_path, "number_of_netty_threads=4\nvmargs=-Xmx1g\nno_such_key=1\nload_models=m.mar\n")

    notes = texts(found, "differs")
    assert any(note.startswith("number_of_netty_threads has no effect") for note in notes)
    assert any(note.startswith("vmargs has no effect") for note in notes)
    assert any("no_such_key is not used" in note for note in notes)
    assert texts(found, "fails") == []
    assert found.level == "differs"
    assert "--ts-config" in found.start


def test_a_setting_that_means_nothing_fails(tmp_path: Path) -> None:
    found = store(tmp_path, "job_queue_size=many\n")

    assert texts(found, "fails") == ["job_queue_size must be a whole number, got 'many'"]


def test_a_java_keystore_fails_with_the_command_that_exports_it(tmp_path: Path) -> None:
    found = store(tmp_path, "inference_address=https://127.0.0.1:0\nkeystore=k.p12\n")

    assert "openssl pkcs12" in texts(found, "fails")[0]


def test_models_that_are_listed_and_missing_fail(tmp_path: Path) -> None:
    found = store(tmp_path, "load_models=m.mar,other.mar,http://host/x.mar\n")

    assert [text.split(",")[0] for text in texts(found, "fails")] == ["load_models names other.mar"]


def test_settings_alone_lead_to_their_store(tmp_path: Path) -> None:
    store(tmp_path, f"model_store={tmp_path / 'store'}\n")

    found = check_settings(tmp_path / "config.properties")

    assert [subject.name for subject in found.subjects][1:] == ["m 1.0"]


def test_settings_with_a_store_that_is_not_there_fail(tmp_path: Path) -> None:
    (tmp_path / "c.properties").write_text(f"{FREE}model_store={tmp_path / 'none'}\n")

    assert "which is no folder" in texts(check_settings(tmp_path / "c.properties"), "fails")[0]


def test_settings_of_multi_model_server_are_known_by_their_keys(tmp_path: Path) -> None:
    found = store(tmp_path, "preload_model=true\n")

    assert "multi-model-server" in found.start
    assert any(note.startswith("preload_model has no effect") for note in texts(found, "differs"))


def test_a_port_in_use_is_told(tmp_path: Path) -> None:
    with socket.socket() as taken:
        taken.bind(("127.0.0.1", 0))
        taken.listen()
        port = taken.getsockname()[1]
        found = store(tmp_path, f"inference_address=http://127.0.0.1:{port}\n")

        assert is_taken("127.0.0.1", port)

    assert f"port {port} of the inference API is in use now" in texts(found, "differs")


def test_a_requirement_that_will_be_installed_is_no_problem(tmp_path: Path) -> None:
    (tmp_path / "store").mkdir()
    make_mar(
        tmp_path / "store" / "m.mar",
        {"h.py": b"import no_such_module\n", "r.txt": b"no-such-module\n"},
        requirementsFile="r.txt",
    )
    (tmp_path / "config.properties").write_text(f"{FREE}install_py_dep_per_model=true\n")

    assert texts(check_store(tmp_path / "store", None), "fails") == []


@pytest.mark.parametrize(
    ("levels", "worst"),
    [([], "works"), (["works"], "works"), (["works", "differs"], "differs"), (["fails", "works"], "fails")],
)
def test_the_worst_counts(levels: list[str], worst: str) -> None:
    findings = [Finding(level, "x") for level in levels]  # type: ignore[arg-type]

    assert Subject("m", "", findings).level == worst
    assert Diagnosis("", "", [Subject("m", "", findings), Subject("n", "", [])]).level == worst
