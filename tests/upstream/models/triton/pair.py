"""Adds and subtracts."""

import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def execute(self, requests):
        answers = []
        for request in requests:
            one, other = (pb_utils.get_input_tensor_by_name(request, name).as_numpy() for name in ("A", "B"))
            sums = {"SUM": one + other, "DIFFERENCE": one - other}
            outputs = [pb_utils.Tensor(name, value) for name, value in sums.items()]
            answers.append(pb_utils.InferenceResponse(outputs))
        return answers
