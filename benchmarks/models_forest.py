"""A model whose cost per item falls with the batch on a CPU: scikit-learn's forest, where calls are the work."""

import numpy
from sklearn.datasets import load_digits
from sklearn.ensemble import RandomForestClassifier

import shoal

SIDE = 8


class Forest(shoal.Handler):
    """A hundred trees over pictures of digits, 64 bytes each; one thread."""

    def initialize(self, context: shoal.Context) -> None:
        """Train it: it takes a second."""
        pictures, digits = load_digits(return_X_y=True)
        self.model = RandomForestClassifier(100, n_jobs=1, random_state=0).fit(pictures, digits)

    def handle(self, data: list[dict[str, bytes]], context: shoal.Context) -> list[dict[str, float]]:
        """Ask the whole batch at once."""
        rows = numpy.stack([numpy.resize(numpy.frombuffer(row["body"], numpy.uint8), SIDE * SIDE) for row in data])
        chances = self.model.predict_proba(rows)
        return [{"digit": int(row.argmax()), "chance": float(row.max())} for row in chances]
