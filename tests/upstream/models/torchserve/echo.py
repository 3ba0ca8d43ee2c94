"""A module-level handler: says what it got, or does what it is told."""

import behave
from ts.handler_utils.utils import send_intermediate_predict_response
from ts.utils.util import PredictionException


def handle(data, context):
    if data is not None and context.get_request_header(0, "describe") == "True":
        return [{"about": "an echo", "inputs": ["anything"], "count": len(data)}]
    return behave.handle(data, context, PredictionException, send_intermediate_predict_response)
