"""Requirements are installed by the real pip, from files that lie in the archive: nothing is asked of any network."""

import asyncio
import base64
import hashlib
import logging
import os
import subprocess
import sys
from importlib.machinery import ModuleSpec
from pathlib import Path

import click
import msgspec
import pytest

from shoal.archive.environment import MARK, cache_folder, has_pip, install
from shoal.errors import BadArchive
from tests.serving import eventually, is_alive
from tests.unit.archive.archives import make_zip


def wheel(folder: Path, name: str, version: str, code: str) -> Path:
    """The smallest package that pip takes."""
    info = f"{name}-{version}.dist-info"
    files = {
        f"{name}.py": code,
        f"{info}/METADATA": f"Metadata-Version: 2.1\nName: {name}\nVersion: {version}\n",
        f"{info}/WHEEL": "Wheel-Version: 1.0\nGenerator: test\nRoot-Is-Purelib: true\nTag: py3-none-any\n",
    }
    rows = []
    for path, text in files.items():
        digest = base64.urlsafe_b64encode(hashlib.sha256(text.encode()).digest()).rstrip(b"=").decode()
        rows.append(f"{path},sha256={digest},{len(text)}")
    files[f"{info}/RECORD"] = "\n".join([*rows, f"{info}/RECORD,,"]) + "\n"

    return make_zip(
        folder / f"{name}-{version}-py3-none-any.whl", {path: text.encode() for path, text in files.items()}
    )


@pytest.fixture
def environment(tmp_path: Path) -> dict[str, str]:
    return {**os.environ, "XDG_CACHE_HOME": str(tmp_path / "cache"), "PIP_NO_INDEX": "1"}


@pytest.fixture
def model(tmp_path: Path) -> Path:
    folder = tmp_path / "model"
    folder.mkdir()
    wheel(folder, "tinypackage", "1.0", "VALUE = 'of the model'\n")
    (folder / "requirements.txt").write_text("./tinypackage-1.0-py3-none-any.whl\n")
    return folder


def run(folder: Path, environment: dict[str, str], *, venv: bool = False, within: float = 100) -> tuple[str, str]:
    found = asyncio.run(install("m", folder, "requirements.txt", environment, venv=venv, within=within))
    return found.folder, found.python


def test_packages_go_into_a_folder_of_their_own_and_are_found_again(
    model: Path, environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)
    folder, python = run(model, environment)

    assert python == ""
    assert Path(folder).parent == cache_folder(environment)
    assert (Path(folder) / "tinypackage.py").read_text() == "VALUE = 'of the model'\n"
    assert any("Successfully installed tinypackage" in line for line in caplog.messages)
    with pytest.raises(ModuleNotFoundError):
        __import__("tinypackage")
    before = (Path(folder) / MARK).stat().st_mtime_ns
    assert run(model, {**environment, "PATH": ""})[0] == folder
    assert (Path(folder) / MARK).stat().st_mtime_ns == before, "nothing was installed again"


def test_a_venv_has_its_own_packages_first_and_the_servers_after_them(model: Path, environment: dict[str, str]) -> None:
    wheel(model, "click", "0.0.1", "VALUE = 'an older one'\n")
    (model / "requirements.txt").write_text("./tinypackage-1.0-py3-none-any.whl\n./click-0.0.1-py3-none-any.whl\n")
    folder, python = run(model, environment, venv=True)

    assert folder == ""
    code = "import tinypackage, click, msgspec, shoal, sys; print(tinypackage.VALUE, click.VALUE, msgspec.__file__)"
    seen = subprocess.run([python, "-c", code], capture_output=True, text=True, check=True, cwd="/").stdout
    assert seen.startswith("of the model an older one")
    assert str(Path(msgspec.__file__)) in seen, "what is not its own is the server's"
    assert not hasattr(click, "VALUE"), "the server's own is what it was"
    assert Path(click.__file__).exists()


def test_the_same_requirements_are_the_same_folder_and_others_another(
    model: Path, environment: dict[str, str], tmp_path: Path
) -> None:
    first, _ = run(model, environment)
    again = tmp_path / "again"
    again.mkdir()
    for path in model.iterdir():
        (again / path.name).write_bytes(path.read_bytes())
    assert run(again, environment)[0] == first

    wheel(again, "tinypackage", "1.0", "VALUE = 'changed'\n")
    changed, _ = run(again, environment)
    assert changed != first
    assert (Path(changed) / "tinypackage.py").read_text() == "VALUE = 'changed'\n"


def test_files_that_requirements_name_count_too(model: Path, environment: dict[str, str]) -> None:
    (model / "more.txt").write_text("# nothing\n")
    (model / "requirements.txt").write_text("-r more.txt\n")
    empty, _ = run(model, environment)
    (model / "more.txt").write_text("./tinypackage-1.0-py3-none-any.whl\n")
    filled, _ = run(model, environment)

    assert [path.name for path in Path(empty).iterdir()] == [MARK]
    assert (Path(filled) / "tinypackage.py").exists()


@pytest.mark.parametrize(
    ("requirements", "words"),
    [
        ("no-such-package-anywhere==1.0\n", "ERROR: No matching distribution found for no-such-package-anywhere"),
        ("not a requirement !!\n", "ERROR: Invalid requirement|Invalid requirement"),
        ("./gone-1.0-py3-none-any.whl\n", "gone-1.0"),
    ],
)
def test_a_failure_is_told_with_pips_reason_and_leaves_nothing(
    model: Path, environment: dict[str, str], requirements: str, words: str
) -> None:
    (model / "requirements.txt").write_text(requirements)

    with pytest.raises(BadArchive, match=words) as raised:
        run(model, environment)
    assert str(raised.value).startswith("Custom pip package installation failed for model m: ")
    assert [path.suffix for path in cache_folder(environment).iterdir()] == [".lock"]


def test_a_requirements_file_that_is_not_there_is_named(model: Path, environment: dict[str, str]) -> None:
    (model / "requirements.txt").unlink()

    with pytest.raises(BadArchive, match=r"names requirements\.txt as requirementsFile"):
        run(model, environment)


def slow_package(model: Path) -> Path:
    """A package whose building says so in a file and then never ends."""
    source = model / "slow"
    source.mkdir()
    (source / "pyproject.toml").write_text('[build-system]\nrequires = []\nbuild-backend = "b"\nbackend-path = ["."]\n')
    (source / "b.py").write_text(
        "import os, pathlib, time\n"
        "def get_requires_for_build_wheel(c=None):\n"
        f"    pathlib.Path({str(model / 'pid')!r}).write_text(str(os.getpid()))\n"
        f"    pathlib.Path({str(model / 'pid')!r}).rename({str(model / 'started')!r}); time.sleep(600)\n"
        "def build_wheel(d, c=None, m=None): pass\n"
    )
    (model / "requirements.txt").write_text("./slow\n")
    return model / "started"


def test_an_installation_without_end_is_ended(model: Path, environment: dict[str, str]) -> None:
    slow_package(model)

    with pytest.raises(BadArchive, match=r"was not done within 0\.5 s"):
        run(model, environment, within=0.5)
    assert [path.suffix for path in cache_folder(environment).iterdir()] == [".lock"]


def test_whoever_leaves_ends_the_installation_and_all_its_processes(model: Path, environment: dict[str, str]) -> None:
    started = slow_package(model)

    async def leave() -> None:
        task = asyncio.create_task(install("m", model, "requirements.txt", environment, venv=False))
        while not started.exists():
            await asyncio.sleep(0.02)
            assert not task.done()
        task.cancel()
        with pytest.raises(asyncio.CancelledError):
            await task

    asyncio.run(leave())
    assert [path.suffix for path in cache_folder(environment).iterdir()] == [".lock"]
    eventually(lambda: not is_alive(int(started.read_text())), "the process that pip had started is gone")


def test_two_that_need_the_same_install_it_once(
    model: Path, environment: dict[str, str], caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO)

    async def both() -> list[str]:
        found = await asyncio.gather(
            *(install(name, model, "requirements.txt", environment, venv=False) for name in ("a", "b"))
        )
        return [packages.folder for packages in found]

    first, second = asyncio.run(both())
    assert first == second
    assert sum("installing requirements.txt" in line for line in caplog.messages) == 1


def test_what_was_left_half_done_is_done_again(model: Path, environment: dict[str, str]) -> None:
    folder, _ = run(model, environment)
    (Path(folder) / MARK).unlink()
    (Path(folder) / "tinypackage.py").write_text("half")

    assert run(model, environment)[0] == folder
    assert (Path(folder) / "tinypackage.py").read_text() == "VALUE = 'of the model'\n"


@pytest.mark.parametrize("value", ["", "relative/path"])
def test_the_cache_is_in_the_users_own_folder_unless_named(value: str) -> None:
    assert cache_folder({"XDG_CACHE_HOME": value}) == Path.home() / ".cache" / "shoal" / "environments"


def test_asking_for_pip_wakes_no_import_hook(monkeypatch: pytest.MonkeyPatch) -> None:
    """Setuptools' hook throws distutils out of a process that asks for pip, with a warning where it was in use."""
    asked = []

    class Hook:
        def find_spec(self, name: str, path: object, target: object = None) -> ModuleSpec | None:
            asked.append(name)
            return None

    monkeypatch.delitem(sys.modules, "pip", raising=False)
    monkeypatch.setattr(sys, "meta_path", [Hook(), *sys.meta_path])

    assert has_pip()
    assert "pip" not in asked


def test_where_no_folder_has_pip_there_is_none(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "path", [str(tmp_path)])

    assert not has_pip()
