"""What an unpacked archive says of itself, as the registration of a model takes it."""

from pathlib import Path
from typing import Literal

from shoal.archive.entries import Limits
from shoal.archive.manifest import Manifest, read_settings
from shoal.config.registration import Material


def material_of(
    folder: Path,
    manifest: Manifest,
    limits: Limits,
    *,
    stem: str,
    otherwise: Literal["torchserve", "mms"] = "torchserve",
) -> Material:
    """Read the settings beside a manifest; `otherwise` is whose archive it is where the manifest does not tell."""
    return Material(
        path=str(folder),
        flavour=manifest.flavour or otherwise,
        name=manifest.name,
        version=manifest.version,
        handler=manifest.handler,
        runtime=manifest.runtime,
        envelope=manifest.envelope,
        settings=read_settings(folder, manifest.config_file, limits) if manifest.config_file else {},
        stem=stem,
    )
