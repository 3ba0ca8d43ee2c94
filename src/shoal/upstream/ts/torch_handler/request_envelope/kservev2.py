"""KServev2Envelope: KServe's second protocol in its JSON form, one request at a time."""

import json
from typing import Any

from shoal.upstream.ts.torch_handler.request_envelope.base import BaseEnvelope, body_of

DATATYPES = {
    "bool": "BOOL",
    "uint8": "UINT8",
    "uint16": "UINT16",
    "uint32": "UINT32",
    "uint64": "UINT64",
    "int8": "INT8",
    "int16": "INT16",
    "int32": "INT32",
    "int64": "INT64",
    "float16": "FP16",
    "float32": "FP32",
    "float64": "FP64",
}


class KServev2Envelope(BaseEnvelope):
    """Gives the handler the inputs of the first row, which alone is answered: batches of one are what it is for."""

    def __init__(self, handle_fn: Any) -> None:
        super().__init__(handle_fn)
        self._id: str | None = None
        self._names: list[str] = []

    def parse_input(self, data: list[Any]) -> list[Any]:
        """The first row's inputs, the data of each in its shape."""
        body = body_of(data[0])
        if isinstance(body, bytes | bytearray):
            body = json.loads(body)
        self._id = body.get("id")
        self._names = [entry["name"] for entry in body["inputs"]]
        return [_shaped(entry) for entry in body["inputs"]]

    def format_output(self, data: Any) -> list[dict[str, Any]]:
        """One answer with an output for each result; it takes its name from the input in the same place."""
        manifest = (self.context.manifest or {}).get("model", {})
        return [
            {
                "id": self._id or self.context.get_request_id(0),
                "model_name": manifest.get("modelName"),
                "model_version": manifest.get("modelVersion"),
                "outputs": [_output(result, self._names[index]) for index, result in enumerate(data)],
            }
        ]


def _shaped(entry: dict[str, Any]) -> dict[str, Any]:
    import numpy

    if entry["datatype"] == "BYTES":
        return {**entry, "data": entry["data"][0]}
    return {**entry, "data": numpy.array(entry["data"]).reshape(entry["shape"]).tolist()}


def _output(result: Any, name: str) -> dict[str, Any]:
    import numpy

    array = numpy.array(result)
    data = array.flatten().tolist()
    return {"name": name, "datatype": DATATYPES.get(array.dtype.name, "BYTES"), "data": data, "shape": [len(data)]}
