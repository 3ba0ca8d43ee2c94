"""Cannot be loaded."""


class TritonPythonModel:
    def initialize(self, args):
        raise RuntimeError("told not to load")

    def execute(self, requests):
        return []
