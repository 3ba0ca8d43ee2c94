"""Text to words: cleaning, the `basic_english` way of cutting a line into tokens, n-grams, and vocabularies."""

import re
import string
import unicodedata
from collections.abc import Iterator, Sequence
from typing import Any

from shoal.upstream.ts.torch_handler.contractions import CONTRACTION_MAP
from shoal.upstream.ts.utils.util import CLEANUP_REGEX, PredictionException

UNKNOWN = "<unk>"

_CONTRACTIONS = re.compile("|".join(map(re.escape, CONTRACTION_MAP)), re.IGNORECASE)
_NO_PUNCTUATION = str.maketrans("", "", string.punctuation)
_SPACING = str.maketrans(
    {'"': None, ";": " ", ":": " ", **{mark: f" {mark} " for mark in "'.,()!?"}}
)  # marks that stand alone as tokens, marks that only separate, and the one that is dropped


def without_html(text: str) -> str:
    """The text without tags and entities."""
    return CLEANUP_REGEX.sub("", text)


def expanded(text: str) -> str:
    """The text with contractions written out; a first letter keeps its case, and no apostrophe is left."""
    whole = _CONTRACTIONS.sub(lambda found: found[0][0] + CONTRACTION_MAP[found[0].lower()][1:], text)
    return whole.replace("'", "")


def without_accents(text: str) -> str:
    """The text in ASCII: letters lose their accents, what has no such form is dropped."""
    return unicodedata.normalize("NFKD", text).encode("ascii", "ignore").decode("ascii")


def without_punctuation(text: str) -> str:
    """The text without the marks of ASCII."""
    return text.translate(_NO_PUNCTUATION)


def basic_english(line: str) -> list[str]:
    """The tokens of a line: lower case, punctuation apart."""
    return line.lower().replace("<br />", " ").translate(_SPACING).split()


def ngrams(tokens: Sequence[str], longest: int) -> Iterator[str]:
    """The tokens themselves, then every run of two, of three, ... up to `longest`, joined by spaces."""
    for length in range(1, longest + 1):
        for start in range(len(tokens) - length + 1):
            yield " ".join(tokens[start : start + length])


class Vocabulary(dict[str, int]):
    """Numbers of words; a word that is not in it counts as `<unk>`, if that is."""

    def __missing__(self, word: str) -> int:
        if UNKNOWN in self:
            return self[UNKNOWN]
        raise PredictionException(f"{word!r} is not in the vocabulary, and that has no {UNKNOWN} for such words", 503)


def vocabulary(stored: Any, file: str) -> Any:
    """What `source_vocab.pt` held as something to look words up in: a dict, a list, or an object that can itself."""
    if isinstance(stored, list | tuple):
        return Vocabulary({word: number for number, word in enumerate(stored)})
    if isinstance(stored, dict):
        return Vocabulary(stored)
    if not hasattr(stored, "__getitem__"):
        raise TypeError(
            f"{file} holds a {type(stored).__name__}; a dict of word to number, or a list of words, is right"
        )
    return stored
