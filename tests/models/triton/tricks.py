# mypy: ignore-errors
"""Does what a request's parameter `do` says; its input is FP32 IN, its output FP32 OUT, twice as much."""

import json
import os
import threading
import time

import beside
import numpy as np
import triton_python_backend_utils as pb_utils

from .beside import WORD


class TritonPythonModel:
    def initialize(self, args):
        self.args = args
        self.thread = threading.get_ident()
        self.kept = []
        self.out = np.zeros((8, 2), np.float32)
        self.calls = pb_utils.MetricFamily("tricks_total", "Calls", pb_utils.MetricFamily.COUNTER).Metric({"by": "me"})
        self.level = pb_utils.MetricFamily("tricks_level", "Level", pb_utils.MetricFamily.GAUGE).Metric()
        self.sizes = pb_utils.MetricFamily("tricks_size", "Sizes", pb_utils.MetricFamily.HISTOGRAM).Metric(
            {}, buckets=[1.0, 2.0]
        )
        pb_utils.Logger.log_info("initialised")
        pb_utils.Logger.log_warn("be warned")
        pb_utils.Logger.log_verbose("not shown")

    def execute(self, requests):
        assert threading.get_ident() == self.thread
        assert WORD == beside.WORD
        words = [json.loads(request.parameters()).get("do", "") for request in requests]
        if "raise" in words:
            raise ValueError("no such bee")
        if "memory" in words:
            raise MemoryError
        if "exit" in words:
            raise SystemExit(3)
        if "few" in words:
            return []
        if "tuple" in words:
            return tuple(self.double(request) for request in requests)
        if "nothing" in words:
            return None
        return [getattr(self, word or "double")(request) for word, request in zip(words, requests, strict=True)]

    def finalize(self):
        print("finalised", flush=True)

    def double(self, request):
        return respond(2 * given(request))

    def text(self, request):
        return "text"

    def none(self, request):
        return None

    def refuse(self, request):
        code = json.loads(request.parameters())["code"]
        return pb_utils.InferenceResponse(error=pb_utils.TritonError("refused", getattr(pb_utils.TritonError, code)))

    def tell(self, request):
        told = {
            "args": self.args,
            "id": request.request_id(),
            "sequence": request.correlation_id(),
            "flags": request.flags(),
            "timeout": request.timeout(),
            "parameters": request.parameters(),
            "outputs": sorted(request.requested_output_names()),
            "folder": pb_utils.get_model_dir(),
            "module": __name__,
            "shape": request.inputs()[0].shape(),
            "type": request.inputs()[0].triton_dtype(),
            "path": [entry for entry in __import__("sys").path if entry],
        }
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", np.array([json.dumps(told)], object))])

    def extra(self, request):
        more = pb_utils.Tensor("UNASKED", np.zeros(3))
        return pb_utils.InferenceResponse([more, pb_utils.Tensor("OUT", given(request))], parameters={"a": 1, "b": "x"})

    def reuse(self, request):
        self.out[:] = given(request)[0, 0]
        return respond(self.out[: len(given(request))])

    def keep(self, request):
        self.kept.append(request.inputs()[0])
        return respond(given(request))

    def keep_array(self, request):
        self.kept.append(pb_utils.Tensor("IN", given(request)))
        return respond(given(request))

    def keep_unread(self, request):
        self.kept.append(request.inputs()[0])
        return respond(np.zeros((1, 2), np.float32))

    def recall(self, request):
        return respond(np.concatenate([tensor.as_numpy() for tensor in self.kept]))

    def later(self, request):
        sender, answer = request.get_response_sender(), respond(3 * given(request))
        threading.Timer(0.05, lambda: sender.send(answer, pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)).start()

    def twice(self, request):
        sender = request.get_response_sender()
        told = []
        sender.send(respond(given(request)))
        for send in (
            lambda: sender.send(respond(given(request))),
            lambda: sender.send(),
            lambda: sender.send(flags=1),
            lambda: sender.send(flags=1),
        ):
            try:
                send()
                told.append("sent")
            except pb_utils.TritonModelException as error:
                told.append(str(error))
        self.told = told

    def told_twice(self, request):
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", np.array([json.dumps(self.told)], object))])

    def measure(self, request):
        self.calls.increment(2)
        self.calls.increment(1)
        self.level.set(4)
        self.level.increment(-1)
        self.sizes.observe(1.5)
        return respond(np.array([[self.calls.value(), self.level.value()]], np.float32))

    def wait(self, request):
        end = time.monotonic() + 20
        while not request.is_cancelled():
            assert time.monotonic() < end
            time.sleep(0.01)
        print("cancelled", flush=True)
        return respond(given(request))

    def call(self, request):
        asking = pb_utils.InferenceRequest(
            inputs=request.inputs(), requested_output_names=["OUT"], model_name="other", request_id="id"
        )
        return asking.exec()

    def environment(self, request):
        return pb_utils.InferenceResponse([pb_utils.Tensor("TOLD", np.array([os.environ.get("BEE", "")], object))])


def given(request):
    return pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()


def respond(array):
    return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", array)])
