"""Java's .properties: read, written, and `$$NAME$$` in values replaced from the environment."""

import re
from collections.abc import Iterable, Iterator, Mapping
from pathlib import Path

from shoal.errors import ConfigError

LINE_END = re.compile(r"\r\n|\r|\n")
BLANK = " \t\f"
PAIR = re.compile(rf"((?:[^\\=:{BLANK}]|\\.)*)[{BLANK}]*[=:]?[{BLANK}]*(.*)", re.DOTALL)
ESCAPE = re.compile(r"\\(u[0-9a-fA-F]{4}|u|.)", re.DOTALL)
VARIABLE = re.compile(r"\$\$([^$]+)\$\$")
LETTERS = {"t": "\t", "n": "\n", "r": "\r", "f": "\f"}
ESCAPED = {character: f"\\{letter}" for letter, character in LETTERS.items()} | {c: f"\\{c}" for c in "\\=:#!"}


def read_properties(path: Path | str) -> dict[str, str]:
    """Read a file of properties."""
    try:
        data = Path(path).read_bytes()
    except OSError as error:
        raise ConfigError(f"cannot read {path}: {error.strerror}") from None
    try:
        text = data.decode("utf-8-sig")
    except UnicodeDecodeError:
        text = data.decode("latin-1")  # what Java takes these files for
    return parse(text, str(path))


def parse(text: str, where: str = "properties") -> dict[str, str]:
    """Read properties from text; where a key comes twice the last one holds."""
    values = {}
    for number, line in _logical_lines(text):
        found = PAIR.fullmatch(line)
        assert found is not None  # the pattern takes any line
        key, value = (_unescape(part, f"{where}, line {number}") for part in found.groups())
        values[key] = value
    return values


def write(values: Mapping[str, str], comments: Iterable[str] = ()) -> str:
    """Give the text of a file that reads back as `values`."""
    lines = [f"#{_ascii(LINE_END.sub(' ', comment))}" for comment in comments]
    for key, value in values.items():
        name = "".join("\\ " if c == " " else ESCAPED.get(c, c) for c in key)
        text = "".join(ESCAPED.get(c, c) for c in value)
        lines.append(_ascii(f"{name}=" + (f"\\{text}" if text.startswith(" ") else text)))
    return "\n".join(lines) + "\n"


def replace_variables(values: Mapping[str, str], environment: Mapping[str, str]) -> dict[str, str]:
    """Put variables of the environment where `$$NAME$$` stands; one that is not set is refused."""

    def replaced(key: str, value: str) -> str:
        for name in VARIABLE.findall(value):
            if name not in environment:
                raise ConfigError(f"{key}: the environment variable {name} is not set, but {value!r} needs it")
        return VARIABLE.sub(lambda found: environment[found[1]], value)

    return {key: replaced(key, value) for key, value in values.items()}


def _logical_lines(text: str) -> Iterator[tuple[int, str]]:
    """Join lines that end in an odd number of backslashes with the next; comments and empty lines are left out."""
    held, first = "", 0
    for number, raw in enumerate(LINE_END.split(text), 1):
        line = raw.lstrip(BLANK)
        if not first and (not line or line[0] in "#!"):
            continue
        first = first or number
        if (len(line) - len(line.rstrip("\\"))) % 2:
            held += line[:-1]
            continue
        yield first, held + line
        held, first = "", 0
    if first:
        yield first, held


def _unescape(text: str, where: str) -> str:
    def meant(found: re.Match[str]) -> str:
        code = found[1]
        if code == "u":
            raise ConfigError(rf"{where}: \u must be followed by four hexadecimal digits; write \\ for a backslash")
        return chr(int(code[1:], 16)) if len(code) == 5 else LETTERS.get(code, code)

    plain = ESCAPE.sub(meant, text)
    if plain.isascii():
        return plain
    return plain.encode("utf-16", "surrogatepass").decode("utf-16", "replace")  # two escapes may make one character


def _ascii(text: str) -> str:
    r"""Write as \uXXXX what is not printable ASCII."""
    return "".join(c if c.isascii() and c.isprintable() else _units(c) for c in text)


def _units(character: str) -> str:
    units = character.encode("utf-16-be", "surrogatepass")
    return "".join(rf"\u{units[i : i + 2].hex()}" for i in range(0, len(units), 2))
