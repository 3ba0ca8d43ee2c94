"""Classification: the best elements of an output as text, instead of the output."""

from collections.abc import Sequence
from heapq import nlargest
from math import prod

from shoal.answer import Head
from shoal.errors import InvalidInput
from shoal.frontend.kserve.values import CODES, to_list
from shoal.tensor import pack_strings

MOST_ELEMENTS = 1_000_000


def classify(head: Head, data: memoryview, most: int, labels: Sequence[str], *, has_rows: bool) -> tuple[Head, bytes]:
    """Give the `most` largest elements of each row, largest first, as `value:index` or `value:index:label`."""
    if head.datatype not in CODES:
        raise InvalidInput(
            f"class result not available for output due to unsupported type '{head.datatype}' of '{head.name}'"
        )
    count = prod(head.shape)
    if count > MOST_ELEMENTS:
        raise InvalidInput(
            f"output '{head.name}' has {count} elements; of more than {MOST_ELEMENTS} none are classified"
        )
    rows = head.shape[0] if has_rows and head.shape else 1
    each = count // rows if rows else 0
    kept = min(most, each)
    values = to_list(head.datatype, data)
    form = "{:f}" if head.datatype.startswith("FP") else "{}"
    found: list[bytes] = []
    for start in range(0, rows * each, each or 1):
        row = values[start : start + each]
        for index in nlargest(kept, range(each), key=row.__getitem__):
            label = f":{labels[index]}" if index < len(labels) else ""
            found.append(f"{form.format(row[index])}:{index}{label}".encode())
    packed = pack_strings(found)
    return Head(head.name, "BYTES", [rows, kept] if has_rows else [kept], len(packed)), packed
