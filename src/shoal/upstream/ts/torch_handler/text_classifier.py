"""TextClassifier: text in, the probability of each label out."""

from typing import Any

import torch

from shoal.upstream.ts.torch_handler.text_handler import TextHandler
from shoal.upstream.ts.utils.util import PredictionException, map_class_to_label
from shoal.upstream.ts.utils.words import ngrams

Prepared = tuple[torch.Tensor, list[str]]  # numbers of words and runs of words; the words


class TextClassifier(TextHandler):
    """For models called as `model(numbers, offsets)`; answers `{label: probability}` over all classes."""

    ngrams = 2

    def preprocess(self, data: Any) -> Any:
        """The words of a text and their numbers; a list of these for more than one row."""
        rows = [self._prepared(row, number) for number, row in enumerate(data)]
        return rows[0] if len(rows) == 1 else rows

    def _prepared(self, row: Any, number: int) -> Prepared:
        text = self.input_text = _text(row, number)
        text = self._remove_html_tags(text).lower()
        text = self._remove_accented_characters(self._expand_contractions(text))
        tokens = self._tokenize(self._remove_punctuation(text))
        numbers = [self.source_vocab[token] for token in ngrams(tokens, self.ngrams)]
        return torch.as_tensor(numbers, dtype=torch.int64, device=self.device), tokens

    def inference(self, data: Any, *args: Any, **kwargs: Any) -> Any:
        """The scores of every row. Each runs by itself: how texts share a call is for a subclass to know."""
        rows = data if isinstance(data, list) else [data]
        start = torch.as_tensor([0], device=self.device)
        return torch.cat([super(TextClassifier, self).inference(numbers, start) for numbers, _ in rows])

    def postprocess(self, data: Any) -> list[Any]:
        """The probability of each class, row by row."""
        return map_class_to_label(torch.softmax(data, dim=1).tolist(), self.mapping)

    def get_insights(self, text_preprocess: Any, _: Any, target: Any = 0) -> list[Any]:
        """What the score of one class rests on, and the words of the text."""
        if self.lig is None:
            raise TypeError("explanations need a model with a layer called `embedding`")
        rows = text_preprocess if isinstance(text_preprocess, list) else [text_preprocess]
        return [self._insight(numbers, tokens, target) for numbers, tokens in rows]

    def _insight(self, numbers: torch.Tensor, tokens: list[str], target: Any) -> dict[str, Any]:
        start = torch.as_tensor([0], device=self.device)
        attributions = self.lig.attribute(
            numbers, torch.zeros_like(numbers), target=target, additional_forward_args=start
        )
        importances = self.summarize_attributions(attributions).detach().cpu().tolist()
        return {"importances": importances, "words": self.get_word_token(tokens)}


def _text(row: Any, number: int) -> str:
    value = (row.get("data") or row.get("body")) if isinstance(row, dict) else row
    if isinstance(value, bytes | bytearray):
        try:
            value = value.decode("utf-8")
        except UnicodeDecodeError as error:
            raise PredictionException(f"row {number} of the batch is no UTF-8 text: {error}", 503) from error
    if not isinstance(value, str) or not value:
        kind = "no text" if not value else f"a {type(value).__name__}, not text"
        raise PredictionException(f"row {number} of the batch holds {kind}", 503)
    return value
