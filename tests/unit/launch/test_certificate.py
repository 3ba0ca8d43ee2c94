import os
import shutil
import ssl
import stat
from pathlib import Path

import pytest

from shoal.errors import ConfigError
from shoal.launch.certificate import own_certificate


@pytest.fixture(autouse=True)
def temporary(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setattr("tempfile.tempdir", str(tmp_path))
    return tmp_path / f"shoal-tls-{os.getuid()}"


@pytest.mark.skipif(shutil.which("openssl") is None, reason="openssl makes it")
def test_a_certificate_is_made_once_and_fits_its_key(temporary: Path) -> None:
    certificate, key = own_certificate()

    ssl.create_default_context(ssl.Purpose.CLIENT_AUTH).load_cert_chain(certificate, key)
    assert stat.S_IMODE(temporary.stat().st_mode) == 0o700
    made = Path(certificate).read_bytes()
    assert own_certificate() == (certificate, key)
    assert Path(certificate).read_bytes() == made
    assert sorted(os.listdir(temporary)) == ["certificate.pem", "key.pem"]


def test_without_openssl_it_is_said_what_to_set(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError, match="openssl is not here to make one; set certificate_file"):
        own_certificate()


def test_an_openssl_that_fails_is_quoted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "openssl").write_text("#!/bin/sh\necho no entropy >&2\nexit 1\n")
    (tmp_path / "openssl").chmod(0o700)
    monkeypatch.setenv("PATH", str(tmp_path))

    with pytest.raises(ConfigError, match=r"could not make a certificate \(no entropy\)"):
        own_certificate()


def test_a_folder_that_others_can_write_is_not_trusted(temporary: Path) -> None:
    temporary.mkdir()
    temporary.chmod(0o777)

    with pytest.raises(ConfigError, match="is not a folder of this user alone"):
        own_certificate()


def test_a_link_is_not_trusted(tmp_path: Path, temporary: Path) -> None:
    (tmp_path / "elsewhere").mkdir(mode=0o700)
    temporary.symlink_to(tmp_path / "elsewhere")

    with pytest.raises(ConfigError, match="is not a folder of this user alone"):
        own_certificate()
