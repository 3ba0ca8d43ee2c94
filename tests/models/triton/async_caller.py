# mypy: ignore-errors
"""A model whose execute is a coroutine and calls other models; the answer is text in OUT."""

import asyncio
import json

import numpy as np
import triton_python_backend_utils as pb_utils


def ask(value):
    tensor = pb_utils.Tensor("X", np.full((1, 2), value, np.float32))
    return pb_utils.InferenceRequest(model_name="echo", inputs=[tensor], requested_output_names=["Y"])


def count(number):
    tensor = pb_utils.Tensor("N", np.array([number], np.int32))
    return pb_utils.InferenceRequest(model_name="many", inputs=[tensor], requested_output_names=["I"])


def value(response):
    if response.has_error():
        return response.error().message()
    return [float(tensor.as_numpy().ravel()[0]) for tensor in response.output_tensors()]


class TritonPythonModel:
    async def execute(self, requests):
        return [await self.answer(request) for request in requests]

    async def answer(self, request):
        words = json.loads(request.parameters())
        found = await getattr(self, words.pop("do"))(**words)
        text = np.array([json.dumps(found).encode()], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)])

    async def gather(self, number):
        return [value(each) for each in await asyncio.gather(*(ask(n).async_exec() for n in range(number)))]

    async def decoupled(self, number):
        return [value(each) for each in await count(number).async_exec(decoupled=True)]

    async def not_decoupled(self, number):
        return value(await count(number).async_exec())

    async def waiting(self, number):
        """Give up waiting for the slow one."""
        try:
            return value(await asyncio.wait_for(count(number).async_exec(decoupled=True), 0.3))
        except TimeoutError:
            return "gave up"
