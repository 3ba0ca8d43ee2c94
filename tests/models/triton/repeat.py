# mypy: ignore-errors
"""Decoupled: answers each request as often as its first element says, in the way its parameter `do` says."""

import asyncio
import json
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def initialize(self, args):
        self.gate = threading.Event()
        self.is_async = "is_async" in json.loads(args["model_config"]).get("parameters", {})

    def execute(self, requests):
        return self.later(requests) if self.is_async else self.now(requests)

    def now(self, requests):
        for request in requests:
            word = json.loads(request.parameters()).get("do", "")
            if word == "raise":
                raise ValueError("no such bee")
            if word == "return":
                return []
            getattr(self, word or "repeat")(request)
        return None

    async def later(self, requests):
        for request in requests:
            if json.loads(request.parameters()).get("do") == "raise":
                raise ValueError("no such bee")
            for response in responses(request):
                request.get_response_sender().send(response)
                await asyncio.sleep(0)
            request.get_response_sender().send(flags=FINAL)

    def repeat(self, request):
        sender = request.get_response_sender()
        for response in responses(request):
            sender.send(response)
        sender.send(flags=FINAL)

    def thread(self, request):
        """Answer from another thread, once a later request has opened the gate."""
        sender = request.get_response_sender()
        made = responses(request)

        def run():
            self.gate.wait(60)
            for response in made[:-1]:
                sender.send(response)
            sender.send(made[-1], FINAL)

        threading.Thread(target=run).start()

    def some_wait(self, request):
        """Answer small numbers at once and others once the gate is open."""
        few = len(responses(request)) < 2
        self.repeat(request) if few else self.thread(request)

    def open(self, request):
        self.gate.set()
        request.get_response_sender().send(flags=FINAL)

    def wait_here(self, request):
        """Answer once, and go on only after the gate is open: what was sent must have left by then."""
        sender = request.get_response_sender()
        sender.send(responses(request)[0])
        self.gate.wait(60)
        sender.send(flags=FINAL)

    def mixed(self, request):
        sender = request.get_response_sender()
        sender.send(responses(request)[0])
        sender.send(pb_utils.InferenceResponse(error=pb_utils.TritonError("half", pb_utils.TritonError.UNAVAILABLE)))
        sender.send(responses(request)[0], FINAL)

    def drop(self, request):
        """Forget the request without a last word."""
        request.get_response_sender().send(responses(request)[0])

    def reuse(self, request):
        sender, out = request.get_response_sender(), np.zeros(1, np.int32)
        for number in range(3):
            out[0] = number
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", out)]))
        sender.send(flags=FINAL)

    def until_cancelled(self, request):
        sender = request.get_response_sender()

        def run():
            end = time.monotonic() + 20
            while not sender.is_cancelled() and time.monotonic() < end:
                sender.send(responses(request)[0])
                time.sleep(0.01)
            print("cancelled" if sender.is_cancelled() else "never", flush=True)
            sender.send(flags=FINAL)

        threading.Thread(target=run).start()


def responses(request):
    count = int(pb_utils.get_input_tensor_by_name(request, "IN").as_numpy()[0])
    return [
        pb_utils.InferenceResponse([pb_utils.Tensor("OUT", np.array([number], np.int32))]) for number in range(count)
    ]
