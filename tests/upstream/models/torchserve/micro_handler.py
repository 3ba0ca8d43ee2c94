"""The image classifier, its batches cut into micro batches as micro_batching.json says."""

import json

from ts.handler_utils.micro_batching import MicroBatching
from ts.torch_handler.image_classifier import ImageClassifier


class MicroBatchingHandler(ImageClassifier):
    def __init__(self):
        super().__init__()
        with open("micro_batching.json") as file:
            config = json.load(file)
        self.handle = MicroBatching(self, config["micro_batch_size"], config["parallelism"])
