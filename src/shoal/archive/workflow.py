"""Workflow archives (`.war`): the specification inside, read and checked."""

from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import yaml

from shoal.errors import BadArchive

MANIFEST = "WAR-INF/MANIFEST.json"
MOST_BYTES = 1024 * 1024  # of a manifest or specification
NUMBERS = {
    "min-workers": 1,
    "max-workers": 1,
    "batch-size": 1,
    "max-batch-delay": 50,
    "retry-attempts": 1,
    "timeout-ms": 10_000,
}


@dataclass(frozen=True, slots=True)
class Specification:
    """What a workflow is made of."""

    name: str
    models: Mapping[str, Mapping[str, Any]]  # by node: `url`, and every number of NUMBERS
    functions: tuple[str, ...]  # nodes that the handler file defines
    edges: Mapping[str, list[str]]
    handler: str  # the file of the functions; empty when there are none
    defaults: Mapping[str, int]


def read_specification(folder: Path, name: str = "") -> Specification:
    """Read an unpacked workflow archive; raises BadArchive that says what is wrong where."""
    manifest = _mapping(_parse(folder / MANIFEST, msgspec.json.decode), MANIFEST)
    workflow = _mapping(manifest.get("workflow"), f"{MANIFEST}: workflow")
    name = name or _text(workflow, "workflowName", MANIFEST)
    file = _inside(folder, _text(workflow, "specFile", MANIFEST))
    spec = _mapping(_parse(file, yaml.safe_load), file.name)
    models = _mapping(spec.get("models"), f"{file.name}: models")
    defaults = {key: _number(models, key, default, file.name) for key, default in NUMBERS.items()}
    found = {node: value for node, value in models.items() if isinstance(value, dict)}
    settings = {
        node: {
            "url": _text(value, "url", f"{file.name}: models.{node}"),
            **{key: _number(value, key, default, f"{file.name}: models.{node}") for key, default in defaults.items()},
        }
        for node, value in found.items()
    }
    edges = _edges(spec.get("dag"), file.name)
    nodes = dict.fromkeys([*edges, *(node for after in edges.values() for node in after)])
    functions = tuple(node for node in nodes if node not in settings)
    handler = str(workflow.get("handler") or "")
    if functions and not (handler and _inside(folder, handler).is_file()):
        raise BadArchive(f"{', '.join(functions)} are no models of {file.name}, and no handler file defines them")
    used = {node: settings[node] for node in nodes if node in settings}
    return Specification(name, used, functions, edges, Path(handler).stem if handler else "", defaults)


def _parse(file: Path, parse: Any) -> Any:
    try:
        if file.stat().st_size > MOST_BYTES:
            raise BadArchive(f"{file.name} is over {MOST_BYTES} bytes")
        return parse(file.read_bytes())
    except OSError:
        raise BadArchive(f"the workflow archive has no {file.name}") from None
    except (msgspec.DecodeError, yaml.YAMLError, ValueError) as error:
        raise BadArchive(f"{file.name}: {error}") from None


def _edges(dag: Any, where: str) -> dict[str, list[str]]:
    values = _mapping(dag, f"{where}: dag")
    for node, after in values.items():
        if not isinstance(after, list) or not all(isinstance(other, str) for other in after):
            raise BadArchive(f"{where}: dag.{node} is a list of the nodes after it, got {after!r}")
    return {str(node): list(after) for node, after in values.items()}


def _mapping(value: Any, where: str) -> dict[str, Any]:
    if not isinstance(value, dict) or not value:
        raise BadArchive(f"{where}: expected settings by name")
    return value


def _text(values: Mapping[str, Any], key: str, where: str) -> str:
    value = values.get(key)
    if not isinstance(value, str) or not value:
        raise BadArchive(f"{where}: {key} is missing")
    return value


def _number(values: Mapping[str, Any], key: str, default: int, where: str) -> int:
    value = values.get(key, default)
    if not isinstance(value, int) or isinstance(value, bool) or value < 0:
        raise BadArchive(f"{where}: {key} is a whole number of 0 or more, got {value!r}")
    return value


def _inside(folder: Path, name: str) -> Path:
    """A file of the archive; only its name counts, as in the archives themselves."""
    return folder / Path(name).name
