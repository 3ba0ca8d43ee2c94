"""A BaseHandler with its own preprocess: each request is a JSON list of three numbers, alone or as `instances`."""

import json

import torch
from ts.torch_handler.base_handler import BaseHandler


class NetHandler(BaseHandler):
    def preprocess(self, data):
        rows = []
        for row in data:
            values = row.get("data") or row.get("body")
            if isinstance(values, (bytes, bytearray)):
                values = json.loads(values)
            rows.append(values["instances"][0] if isinstance(values, dict) else values)
        return torch.tensor(rows, dtype=torch.float32, device=self.device)

    def postprocess(self, data):
        scale = self.model_yaml_config.get("handler", {}).get("scale", 1)
        names = self.mapping or {}
        answers = []
        for row in data.tolist():
            best = row.index(max(row))
            answers.append({"scores": [scale * value for value in row], "class": names.get(str(best), best)})
        return answers

    def describe_handle(self):
        return {"inputs": 3, "outputs": 2, "device": str(self.device)}
