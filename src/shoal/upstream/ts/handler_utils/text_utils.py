"""Tokens and n-grams under the names that handlers import."""

from collections.abc import Callable, Iterator, Sequence

from shoal.upstream.ts.utils.words import basic_english
from shoal.upstream.ts.utils.words import ngrams as runs


def ngrams_iterator(token_list: Sequence[str], ngrams: int) -> Iterator[str]:
    """Give the tokens, then every run of two, of three, ... of them."""
    return runs(token_list, ngrams)


def get_tokenizer(tokenizer: str | None, language: str = "en") -> Callable[[str], list[str]]:
    """Give what cuts a line into tokens: `basic_english`, or None for plain spaces."""
    if tokenizer is None:
        return str.split
    if tokenizer != "basic_english" or language != "en":
        raise ValueError(f"only basic_english for en is provided, not {tokenizer} for {language}")
    return basic_english
