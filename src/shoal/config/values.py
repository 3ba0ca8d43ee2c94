"""Values: properties of another server read as what they mean, with a note for each that means nothing here."""

import math
from collections.abc import Collection, Mapping

from shoal.errors import ConfigError


class Values:
    """Typed reading of text by key. An empty value counts as not set, as does a key that is not there."""

    def __init__(self, values: Mapping[str, str]) -> None:
        self.values = {key: value.strip() for key, value in values.items()}
        self.notes: list[str] = []
        self._asked: set[str] = set()

    def text(self, key: str, default: str = "") -> str:
        """Give a value as it is written."""
        self._asked.add(key)
        return self.values.get(key) or default

    def whole(self, key: str, default: int, least: int = 0) -> int:
        """Give a whole number that is not below `least`."""
        text = self.text(key)
        if not text:
            return default
        try:
            number = int(text)
        except ValueError:
            raise ConfigError(f"{key} must be a whole number, got {text!r}") from None
        if number < least:
            raise ConfigError(f"{key} must be {least} or more, got {number}")
        return number

    def number(self, key: str, default: float, above: float = 0.0) -> float:
        """Give a number above `above`."""
        text = self.text(key)
        if not text:
            return default
        try:
            number = float(text)
        except ValueError:
            raise ConfigError(f"{key} must be a number, got {text!r}") from None
        if not above < number < math.inf:
            raise ConfigError(f"{key} must be above {above:g}, got {text}")
        return number

    def switch(self, key: str, default: bool) -> bool:
        """Give true or false: upstream takes every word but `true` for false, so that is kept, and said."""
        text = self.text(key).lower()
        if text not in ("", "true", "false"):
            self.notes.append(f"{key}={self.values[key]} counts as false, as it always did; only true switches it on")
        return text == "true" if text else default

    def words(self, key: str, default: str = "") -> list[str]:
        """Give what stands between commas."""
        return [word.strip() for word in self.text(key, default).split(",") if word.strip()]

    def choice(self, key: str, default: str, choices: Collection[str]) -> str:
        """Give one of a few words, whatever their case."""
        text = self.text(key, default).lower()
        if text not in (*choices, default):
            raise ConfigError(f"{key} must be one of {', '.join(choices)}, got {text!r}")
        return text

    def without_effect(self, reasons: Mapping[str, str]) -> None:
        """Note the keys that are set and mean nothing here, each with its reason."""
        self._asked.update(reasons)
        self.notes += [f"{key} has no effect: {why}" for key, why in reasons.items() if self.values.get(key)]

    def note_unknown(self, server: str, silent: Collection[str] = ()) -> None:
        """Note the keys that nobody asked for, except `silent` ones, which that server writes for itself."""
        unknown = sorted(key for key in self.values if key not in self._asked and key not in silent)
        self.notes += [f"{key} is not used: {server} has no such setting" for key in unknown]
