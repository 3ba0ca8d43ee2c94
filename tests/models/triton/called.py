# mypy: ignore-errors
"""What other models call: `echo` doubles X, `many` counts to N and notes who left, `wide` and `texts` give X again."""

import json
import os
import time

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.run = getattr(self, args["model_name"])
        self.notes = os.path.join(args["model_repository"], "notes")

    def execute(self, requests):
        found = [self.run(request) for request in requests]
        return None if self.run == self.many else found

    def echo(self, request):
        array = pb_utils.get_input_tensor_by_name(request, "X").as_numpy()
        if array[0, 0] == -13:
            raise ValueError("thirteen")
        if array[0, 0] == -14:
            return pb_utils.InferenceResponse(error=pb_utils.TritonError("fourteen", pb_utils.TritonError.NOT_FOUND))
        if array[0, 0] == -15:
            os._exit(1)
        said = [request.request_id(), request.correlation_id(), request.flags(), request.timeout(),
                json.loads(request.parameters()), sorted(request.requested_output_names())]  # fmt: skip
        text = np.array([[json.dumps(said)]], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("Y", 2 * array), pb_utils.Tensor("SAID", text)])

    def many(self, request):
        number = int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])
        sender = request.get_response_sender()
        if number < 0:
            self.wait(sender, request)
        for index in range(number):
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("I", np.array([index], np.int32))]))
            if number > 100:
                time.sleep(0.02)
                if sender.is_cancelled():
                    return self.note("left")
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def wait(self, sender, request):
        self.note("waiting")
        until = time.monotonic() + 30
        while time.monotonic() < until and not request.is_cancelled():
            time.sleep(0.01)
        self.note("left" if sender.is_cancelled() else "nobody left")

    def note(self, word):
        with open(self.notes, "a") as file:
            file.write(word + "\n")

    def wide(self, request):
        return pb_utils.InferenceResponse(
            [pb_utils.Tensor("Y", pb_utils.get_input_tensor_by_name(request, "X").as_numpy())]
        )

    texts = wide
