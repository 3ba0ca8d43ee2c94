"""The old home of `send_intermediate_predict_response`."""

import warnings
from collections.abc import Mapping, Sequence
from typing import Any

from shoal.upstream.ts.context import Context
from shoal.upstream.ts.handler_utils import utils


def send_intermediate_predict_response(
    ret: Sequence[Any], req_id_map: Mapping[int, str], message: str, code: int, context: Context | None = None
) -> None:
    """Do what the function of the same name in ts.handler_utils.utils does."""
    warnings.warn(
        "send_intermediate_predict_response has moved to ts.handler_utils.utils",
        PendingDeprecationWarning,
        stacklevel=2,
    )
    utils.send_intermediate_predict_response(ret, req_id_map, message, code, context)  # type: ignore[arg-type]
