"""The words that metrics write their units with."""

WORDS: dict[str | None, str] = {
    "ms": "Milliseconds",
    "s": "Seconds",
    "percent": "Percent",
    "count": "Count",
    "MB": "Megabytes",
    "GB": "Gigabytes",
    "kB": "Kilobytes",
    "B": "Bytes",
    "": "unit",
    None: "unit",
}


class Units:
    """Short names of units to the words that are written."""

    def __init__(self) -> None:
        self.units = dict(WORDS)


def word(unit: str | None) -> str:
    """How a unit is written; one that has no word is written as it is."""
    return WORDS.get(unit, unit or "unit")
