"""Batches of images padded to the configured size, bad requests answered on their own: the batching service of MMS."""

import io
import json
import logging
import os

import torch
from PIL import Image


class TorchVisionServiceBatching:
    def __init__(self):
        self.initialized = False
        self.model = None
        self.labels = None
        self.signature = None
        self._batch_size = 0
        self._num_requests = 0
        self.erroneous_reqs = set()

    def initialize(self, context):
        properties = context.system_properties
        model_dir = properties["model_dir"]
        self._batch_size = properties["batch_size"]
        with open(os.path.join(model_dir, "signature.json")) as file:
            self.signature = json.load(file)
        with open(os.path.join(model_dir, "synset.txt")) as file:
            self.labels = [line.rstrip() for line in file]
        self.model = torch.jit.load(os.path.join(model_dir, "brightness.pt")).eval()
        self.initialized = True

    def preprocess(self, request):
        img_list = []
        self.erroneous_reqs = set()
        self._num_requests = len(request)
        name = self.signature["inputs"][0]["data_name"]
        _, height, width = self.signature["inputs"][0]["data_shape"][1:]
        for idx, data in enumerate(request):
            img = data.get(name)
            if img is None:
                img = data.get("body")
            if img is None or len(img) == 0:
                logging.error("Error processing request")
                self.erroneous_reqs.add(idx)
                continue
            try:
                picture = Image.open(io.BytesIO(img)).convert("RGB").resize((width, height))
            except Exception as e:
                logging.error(e, exc_info=True)
                self.erroneous_reqs.add(idx)
                continue
            values = torch.frombuffer(bytearray(picture.tobytes()), dtype=torch.uint8)
            img_list.append(values.reshape(height, width, 3).permute(2, 0, 1).float() / 255)
        img_list += [torch.zeros(3, height, width)] * (self._batch_size - len(img_list))
        return torch.stack(img_list)

    def inference(self, model_input):
        assert len(model_input) == self._batch_size
        with torch.no_grad():
            return self.model(model_input)

    def postprocess(self, data):
        res = []
        rows = iter(data.tolist())
        for idx in range(self._num_requests):
            if idx in self.erroneous_reqs:
                res.append("This request was not processed successfully. Refer to mms.log for additional information")
                continue
            row = next(rows)
            order = sorted(range(len(row)), key=lambda index: -row[index])
            res.append([{"probability": row[index], "class": self.labels[index]} for index in order])
        return res


_service = TorchVisionServiceBatching()


def handle(data, context):
    if not _service.initialized:
        _service.initialize(context)
    if data is None:
        return None
    return _service.postprocess(_service.inference(_service.preprocess(data)))
