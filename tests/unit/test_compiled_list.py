"""The list of compiled modules: what a compiled class cannot be is found before anybody compiles."""

import ast
import runpy
from pathlib import Path

ROOT = Path(__file__).parents[2]
SOURCES = ROOT / "src"
FOLDERS: dict[str, str] = runpy.run_path(str(ROOT / "hatch_build.py"))["COMPILED"]
MODULES = {
    ".".join(["shoal", *folder.split("/"), name]).replace("..", ".")
    for folder, names in FOLDERS.items()
    for name in names.split()
}


def classes_of(file: Path) -> list[tuple[str, list[str]]]:
    """Give the classes of a file, each with the full names of its bases as far as they are imported."""
    tree = ast.parse(file.read_text())
    known: dict[str, str] = {}
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom):
            known.update({name.asname or name.name: f"{node.module}.{name.name}" for name in node.names})
    return [
        (node.name, [known.get(ast.unparse(base), ast.unparse(base)) for base in node.bases])
        for node in ast.walk(tree)
        if isinstance(node, ast.ClassDef)
    ]


def module_of(file: Path) -> str:
    return ".".join(file.relative_to(SOURCES).with_suffix("").parts)


def test_every_module_of_the_list_exists_and_is_named_once() -> None:
    assert all((SOURCES / f"{module.replace('.', '/')}.py").is_file() for module in MODULES)
    assert len(MODULES) == sum(len(names.split()) for names in FOLDERS.values())


def test_no_interpreted_class_inherits_from_a_compiled_one() -> None:
    wrong = [
        f"{module_of(file)}.{name} inherits from {base}"
        for file in SOURCES.rglob("*.py")
        if module_of(file) not in MODULES
        for name, bases in classes_of(file)
        for base in bases
        if base.rpartition(".")[0] in MODULES
    ]
    assert wrong == []


def test_no_compiled_module_has_structures_that_are_read_by_their_annotations() -> None:
    found = [
        f"{module}.{name}"
        for module in MODULES
        for name, bases in classes_of(SOURCES / f"{module.replace('.', '/')}.py")
        if any(base.endswith("Struct") for base in bases)
    ]
    assert found == []


def imports_of(file: Path) -> set[str]:
    """Name the modules that a file imports when it runs; what only its types need does not count."""
    tree = ast.parse(file.read_text())
    for node in ast.walk(tree):
        if isinstance(node, ast.If) and ast.unparse(node.test) == "TYPE_CHECKING":
            node.body = []
    return {node.module for node in ast.walk(tree) if isinstance(node, ast.ImportFrom) and node.module}


def test_what_the_compiled_rules_are_made_of_is_compiled_with_them() -> None:
    missing = {
        f"{module} imports {used}"
        for module in MODULES
        if module.startswith("shoal.core.")
        for used in imports_of(SOURCES / f"{module.replace('.', '/')}.py")
        if used.startswith("shoal.core.") and used not in MODULES
    }
    assert missing == set()
