"""Fails in `initialize`, in a class."""


class ShyService:
    def initialize(self, context):
        raise ValueError("this service cannot be initialised")

    def handle(self, data, context):
        return ["never"] * len(data)
