"""KServeEnvelope: KServe's first protocol, one request at a time."""

import json
from typing import Any

from shoal.upstream.ts.torch_handler.request_envelope.base import BaseEnvelope, body_of


class KServeEnvelope(BaseEnvelope):
    """Gives the handler the instances of the first row, which alone is answered: batches of one are what it is for."""

    def parse_input(self, data: list[Any]) -> Any:
        """The first row's instances."""
        body = body_of(data[0])
        if isinstance(body, bytes | bytearray):
            body = json.loads(body)
        return body.get("instances")

    def format_output(self, data: Any) -> list[dict[str, Any]]:
        """One answer with all predictions, or explanations where those were asked for."""
        is_explanation = self.context.get_request_header(0, "explain") == "True"
        return [{"explanations" if is_explanation else "predictions": data}]
