import shoal


class Bees(shoal.Handler):
    def initialize(self, context):
        self.labels = ["bee", "ant"]

    def infer(self, batch):
        return [self.labels[0] for _ in batch]
