from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.properties import parse, read_properties, replace_variables, write
from shoal.errors import ConfigError


@pytest.mark.parametrize(
    ("text", "values"),
    [
        ("a=1", {"a": "1"}),
        ("a = 1", {"a": "1"}),
        ("a:1", {"a": "1"}),
        ("a 1", {"a": "1"}),
        ("a\t\f: 1", {"a": "1"}),
        ("  a=1 ", {"a": "1 "}),
        ("a", {"a": ""}),
        ("a=", {"a": ""}),
        ("a==b", {"a": "=b"}),
        ("a=b=c:d e", {"a": "b=c:d e"}),
        ("=1", {"": "1"}),
        ("a=1\na=2", {"a": "2"}),
        ("a=1\rb=2\r\nc=3", {"a": "1", "b": "2", "c": "3"}),
        ("#a=1\n!b=2\n   # c=3\n\n \t\nd=4", {"d": "4"}),
        ("a=x#y!z", {"a": "x#y!z"}),
        (r"a\=b=1", {"a=b": "1"}),
        (r"a\:b\ c=1", {"a:b c": "1"}),
        (r"a=\t\n\r\f\\\q\"", {"a": '\t\n\r\f\\q"'}),
        (r"a=\ x", {"a": " x"}),
        (r"a=\u0041\u00e9\u4E2d", {"a": "Aé中"}),
        (r"a=\ud83d\ude00", {"a": "😀"}),
        (r"a=\ud83d", {"a": "\ufffd"}),
        ("a=1,\\\n  2,\\\r\n\t3", {"a": "1,2,3"}),
        ("a\\\n=1", {"a": "1"}),
        ("a=1\\\\\nb=2", {"a": "1\\", "b": "2"}),
        ("a=1\\\\\\\nb=2", {"a": "1\\b=2"}),
        ("a=1\\\n#b=2", {"a": "1#b=2"}),
        ("a=1\\\n\nb=2", {"a": "1", "b": "2"}),
        ("# x\\\na=1", {"a": "1"}),
        ("a=1\\", {"a": "1"}),
        ("\\\n\\\na=1", {"a": "1"}),
        ("é=ü", {"é": "ü"}),
        ("", {}),
    ],
)
def test_text_is_read_as_java_reads_it(text: str, values: dict[str, str]) -> None:
    assert parse(text) == values


def test_a_broken_escape_names_the_file_and_the_line() -> None:
    with pytest.raises(ConfigError, match=r"c\.properties, line 3: .u must be followed by four hexadecimal digits"):
        parse("a=1\n\nb=C:\\users\n", "c.properties")


def test_a_line_that_began_earlier_is_named_by_its_beginning() -> None:
    with pytest.raises(ConfigError, match="line 2:"):
        parse("a=1\nb=x\\\n  y\\\n \\u12\n")


@given(st.dictionaries(st.text(), st.text()))
def test_what_is_written_is_read_back(values: dict[str, str]) -> None:
    assert parse(write(values)) == values
    assert write(values).isascii()


@given(st.lists(st.text()), st.dictionaries(st.text(), st.text()))
def test_comments_stay_comments(comments: list[str], values: dict[str, str]) -> None:
    assert parse(write(values, comments)) == values


@given(st.text())
def test_any_text_is_read_or_refused(text: str) -> None:
    try:
        parse(text)
    except ConfigError:
        assert "\\u" in text or "\\\n" in text or "\\\r" in text


def test_a_file_may_be_utf_8_with_a_mark_or_what_java_writes(tmp_path: Path) -> None:
    path = tmp_path / "c.properties"
    for data in ("a=é".encode(), "\ufeffa=é".encode(), "a=é".encode("latin-1")):
        path.write_bytes(data)
        assert read_properties(path) == {"a": "é"}


def test_a_file_that_is_not_there_is_named(tmp_path: Path) -> None:
    with pytest.raises(ConfigError, match=r"cannot read .*gone\.properties: No such file"):
        read_properties(tmp_path / "gone.properties")


def test_variables_are_put_in() -> None:
    values = {"a": "http://0.0.0.0:$$PORT$$", "b": "$$A$$-$$B$$", "c": "$PORT", "d": "$$"}

    replaced = replace_variables(values, {"PORT": "80", "A": "$$B$$", "B": ""})

    assert replaced == {"a": "http://0.0.0.0:80", "b": "$$B$$-", "c": "$PORT", "d": "$$"}


def test_a_variable_that_is_not_set_is_named_with_its_key() -> None:
    with pytest.raises(ConfigError, match=r"^inference_address: the environment variable PORT is not set"):
        replace_variables({"inference_address": "http://0.0.0.0:$$PORT$$"}, {"port": "80"})
