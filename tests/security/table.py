"""The attack table: each row is an attack, its defence, and what happens to a test when the defence is taken away."""

from typing import NamedTuple

from tests.security import attacks_files, attacks_network

NETWORK = attacks_network.ROWS
FILES = attacks_files.ROWS


class Attack(NamedTuple):
    """One row. In a copy of the source, `old` in `file` is replaced by `new`; then `test` must fail."""

    section: str
    attack: str
    defence: str
    file: str  # below src/shoal
    old: str
    new: str
    test: str  # FILE::NAME below tests


def attacks() -> list[Attack]:
    """Give all rows, in the order of the sections."""
    return [Attack(section, *row) for section, rows in {**NETWORK, **FILES}.items() for row in rows]
