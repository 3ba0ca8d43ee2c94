"""A certificate of our own, for https addresses that come without one: self-signed, made once by openssl and kept."""

import os
import stat
import subprocess
import tempfile
from pathlib import Path

from shoal.errors import ConfigError

DAYS = "3650"
NAMES = "subjectAltName=DNS:localhost,IP:127.0.0.1,IP:::1"
INSTEAD = "set certificate_file and private_key_file, both in PEM form"


def own_certificate() -> tuple[str, str]:
    """Give the certificate and the key in this user's temporary folder; they are made where they are not there."""
    folder = Path(tempfile.gettempdir(), f"shoal-tls-{os.getuid()}")
    _make_private(folder)
    certificate, key = folder / "certificate.pem", folder / "key.pem"
    if not (certificate.is_file() and key.is_file()):
        _generate(certificate, key)
    return str(certificate), str(key)


def _make_private(folder: Path) -> None:
    """See that the folder is this user's alone: others could put their key there."""
    folder.mkdir(mode=0o700, exist_ok=True)
    found = folder.lstat()
    if not stat.S_ISDIR(found.st_mode) or found.st_uid != os.getuid() or found.st_mode & 0o077:
        raise ConfigError(f"{folder} is not a folder of this user alone; remove it, or {INSTEAD}")


def _generate(certificate: Path, key: Path) -> None:
    fresh = [path.with_suffix(f".{os.getpid()}") for path in (certificate, key)]
    command = [
        *("openssl", "req", "-x509", "-newkey", "rsa:2048", "-nodes", "-days", DAYS, "-subj", "/CN=localhost"),
        *("-addext", NAMES, "-out", str(fresh[0]), "-keyout", str(fresh[1])),
    ]
    try:
        subprocess.run(command, capture_output=True, stdin=subprocess.DEVNULL, check=True, timeout=60)  # noqa: S603
    except FileNotFoundError:
        raise ConfigError(
            f"an https address needs a certificate, and openssl is not here to make one; {INSTEAD}"
        ) from None
    except subprocess.SubprocessError as error:
        said = (getattr(error, "stderr", b"") or b"").decode("utf-8", "replace").strip()
        raise ConfigError(f"openssl could not make a certificate ({said or error}); {INSTEAD}") from None
    for path, final in zip(fresh, (certificate, key), strict=True):
        path.replace(final)
