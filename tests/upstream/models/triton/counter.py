"""A sequence: the sum of what it was sent since the start, and what its controls said."""

import numpy
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.sums = {}

    def execute(self, requests):
        answers = []
        for request in requests:
            value, start, end, id = (
                int(pb_utils.get_input_tensor_by_name(request, name).as_numpy().flatten()[0])
                for name in ("IN", "START", "END", "CORRID")
            )
            self.sums[id] = value + (0 if start else self.sums.get(id, 0))
            found = numpy.array([[self.sums[id], start, end, id]], numpy.int64)
            answers.append(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", found)]))
        return answers
