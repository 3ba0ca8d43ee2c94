# mypy: ignore-errors
"""Decoupled, as a language model is served: execute takes the requests in, one thread answers all of them in turns.

Each is told the numbers below N, one each turn, once `of` requests of its `group` have come. A negative N is told -1
until its client has left, which is noted.
"""

import json
import os
import threading
import time

import numpy as np
import triton_python_backend_utils as pb_utils

FINAL = pb_utils.TRITONSERVER_RESPONSE_COMPLETE_FINAL


class TritonPythonModel:
    def initialize(self, args):
        self.notes = os.path.join(args["model_repository"], "notes")
        self.streams = []
        self.groups = {}
        self.lock = threading.Lock()
        self.note(f"pid {os.getpid()}")
        threading.Thread(target=self.run, daemon=True).start()

    def execute(self, requests):
        for request in requests:
            number = int(pb_utils.get_input_tensor_by_name(request, "N").as_numpy()[0])
            asked = json.loads(request.parameters())
            group = asked.get("group", "")
            with self.lock:
                self.groups[group] = self.groups.get(group, 0) + 1
                self.note(f"{group} {self.groups[group]}")
                self.streams.append([request.get_response_sender(), number, 0, group, asked.get("of", 0)])

    def run(self):
        while True:
            time.sleep(0.005)
            with self.lock:
                streams = [stream for stream in self.streams if self.groups[stream[3]] >= stream[4]]
            for stream in streams:
                if self.has_ended(stream):
                    with self.lock:
                        self.streams.remove(stream)

    def has_ended(self, stream):
        sender, number, turn, group, _ = stream
        if sender.is_cancelled() or turn == number:
            if sender.is_cancelled():
                self.note(f"{group} left")
            sender.send(flags=FINAL)
            return True
        sender.send(
            pb_utils.InferenceResponse([pb_utils.Tensor("I", np.array([turn if number > 0 else -1], np.int32))])
        )
        stream[2] += number > 0
        return False

    def note(self, words):
        with open(self.notes, "a") as file:
            file.write(words + "\n")
