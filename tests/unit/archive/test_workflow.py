import json
from pathlib import Path

import pytest

from shoal.archive.workflow import read_specification
from shoal.errors import BadArchive

SPEC = """
models:
  min-workers: 1
  max-workers: 2
  batch-size: 4
  dog: {url: dog.mar, batch-size: 8, timeout-ms: 500}
  cat: {url: cat.mar}
dag:
  pre: [dog, cat]
  dog: [join]
  cat: [join]
"""


def war(folder: Path, spec: str = SPEC, **workflow: str) -> Path:
    (folder / "WAR-INF").mkdir(parents=True)
    manifest = {"workflow": {"workflowName": "pets", "specFile": "spec.yaml", "handler": "h.py", **workflow}}
    (folder / "WAR-INF" / "MANIFEST.json").write_text(json.dumps(manifest))
    (folder / "spec.yaml").write_text(spec)
    (folder / "h.py").write_text("")
    return folder


def test_models_functions_and_edges_are_told_apart(tmp_path: Path) -> None:
    read = read_specification(war(tmp_path))

    assert (read.name, read.handler, read.functions) == ("pets", "h", ("pre", "join"))
    assert read.edges == {"pre": ["dog", "cat"], "dog": ["join"], "cat": ["join"]}


def test_a_models_own_numbers_win_over_those_of_all_and_those_over_upstreams(tmp_path: Path) -> None:
    models = read_specification(war(tmp_path)).models

    assert models["dog"]["batch-size"] == 8
    assert models["cat"]["batch-size"] == 4
    assert (models["dog"]["timeout-ms"], models["cat"]["timeout-ms"]) == (500, 10_000)
    assert (models["cat"]["max-workers"], models["cat"]["max-batch-delay"]) == (2, 50)


def test_the_callers_name_wins(tmp_path: Path) -> None:
    assert read_specification(war(tmp_path), "zoo").name == "zoo"


@pytest.mark.parametrize(
    ("spec", "workflow", "problem"),
    [
        ("models: {dog: {}}\ndag: {dog: []}", {}, "models.dog: url is missing"),
        ("models: {dog: {url: d.mar, batch-size: many}}\ndag: {dog: []}", {}, "batch-size is a whole number"),
        ("models: {dog: {url: d.mar}}\ndag: {dog: cat}", {}, "dag.dog is a list of the nodes"),
        ("models: {dog: {url: d.mar}}", {}, "dag: expected settings"),
        ("models: [", {}, "spec.yaml"),
        ("models: {dog: {url: d.mar}}\ndag: {dog: [end]}", {"handler": ""}, "no handler file defines them"),
        (SPEC, {"specFile": "other.yaml"}, "has no other.yaml"),
        (SPEC, {"workflowName": ""}, "workflowName is missing"),
    ],
)
def test_a_broken_specification_is_refused_with_the_place(
    tmp_path: Path, spec: str, workflow: dict[str, str], problem: str
) -> None:
    with pytest.raises(BadArchive, match=problem):
        read_specification(war(tmp_path, spec, **workflow))


def test_a_specification_outside_the_archive_is_not_read(tmp_path: Path) -> None:
    (tmp_path / "outside.yaml").write_text(SPEC)
    folder = war(tmp_path / "war", SPEC, specFile="../outside.yaml")

    with pytest.raises(BadArchive, match=r"has no outside.yaml"):
        read_specification(folder)
