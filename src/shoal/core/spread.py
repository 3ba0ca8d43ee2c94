"""How rows are spread over several instances: pure functions of when each of them will be free.

A slot is (seconds until the instance is free, rows it runs until then); slots come soonest first.
"""

from bisect import bisect_right
from collections.abc import Iterable, Sequence
from typing import Final

Slot = tuple[float, int]

STEPS: Final = 8  # halvings in the search for the earliest common end
BUSY_PRICE: Final = 1.1  # an instance that is not free yet must be this much better
JOINERS: Final = 0.3  # share of the arrivals until an instance is free that are counted as its rows


def slots_of(running: Iterable[tuple[float, int]], idle: int, size: int, now: float) -> list[Slot]:
    """Make slots from (end, rows) of what runs; the fleet's own counts decide how many there are."""
    busy = sorted([(max(0.0, end - now), rows) for end, rows in running])[: max(0, size - idle)]
    return [(0.0, 0)] * idle + busy


def rows_for_one(table: Sequence[float], slots: Sequence[Slot], rows: int, rate: float, loop: bool) -> int:
    """Rows for the soonest instance when `rows` are split over the first j, with j of least total waiting.

    `rate` is rows a second that arrive meanwhile; in a closed loop it is the running rows that come back instead.
    """
    whole = table[min(rows, len(table) - 1)]
    best, chosen, back = float("inf"), rows, 0
    inflow = 0.0 if loop else rate
    for used, (wait, running) in enumerate(slots, 1):
        if table[1] + wait > whole:
            break
        back += running
        need = rows + (back if loop else JOINERS * inflow * wait)
        waits = [slot[0] for slot in slots[:used]]
        if not _fit_by(table, waits, need, whole):
            continue
        end = _common_end(table, waits, need, table[1] + wait, whole) if used > 1 else whole
        price = (rows * end + inflow * end * end / (2 * (len(slots) - used + 1))) * (BUSY_PRICE if wait else 1.0)
        if price < best - 1e-12:
            best, chosen = price, bisect_right(table, end) - 1
    return max(1, min(rows, chosen))


def even_wait(table: Sequence[float], slots: Sequence[Slot], idle: int, rows: int, rate: float) -> float:
    """Seconds by which to put off a batch so that the idle instances start evenly until the next one is free."""
    if not 0 < idle < len(slots) or rate <= 0.0:
        return 0.0
    wait = (slots[idle][0] - idle * rows / rate) / (idle + 1)
    if wait <= 0.0:
        return 0.0
    return wait * table[0] / table[min(len(table) - 1, int(rows + rate * wait))]  # only the fixed cost is saved


def _fit_by(table: Sequence[float], waits: Sequence[float], need: float, end: float) -> bool:
    for wait in waits:
        need -= bisect_right(table, end - wait) - 1
        if need <= 0:
            return True
    return False


def _common_end(table: Sequence[float], waits: Sequence[float], need: float, low: float, high: float) -> float:
    """The earliest moment by which instances with these waits end `need` rows together; `high` is late enough."""
    for _ in range(STEPS):
        middle = (low + high) / 2
        if _fit_by(table, waits, need, middle):
            high = middle
        else:
            low = middle
    return high
