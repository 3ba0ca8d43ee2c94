# mypy: ignore-errors
"""Does what a request's parameter `do` says, by calling other models; the answer is text in OUT."""

import asyncio
import json
import os
import threading
import time
from concurrent.futures import ThreadPoolExecutor

import numpy as np
import triton_python_backend_utils as pb_utils


def ask(model="echo", value=1.0, outputs=("Y",), shape=(1, 2), **more):
    tensor = pb_utils.Tensor("X", np.full(shape, value, np.float32))
    return pb_utils.InferenceRequest(model_name=model, inputs=[tensor], requested_output_names=list(outputs), **more)


def count(number):
    tensor = pb_utils.Tensor("N", np.array([number], np.int32))
    return pb_utils.InferenceRequest(model_name="many", inputs=[tensor], requested_output_names=["I"])


def others(name, do, /, **more):
    """Have another caller do something."""
    tensor = pb_utils.Tensor("IN", np.array([b""], np.object_))
    made = pb_utils.InferenceRequest(
        model_name=name, inputs=[tensor], requested_output_names=["OUT"], parameters={"do": do, **more}
    )
    response = made.exec()
    return told(response) if response.has_error() else json.loads(response.output_tensors()[0].as_numpy()[0])


def told(response):
    """What a response says, as text can."""
    if response.has_error():
        return {"error": response.error().message(), "code": response.error().code().name}
    return {tensor.name(): tensor.as_numpy().tolist() for tensor in response.output_tensors()}


def attempt(what):
    try:
        return what()
    except Exception as error:
        return f"{type(error).__name__}: {error}"


class TritonPythonModel:
    def initialize(self, args):
        self.name = args["model_name"]
        self.notes = os.path.join(args["model_repository"], "notes")
        self.seen = {}
        self.at_start = [attempt(lambda: told(ask().exec())), attempt(lambda: pb_utils.is_model_ready("echo"))]
        if self.name == "loader":
            self.at_start += [
                attempt(lambda: pb_utils.load_model("spare")),
                attempt(lambda: pb_utils.load_model("loader")),
            ]

    def execute(self, requests):
        return [self.answer(request) for request in requests]

    def finalize(self):
        print("finalised:", attempt(lambda: pb_utils.is_model_ready("echo")), flush=True)

    def answer(self, request):
        words = json.loads(request.parameters())
        found = getattr(self, words.pop("do"))(request, **words)
        if found is None:
            return None
        text = np.array([json.dumps(found, default=str).encode()], np.object_)
        return pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)])

    def plain(self, request, model="echo", value=1.0, **more):
        return told(ask(model, value, **more).exec())

    def whole(self, request):
        return told(
            ask(
                outputs=[], request_id="r", correlation_id=7, flags=3, timeout=90_000_000, trace=request.trace(),
                preferred_memory=pb_utils.PreferredMemory(pb_utils.TRITONSERVER_MEMORY_CPU),
                parameters={"a": 1, "b": "x", "c": True},
            ).exec()
        )  # fmt: skip

    def large(self, request, rows=400_000):
        response = ask("wide", 3.0, shape=(rows,)).exec()
        (output,) = response.output_tensors()
        array = output.as_numpy()
        array += 1  # it is the model's own
        return [list(array.shape), float(array.min()), float(array.max())]

    def strings(self, request):
        tensor = pb_utils.Tensor("X", np.array([b"", "é", b"\xff"], np.object_))
        made = pb_utils.InferenceRequest(model_name="texts", inputs=[tensor], requested_output_names=["Y"])
        return [value.hex() for value in made.exec().output_tensors()[0].as_numpy()]

    def wrong(self, request, rows=1, columns=2, output="Y"):
        return told(ask(shape=(rows, columns), outputs=[output]).exec())

    def decoupled(self, request, number, is_many=True):
        found = count(number).exec(decoupled=is_many)
        return [told(response) for response in found] if is_many else told(found)

    def twice(self, request):
        responses = count(2).exec(decoupled=True)
        first = told(next(responses))
        return [first, [told(each) for each in responses], [told(each) for each in responses]]

    def one_of_many(self, request):
        return [told(response) for response in ask().exec(decoupled=True)]

    def cancel(self, request, number):
        responses = count(number).exec(decoupled=True)
        next(responses)
        responses.cancel()
        return [told(response) for response in responses][-1]

    def threads(self, request, number):
        with ThreadPoolExecutor(number) as pool:
            return list(pool.map(lambda value: told(ask(value=float(value)).exec())["Y"][0][0], range(number)))

    def no_loop(self, request):
        return attempt(lambda: ask().async_exec())

    def loop(self, request):
        async def run():
            return told(await ask().async_exec())

        return asyncio.run(run())

    def ready(self, request, model, version=""):
        return attempt(lambda: pb_utils.is_model_ready(model, version))

    def load(self, request, model, config="", file=""):
        files = {"file:1/model.py": file.encode()} if file else None
        return attempt(lambda: pb_utils.load_model(model, config, files)) or "loaded"

    def unload(self, request, model):
        return attempt(lambda: pb_utils.unload_model(model)) or "unloaded"

    def started(self, request):
        return self.at_start

    def again(self, request, times):
        seen = self.seen[request.request_id()] = self.seen.get(request.request_id(), 0) + 1
        if seen < times:
            request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
            return None
        return seen

    def again_and_answer(self, request):
        request.set_release_flags(pb_utils.TRITONSERVER_REQUEST_RELEASE_RESCHEDULE)
        return "both"

    def itself(self, request, model):
        return others(model, "plain")

    def around(self, request, model, back):
        return others(model, "itself", model=back)

    def nap(self, request, seconds):
        with open(self.notes, "a") as file:
            file.write("napping\n")
        time.sleep(seconds)
        return "rested"

    def process(self, request):
        return os.getpid()

    def from_a_thread(self, request):
        """Called by a thread that nobody waits for in execute: the instance is free meanwhile."""
        sender = request.get_response_sender()

        def run():
            text = np.array([json.dumps(told(ask().exec())).encode()], np.object_)
            sender.send(pb_utils.InferenceResponse([pb_utils.Tensor("OUT", text)]), flags=1)

        threading.Thread(target=run).start()
