"""What `pt2` in model-config.yaml asks for: which options `torch.compile` gets, and whether it runs at all."""

import logging
from typing import Any

import torch

from shoal.upstream.ts.utils.util import check_valid_pt2_backend

logger = logging.getLogger(__name__)


def wants_aot(pt2: Any) -> bool:
    """Whether the archive says that its model was compiled ahead of time."""
    export = pt2.get("export") if isinstance(pt2, dict) else None
    return isinstance(export, dict) and export.get("aot_compile") is True


def compile_options(pt2: Any) -> dict[str, Any] | None:
    """The options for `torch.compile`, or None when the model stays as it is."""
    if isinstance(pt2, str):
        return _old_form({"backend": pt2})
    if not isinstance(pt2, dict) or ("export" in pt2 and "compile" not in pt2):
        return None
    if "compile" not in pt2:
        return _old_form(dict(pt2))
    options = dict(pt2["compile"] or {})
    if not isinstance(options.get("enable"), bool):
        raise ValueError("pt2.compile in model-config.yaml needs `enable: true` or `enable: false`")
    return options if options.pop("enable") else None


def _old_form(options: dict[str, Any]) -> dict[str, Any]:
    logger.warning("`pt2` names compile options directly; write `pt2: {compile: {enable: true, ...}}` instead")
    return options


def compiled(model: Any, pt2: Any) -> Any:
    """The model, compiled if `pt2` says so; one that cannot be compiled serves as it is, and the log says why."""
    options = compile_options(pt2)
    if options is None or ("backend" in options and not check_valid_pt2_backend(options["backend"])):
        return model
    said = ", ".join(f"{name} {value}" for name, value in options.items()) or "defaults"
    try:
        better = torch.compile(model, **options)
    except Exception as error:
        logger.warning("Compiling the model with %s failed, it runs uncompiled: %s", said, error)
        return model
    logger.info("Compiled model with %s", said)
    return better
