"""Counts per sequence: a stateful model with one worker."""

import json


class Counter:
    def initialize(self, context):
        self.sums = {}

    def handle(self, data, context):
        answers = []
        for index, row in enumerate(data):
            name = context.get_sequence_id(index)
            value = row.get("data") or row.get("body")
            if isinstance(value, (bytes, bytearray)):
                value = json.loads(bytes(value))
            self.sums[name] = self.sums.get(name, 0) + value
            answers.append({"sequence": name[:7], "sum": self.sums[name], "batch": len(data)})
        return answers
