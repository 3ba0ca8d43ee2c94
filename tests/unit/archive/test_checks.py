import re
from pathlib import Path

import pytest

from shoal.archive import checks
from shoal.archive.checks import Finding


def handler(tmp_path: Path, code: str, name: str = "h.py", **others: str) -> Finding:
    members = {}
    for file, text in {"h.py": code, **{f"{other}.py": text for other, text in others.items()}}.items():
        (tmp_path / file).write_text(text)
        members[file] = tmp_path / file
    return checks.check_handler(name, members)


@pytest.mark.parametrize(
    ("code", "name", "found"),
    [
        ("def handle(data, context): return data", "h.py", "function handle"),
        ("def handle(data, context): return data", "h", "function handle"),
        ("def run(data, context): return data", "h:run", "function run"),
        ("def run(data, context): return data", "h.py:run", "function run"),
        ("class A:\n def handle(self, d, c): pass\n def initialize(self, c): pass", "h.py", "class A"),
        ("print('noise')\ndef handle(data, context): return data", "h.py", "function handle"),
        ("import beside\ndef handle(data, context): return beside.X", "h.py", "function handle"),
    ],
)
def test_a_handler_that_a_worker_would_find_is_found(tmp_path: Path, code: str, name: str, found: str) -> None:
    assert handler(tmp_path, code, name, beside="X = 1") == Finding("fine", f"handler {name}: {found}")


@pytest.mark.parametrize(
    ("code", "name", "words"),
    [
        ("def handle(:\n", "h.py", "SyntaxError"),
        ("1 / 0", "h.py", "ZeroDivisionError"),
        ("X = 1", "h.py", "no function `handle`, and no classes where one is expected"),
        ("class A: pass\nclass B: pass", "h.py", r"2 classes \(A, B\) where one"),
        ("class A:\n def handle(self, d, c): pass", "h.py", "class A in h.py has no method initialize"),
        ("class A: pass", "h.py", "has no method handle and no initialize"),
        ("def handle(d, c): pass", "h:run", "has no function run"),
        ("raise SystemExit(3)", "h.py", "SystemExit: 3"),
        ("import os; os._exit(3)", "h.py", "ended the process"),
        ("import beside", "h.py", "there is no module"),
    ],
)
def test_a_handler_that_no_worker_could_use_is_an_error(tmp_path: Path, code: str, name: str, words: str) -> None:
    broken = "import beside.inner"
    finding = handler(tmp_path, code, name, beside=broken)

    assert finding.level == "error"
    assert re.search(words, finding.text), finding.text


def test_a_module_that_only_the_server_has_is_a_warning(tmp_path: Path) -> None:
    finding = handler(tmp_path, "import a_package_of_the_server\ndef handle(d, c): pass")

    assert finding.level == "warning"
    assert "no module a_package_of_the_server here" in finding.text


def test_the_modules_of_other_servers_are_there_as_in_a_worker(tmp_path: Path) -> None:
    code = "from ts.utils.util import PredictionException\nimport mms.service\ndef handle(d, c): pass"

    assert handler(tmp_path, code) == Finding("fine", "handler h.py: function handle")


def test_imported_classes_do_not_count(tmp_path: Path) -> None:
    code = "from beside import Base\nclass A(Base):\n    def initialize(self, c): pass"

    finding = handler(tmp_path, code, beside="class Base:\n    def handle(self, d, c): pass")
    assert finding == Finding("fine", "handler h.py: class A")


def test_an_import_without_end_is_a_warning(tmp_path: Path) -> None:
    (tmp_path / "h.py").write_text("import time; time.sleep(600)")

    finding = checks.check_handler("h.py", {"h.py": tmp_path / "h.py"}, within=0.5)
    assert finding == Finding("warning", "handler h.py: importing it was not done within 0.5 s")


def test_the_check_leaves_nothing_beside_the_handler(tmp_path: Path) -> None:
    handler(tmp_path, "import beside\ndef handle(d, c): pass", beside="")

    assert sorted(path.name for path in tmp_path.iterdir()) == ["beside.py", "h.py"]


def test_weights_are_looked_at(tmp_path: Path) -> None:
    (tmp_path / "w.pth").write_text("x")
    (tmp_path / "empty.pt").touch()

    def found(name: str, *, model_file: bool = False, built_in: bool = True) -> list[str]:
        path = tmp_path / name
        return [
            finding.level for finding in checks.check_weights(path, has_model_file=model_file, is_built_in=built_in)
        ]

    assert found("w.pth") == ["warning"]
    assert found("w.pth", model_file=True) == found("w.pth", built_in=False) == []
    assert found("empty.pt") == ["error"]
    assert found("gone.pt") == ["error"]


@pytest.mark.parametrize(
    "line",
    [
        "numpy",
        "numpy>=1.26,<3",
        "torch==2.3.*",
        "uvicorn[standard] ~= 0.20 ; python_version < '3.12'",
        "pkg @ https://host/pkg.whl",
        "https://host/pkg.whl",
        "git+https://host/repo.git@main",
        "--extra-index-url https://host/simple",
        "-r more.txt",
        "./wheel-1.0-py3-none-any.whl",
        "# comment",
        "numpy  # with a reason",
        "",
        "tensorflow (>=2.0)",
        "pkg==1.0 --hash=sha256:abc",
    ],
)
def test_requirements_that_pip_takes_are_fine(tmp_path: Path, line: str) -> None:
    (tmp_path / "r.txt").write_text(f"{line}\n")
    members = {"more.txt": tmp_path, "wheel-1.0-py3-none-any.whl": tmp_path}

    assert list(checks.check_requirements(tmp_path / "r.txt", members)) == []


@pytest.mark.parametrize(
    ("text", "level", "words"),
    [
        ("numpy\nnot a requirement\n", "error", r"r\.txt line 2: 'not a requirement'"),
        ("numpy=1.0", "error", "is not a requirement"),
        (">=1.0", "error", "is not a requirement"),
        ("-r gone.txt", "warning", r"gone\.txt is not in the archive"),
        ("./gone.whl", "warning", "is not in the archive"),
    ],
)
def test_requirements_that_pip_would_refuse_are_pointed_out(tmp_path: Path, text: str, level: str, words: str) -> None:
    (tmp_path / "r.txt").write_text(text)
    (finding,) = checks.check_requirements(tmp_path / "r.txt", {})

    assert finding.level == level
    assert re.search(words, finding.text)


def test_settings_with_a_key_that_is_nearly_right_are_pointed_out(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("batchsize: 4\nminWorker: 1\nhandler: {}\nmy_own: 1\nmaxBatchDelay: soon\n")
    found = [(finding.level, finding.text) for finding in checks.check_settings(tmp_path / "c.yaml")]

    assert found == [
        ("warning", "model-config.yaml: maxBatchDelay is a whole number, got 'soon'; it is ignored"),
        ("warning", "c.yaml: batchsize is not a setting of the server; did you mean batchSize?"),
        ("warning", "c.yaml: minWorker is not a setting of the server; did you mean minWorkers?"),
    ]


def test_settings_that_cannot_be_read_are_an_error(tmp_path: Path) -> None:
    (tmp_path / "c.yaml").write_text("a: [")

    (finding,) = checks.check_settings(tmp_path / "c.yaml")
    assert finding.level == "error" and "line 1" in finding.text
