"""TextHandler: what handlers of text share: cleaning, tokens and the vocabulary of the archive."""

import os
from typing import Any

import torch
from torch import Tensor

from shoal.upstream.ts.torch_handler.base_handler import BaseHandler
from shoal.upstream.ts.utils import words
from shoal.upstream.ts.utils.attribution import layer_integrated_gradients
from shoal.upstream.ts.utils.weights import load_weights


class TextHandler(BaseHandler):
    """Loads a model and `source_vocab.pt`: a dict of word to number, a list of words, or a torchtext vocabulary."""

    source_vocab: Any = None
    tokenizer: Any = staticmethod(words.basic_english)
    input_text: Any = None
    lig: Any = None

    def __init__(self) -> None:
        super().__init__()
        self.source_vocab = None
        self.tokenizer = words.basic_english
        self.input_text = None
        self.lig = None
        self.initialized = None

    def initialize(self, context: Any) -> None:
        """Load the model, then the vocabulary."""
        super().initialize(context)
        self.initialized = False
        path = self.get_source_vocab_path(context)
        self.source_vocab = words.vocabulary(load_weights(path), os.path.basename(path))
        if hasattr(self.model, "embedding"):
            self.lig = layer_integrated_gradients(self.model, self.model.embedding)
        self.initialized = True

    def get_source_vocab_path(self, ctx: Any) -> str:
        """Where the vocabulary lies: the manifest's `sourceVocab`, or source_vocab.pt, in the model's folder."""
        described = (ctx.manifest or {}).get("model") or {}
        name = os.path.basename(described.get("sourceVocab") or "source_vocab.pt")
        path = os.path.join(ctx.system_properties.get("model_dir"), name)
        if not os.path.isfile(path):
            raise FileNotFoundError(f"Missing the source_vocab file: the archive has no {name}")
        return path

    def _remove_html_tags(self, text: str) -> str:
        return words.without_html(text)

    def _expand_contractions(self, text: str) -> str:
        return words.expanded(text)

    def _remove_accented_characters(self, text: str) -> str:
        return words.without_accents(text)

    def _remove_punctuation(self, text: str) -> str:
        return words.without_punctuation(text)

    def _remove_puncutation(self, text: str) -> str:  # the older spelling, which handlers still call
        return self._remove_punctuation(text)

    def _tokenize(self, text: str) -> list[str]:
        return self.tokenizer(text)  # type: ignore[no-any-return]

    def get_word_token(self, input_tokens: list[str]) -> list[str]:
        """Tokens as words: without the mark that byte-pair tokenizers put for a space."""
        return [token.replace("\u0120", "") for token in input_tokens]

    def summarize_attributions(self, attributions: Tensor) -> Tensor:
        """Attributions made comparable: as shares of one, then brought to length one over the words."""
        shares = torch.softmax(attributions, dim=0 if attributions.ndim in (1, 3) else 1)
        length: Tensor = shares.sum(dim=-1).norm()
        return shares / length
