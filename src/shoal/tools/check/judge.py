"""Judge: remembers what each sample was told alone, and says of every later answer whether it is that."""

import json
from typing import Any

from shoal.tools.check.messages import Verdict
from shoal.wire.messages import Failure
from shoal.worker.batch import Answer
from shoal.worker.proof import Tolerance, alike, close

MOST = 80  # characters of a value in a message
Heard = Answer | Failure


class Judge:
    """Of one model."""

    def __init__(self, tolerance: Tolerance) -> None:
        self._tolerance = tolerance
        self._alone: dict[int, Heard] = {}

    def judge(self, sample: int, heard: Heard) -> Verdict:
        """Say what an outcome is; the first one of a sample is what the others are held against."""
        alone = self._alone.setdefault(sample, heard)
        if alone is heard:
            return Verdict("refused", heard.message) if isinstance(heard, Failure) else Verdict("answered")
        if isinstance(heard, Failure):
            return Verdict("same") if isinstance(alone, Failure) else Verdict("failed", heard.message)
        if isinstance(alone, Failure):
            return Verdict("other", "it was answered, and failed alone")
        if alike(alone, heard, self._tolerance):
            return Verdict("same")
        for other, answer in self._alone.items():
            if not isinstance(answer, Failure) and alike(answer, heard, self._tolerance):
                return Verdict("mixed", of=other)
        return Verdict("other", difference(alone, heard, self._tolerance))

    def are_told_apart(self) -> bool:
        """Whether any two samples were answered differently alone; else answers could be mixed up unseen."""
        answers = [heard for heard in self._alone.values() if not isinstance(heard, Failure)]
        return any(not alike(answers[0], answer, self._tolerance) for answer in answers[1:])


def difference(alone: Answer, together: Answer, tolerance: Tolerance) -> str:
    """Say where two answers differ."""
    before, after = bytes(alone[0]), bytes(together[0])
    if alone[1] != together[1]:
        return f"the content type is {together[1] or 'none'}, alone {alone[1] or 'none'}"
    try:
        place, one, other = _first(json.loads(before), json.loads(after), tolerance, "answer")
    except (ValueError, RecursionError):
        same = next((at for at, (a, b) in enumerate(zip(before, after, strict=False)) if a != b), None)
        where = f"the first at byte {same}" if same is not None else f"{len(after)} bytes, alone {len(before)}"
        return f"the bytes differ, {where}"
    return f"{place} is {_short(other)}, alone {_short(one)}" if place else "status, reason or headers differ"


def _first(one: Any, other: Any, tolerance: Tolerance, place: str) -> tuple[str, Any, Any]:
    """Find the first place at which two values of JSON are not the same; empty: nowhere."""
    if close(one, other, tolerance):
        return "", one, other
    if isinstance(one, dict) and isinstance(other, dict) and one.keys() == other.keys():
        pairs = [(f"{place}.{key}", value, other[key]) for key, value in one.items()]
    elif isinstance(one, list) and isinstance(other, list) and len(one) == len(other):
        pairs = [(f"{place}[{index}]", *both) for index, both in enumerate(zip(one, other, strict=True))]
    else:
        return place, one, other
    found = (_first(a, b, tolerance, name) for name, a, b in pairs)
    return next((each for each in found if each[0]), (place, one, other))


def _short(value: Any) -> str:
    text = json.dumps(value, ensure_ascii=False)
    return text if len(text) <= MOST else f"{text[: MOST - 3]}..."
