"""Does what the text it is sent says: sleeps, fails in one of many ways, or tells what it was told."""

import json
import time

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        if any(self._word(request) == "few" for request in requests):
            return []
        return [self._answer(request, *self._word(request).partition(":")[::2]) for request in requests]

    def _word(self, request):
        return pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().flatten()[0].decode()

    def _answer(self, request, word, rest):
        if word == "raise":
            raise ValueError("told to raise")
        if word == "error":
            code = getattr(pb_utils.TritonError, rest)
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("told to fail", code))
        if word == "none":
            return pb_utils.InferenceResponse([])
        if word == "half":
            return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", numpy.array([[1.5]], numpy.float16))])
        if word == "sleep":
            time.sleep(float(rest))
        text = self._told(request) if word == "told" else word
        out = pb_utils.Tensor("OUT", numpy.array([[text.encode()]], dtype=numpy.object_))
        return pb_utils.InferenceResponse([out])

    def _told(self, request):
        told = {
            "id": request.request_id(),
            "correlation": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": json.loads(request.parameters() or "{}"),
            "outputs": sorted(request.requested_output_names()),
        }
        return json.dumps(told, sort_keys=True)
