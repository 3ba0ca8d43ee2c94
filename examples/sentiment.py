"""Is a sentence friendly? Pure Python, in the form a real model has: load once, read one item, run a whole batch.

shoal serve examples/sentiment.py
curl -X POST http://127.0.0.1:8080/predictions/sentiment -H 'content-type: text/plain' -d 'what a lovely day'
"""

import shoal

WORDS = {"lovely": 2, "good": 1, "great": 2, "nice": 1, "bad": -1, "awful": -2, "sad": -1, "broken": -1}


class Sentiment(shoal.Handler):
    def initialize(self, context: shoal.Context) -> None:
        extra: dict[str, int] = context.parameters.get("words", {})
        self.weights = WORDS | extra

    def decode(self, item: object) -> list[str]:
        if not isinstance(item, str):
            raise shoal.InvalidInput("send text: content-type text/plain, or a JSON string")
        return item.lower().split()

    def inference(self, data: list[list[str]]) -> list[int]:
        return [sum(self.weights.get(word.strip(".,!?"), 0) for word in words) for words in data]

    def encode(self, output: int) -> dict[str, object]:
        return {"score": output, "label": "friendly" if output > 0 else "unfriendly" if output < 0 else "neutral"}
