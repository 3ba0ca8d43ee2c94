"""English contractions and what they stand for, put together from the words that take each ending."""

_ENDINGS = {
    "n't": ("not", "are could did does do had has have is may might must need ought should was were would"),
    "'ve": ("have", "could i might must should so they to we what when where who why will would you"),
    "'d": ("would", "he i it she that there they we you"),
    "'ll": ("will", "he how i it she they we what who you"),
    "'s": ("is", "he how it she that there what when where who why"),
    "'re": ("are", "they we what you"),
    "'m": ("am", "i"),
}
_IRREGULAR = {
    "ain't": "is not",
    "can't": "cannot",
    "shan't": "shall not",
    "sha'n't": "shall not",
    "won't": "will not",
    "how'd": "how did",
    "where'd": "where did",
    "let's": "let us",
    "so's": "so as",
    "'cause": "because",
    "ma'am": "madam",
    "o'clock": "of the clock",
    "y'all": "you all",
}

CONTRACTION_MAP = _IRREGULAR | {
    word + ending: f"{word} {meaning}" for ending, (meaning, words) in _ENDINGS.items() for word in words.split()
}
