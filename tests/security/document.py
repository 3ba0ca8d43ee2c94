"""The attack table as docs/security.md has it."""

from itertools import groupby
from pathlib import Path

from tests.security.table import attacks

DOCUMENT = Path(__file__).parents[2] / "docs" / "security.md"
BEGIN, END = "<!-- attacks: written by python -m tests.security --write -->\n", "<!-- end of attacks -->\n"


def rendered() -> str:
    """Write the table."""
    lines = []
    for section, rows in groupby(attacks(), lambda attack: attack.section):
        lines += [f"### {section}", "", "| attack | defence | where | test |", "|---|---|---|---|"]
        for row in rows:
            file, name = row.test.split("::")
            where = f"[`{row.file}`](../src/shoal/{row.file})"
            lines.append(f"| {row.attack} | {row.defence} | {where} | [`{name}`](../tests/{file}) |")
        lines.append("")
    return "\n".join(lines)


def parts() -> tuple[str, str, str]:
    """Cut the document into what is before the table, the table, and what is after it."""
    before, _, rest = DOCUMENT.read_text().partition(BEGIN)
    table, _, after = rest.partition(END)
    return before, table, after


def write() -> None:
    """Put the table into the document."""
    before, _, after = parts()
    DOCUMENT.write_text(f"{before}{BEGIN}\n{rendered()}\n{END}{after}")
