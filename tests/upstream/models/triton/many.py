"""Decoupled: answers as many times as it is told; a parameter names the answer that fails, another slows it down."""

import json
import threading
import time

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        for request in requests:
            threading.Thread(target=self._answer, args=(request.get_response_sender(), *self._asked(request))).start()

    def _asked(self, request):
        count = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy().flatten()[0])
        return count, json.loads(request.parameters() or "{}")

    def _answer(self, sender, count, parameters):
        for index in range(count):
            time.sleep(float(parameters.get("pause", "0")))
            if sender.is_cancelled():
                break
            if parameters.get("fail") == index:
                error = pb_utils.TritonError(f"told to fail at {index}", pb_utils.TritonError.UNAVAILABLE)
                sender.send(pb_utils.InferenceResponse(error=error))
                continue
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", numpy.array([[index]], numpy.int32))]))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
