"""What handlers call by themselves: a piece of every answer sent ahead, and a class found by its name."""

import importlib
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.upstream.ts.context import Context


def send_intermediate_predict_response(
    ret: Sequence[Any], req_id_map: Mapping[int, str], message: str, code: int, context: Context
) -> None:
    """Send a piece of each answer now; what the handler returns is the last piece.

    `ret` is indexed as `req_id_map` is. A `code` other than 200 ends all of them with `message`.
    """
    send = getattr(context, "_send_pieces", None)
    if send is None:
        raise RuntimeError("pieces of answers can only be sent inside a worker, with the context it gave the handler")
    send({index: ret[index] for index in req_id_map}, message, code)


def import_class(class_name: str, module_prefix: str | None = None) -> type:
    """The class of a dotted name, looked for below `module_prefix` if one is given."""
    full = f"{module_prefix}.{class_name}" if module_prefix else class_name
    module_name, _, name = full.rpartition(".")
    if not module_name:
        raise ImportError(f"{class_name!r} names no module; give module.Class")
    found = getattr(importlib.import_module(module_name), name, None)
    if not isinstance(found, type):
        raise ImportError(f"module {module_name} has no class {name!r}")
    return found
