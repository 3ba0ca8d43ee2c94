# mypy: ignore-errors
"""A decoupled model that passes on what another decoupled model counts; as a coroutine where it is named so."""

import asyncio

import numpy as np
import triton_python_backend_utils as pb_utils


class TritonPythonModel:
    def initialize(self, args):
        self.turns = 0
        if args["model_name"] == "streaming_coroutine":
            self.execute = self.execute_async

    def execute(self, requests):
        for request in requests:
            number = pb_utils.get_input_tensor_by_name(request, "N")
            if number.as_numpy()[0] == 77:
                return self.take_turns(request)
            self.pass_on(request.get_response_sender(), self.ask(number).exec(decoupled=True))

    async def execute_async(self, requests):
        await asyncio.gather(*(self.run(request) for request in requests))

    async def run(self, request):
        number = pb_utils.get_input_tensor_by_name(request, "N")
        self.pass_on(request.get_response_sender(), await self.ask(number).async_exec(decoupled=True))

    def ask(self, number):
        return pb_utils.InferenceRequest(model_name="many", inputs=[number], requested_output_names=["I"])

    def pass_on(self, sender, responses):
        for response in responses:
            if response.output_tensors():
                sender.send(pb_utils.InferenceResponse(response.output_tensors()))
        sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)

    def take_turns(self, request):
        """Answer in three turns: the request comes again after each but the last."""
        self.turns += 1
        sender = request.get_response_sender()
        sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("I", np.array([self.turns], np.int32))]))
        if self.turns < 3:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        else:
            sender.send(flags=pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL)
