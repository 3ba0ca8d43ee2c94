"""One archive or unpacked folder of TorchServe's or MMS' kind, looked at as the server would, without running it."""

import importlib.metadata
import importlib.util
import re
import tempfile
from collections.abc import Iterator
from pathlib import Path, PurePath

from shoal.archive.checks import check_requirements
from shoal.archive.entries import Limits
from shoal.archive.environment import has_pip
from shoal.archive.manifest import Manifest, read_manifest
from shoal.archive.material import material_of
from shoal.archive.store import place_of, stem_of
from shoal.archive.unpack import unpack
from shoal.archive.workflow import MANIFEST as WORKFLOW
from shoal.archive.workflow import read_specification
from shoal.config.deployment import Deployment
from shoal.config.registration import register
from shoal.errors import ServingError
from shoal.tools.doctor.findings import Finding, Subject
from shoal.tools.doctor.imports import check_imports, missing_handler
from shoal.tools.doctor.weights import foreign_classes
from shoal.upstream.finder import HANDLERS

MOST = Limits(unpacked=16 * 2**30)
SEVERE = ("parallelType", "torchrun", "sequenceBatching")  # keys whose meaning is lost, not only their effect
CHANGES = {
    "sequenceBatching": "keep this model on TorchServe, or keep a sequence's state in the client",
    "parallelType": "serve a model that fits on one device, or keep this one on TorchServe",
    "torchrun": "serve a model that fits on one device, or keep this one on TorchServe",
}
_REQUIRED = re.compile(r"\s*([A-Za-z0-9][\w.-]*)\s*(?:\[[^\]]*\])?\s*(==\s*([\w.+!-]+))?")


def check_archive(path: Path, deployment: Deployment) -> Subject:
    """Look at an archive or a folder; what cannot be unpacked is a finding too."""
    try:
        place = place_of(path, python_files=False)
        if place.kind == "folder":
            return _checked(place.path, path.name, deployment)
        with tempfile.TemporaryDirectory(prefix="shoal-doctor-") as room:
            folder = Path(room) / "model"
            unpack(path, folder, MOST)
            return _checked(folder, path.name, deployment)
    except ServingError as error:
        return Subject(stem_of(path.name), "archive", [Finding("fails", str(error), "pack the archive anew")])
    except OSError as error:
        return Subject(stem_of(path.name), "archive", [Finding("fails", f"{path} cannot be read: {error.strerror}")])


def _checked(folder: Path, file: str, deployment: Deployment) -> Subject:
    if (folder / WORKFLOW).is_file():
        return _workflow(folder, deployment)
    try:
        manifest = read_manifest(folder, MOST)
    except ServingError as error:
        return Subject(stem_of(file), "archive", [Finding("fails", str(error), "correct MANIFEST.json")])
    if manifest is None:
        lone = [Finding("fails", f"{file} has no MAR-INF/MANIFEST.json", "pack it with `shoal archive`")]
        return Subject(stem_of(file), "folder without a manifest", lone)
    flavour = manifest.flavour or "torchserve"
    kind = f"{'Multi Model Server' if flavour == 'mms' else 'TorchServe'} archive"
    version = f" {manifest.version}" if manifest.version else ""
    findings = list(_findings(folder, manifest, deployment))
    return Subject(f"{manifest.name or stem_of(file)}{version}", kind, findings)


def _findings(folder: Path, manifest: Manifest, deployment: Deployment) -> Iterator[Finding]:
    yield from _settings(folder, manifest, deployment)
    for key, name in (("serializedFile", manifest.serialized_file), ("modelFile", manifest.model_file)):
        if name and not (folder / PurePath(name).name).is_file() and not (folder / name).is_file():
            yield Finding("fails", f"MANIFEST.json: {key} is {name}, which is not in the archive", "pack it anew")
    installed, found = _requirements(folder, manifest, installs=deployment.defaults.install_requirements)
    yield from found
    yield from _handler(folder, manifest.handler or deployment.defaults.handler, installed)
    if manifest.model_file and (folder / manifest.model_file).is_file():
        yield from check_imports(folder, folder / manifest.model_file, installed)
    weights = folder / PurePath(manifest.serialized_file).name
    if manifest.serialized_file and (classes := foreign_classes(weights)):
        named = ", ".join(classes[:3])
        text = f"{weights.name} carries code ({named}); handlers of TorchServe's own refuse to read it"
        yield Finding("fails", text, "save the state dict alone, or set allow_pickle = true for the model")


def _settings(folder: Path, manifest: Manifest, deployment: Deployment) -> Iterator[Finding]:
    """Register it as the server would, and tell of every note."""
    try:
        material = material_of(folder, manifest, MOST, stem="model")
        made = register({}, material, deployment.tuning, deployment.defaults, at_startup=True)
    except ServingError as error:
        yield Finding("fails", str(error))
        return
    for note in made.notes:
        key = next((key for key in SEVERE if note.startswith(f"model-config.yaml: {key} ")), "")
        yield Finding("fails" if key else "differs", note, CHANGES.get(key, ""))
    if made.config.batching.rule == "adaptive":
        change = "batchSize: 1 in model-config.yaml (or batch_size=1) keeps requests apart"
        yield Finding(
            "differs", "no batch size is set: requests are batched adaptively once that is proved safe", change
        )


def _requirements(folder: Path, manifest: Manifest, *, installs: bool) -> tuple[list[str], list[Finding]]:
    """Give the packages that the model will be given, and what is wrong with how it asks for them."""
    if not manifest.requirements_file:
        return [], []
    file = folder / manifest.requirements_file
    if not file.is_file():
        text = f"MANIFEST.json: requirementsFile is {manifest.requirements_file}, which is not in the archive"
        return [], [Finding("fails", text, "pack it anew")]
    members = {str(path.relative_to(folder)): path for path in folder.rglob("*") if path.is_file()}
    levels = {"error": "fails", "warning": "differs"}
    findings = [Finding(levels[each.level], each.text) for each in check_requirements(file, members)]  # type: ignore[arg-type]
    asked = _asked(file)
    if installs:
        if not has_pip():
            findings.append(
                Finding("fails", "requirements are to be installed, and there is no pip here", "install pip")
            )
        return list(asked), findings
    for name, version in asked.items():
        change = f"install_py_dep_per_model=true in config.properties, or pip install {name} beside the server"
        try:
            here = importlib.metadata.version(name)
        except importlib.metadata.PackageNotFoundError:
            findings.append(Finding("fails", f"it requires {name}, which is not installed here", change))
            continue
        if version and here != version:
            findings.append(Finding("differs", f"it requires {name}=={version}; {here} is installed here", change))
    return list(asked), findings


def _asked(file: Path) -> dict[str, str]:
    """Read the packages of a requirements file, with the version where exactly one is asked for."""
    found = {}
    for line in file.read_text("utf-8", "replace").splitlines():
        text = line.partition("#")[0].partition(";")[0].strip()
        match = _REQUIRED.match(text)
        if match and not text.startswith("-") and "://" not in text and not text.endswith((".whl", ".tar.gz")):
            found[match[1]] = match[3] or ""
    return found


def _handler(folder: Path, handler: str, installed: list[str]) -> Iterator[Finding]:
    if not handler:
        yield Finding("fails", "neither the manifest nor the settings name a handler", "name one in the manifest")
        return
    file, _, _ = handler.partition(":")
    name = PurePath(file).name.removesuffix(".py")
    path = folder / f"{name}.py"
    if path.is_file():
        yield from check_imports(folder, path, installed)
    elif name in HANDLERS:
        if reason := missing_handler(f"ts.torch_handler.{name}"):
            yield Finding("fails", f"handler {name}: {reason}")
        elif importlib.util.find_spec("torch") is None:
            yield Finding(
                "fails", f"handler {name} needs torch, which is not installed here", "pip install 'shoal[torch]'"
            )
    else:
        text = f"handler {handler}: the archive has no {name}.py, and no handler of that name comes with the server"
        yield Finding("fails", text, "pack it anew with --handler FILE.py")


def _workflow(folder: Path, deployment: Deployment) -> Subject:
    try:
        made = read_specification(folder)
    except ServingError as error:
        return Subject("workflow", "workflow archive", [Finding("fails", str(error), "correct the specification")])
    store = Path(deployment.server.model_store) if deployment.server.model_store else None
    findings = []
    for node, settings in made.models.items():
        url = str(settings["url"])
        if store is not None and "://" not in url and not (store / PurePath(url).name).exists():
            findings.append(Finding("fails", f"models.{node}: {url} is not in the model store", f"put it into {store}"))
    if made.handler:
        findings += check_imports(folder, folder / f"{made.handler}.py")
    return Subject(made.name, "workflow archive", findings)
