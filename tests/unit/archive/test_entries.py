from pathlib import Path, PurePosixPath

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.archive.entries import Budget, Limits, safe_path, without_first
from shoal.errors import BadArchive

LIMITS = Limits()


@pytest.mark.parametrize(
    ("name", "path"),
    [
        ("h.py", "h.py"),
        ("a/b/c.txt", "a/b/c.txt"),
        ("./h.py", "h.py"),
        ("a//b/./c", "a/b/c"),
        ("folder/", "folder"),
        ("..hidden/a..b", "..hidden/a..b"),
        ("gewöhnlich.py", "gewöhnlich.py"),
    ],
)
def test_ordinary_names_are_kept(name: str, path: str) -> None:
    assert safe_path(name, LIMITS) == PurePosixPath(path)


@pytest.mark.parametrize("name", ["", ".", "./", "././"])
def test_a_name_may_mean_the_folder_itself(name: str) -> None:
    assert safe_path(name, LIMITS) is None


@pytest.mark.parametrize(
    ("name", "reason"),
    [
        ("../x", "leads out"),
        ("a/../../x", "leads out"),
        ("a/..", "leads out"),
        ("..", "leads out"),
        ("/etc/passwd", "absolute"),
        ("//host/x", "absolute"),
        ("C:/x", "drive"),
        ("c:", "drive"),
        ("a\\..\\x", "backslash"),
        ("..\\x", "backslash"),
        ("a\0b", "control"),
        ("a\nb", "control"),
        ("a\x7f", "control"),
        ("a" * 256, "255 bytes"),
        ("ab/" * 400, "1024 are allowed"),
        ("bad\udc80", "UTF-8"),
    ],
)
def test_a_name_that_could_reach_elsewhere_is_refused_by_name(name: str, reason: str) -> None:
    with pytest.raises(BadArchive, match=reason) as raised:
        safe_path(name, LIMITS)

    assert str(raised.value).startswith("entry '")
    assert len(str(raised.value)) < 250
    assert str(raised.value).isascii()


@given(st.text(alphabet=st.characters() | st.sampled_from("./\\:\0~"), max_size=60))
def test_whatever_the_name_what_is_written_lies_inside(name: str) -> None:
    try:
        path = safe_path(name, LIMITS)
    except BadArchive:
        return
    for inside in (path, without_first(path)):
        if inside is not None:
            target = Path("/srv/models/x") / inside
            assert target.is_relative_to("/srv/models/x") and target != Path("/srv/models/x")
            assert ".." not in target.parts and not inside.is_absolute()


@pytest.mark.parametrize(("path", "left"), [("m/h.py", "h.py"), ("m/a/b", "a/b"), ("h.py", "h.py")])
def test_the_first_folder_is_taken_off(path: str, left: str) -> None:
    assert without_first(PurePosixPath(path)) == PurePosixPath(left)


def test_entries_bytes_and_ratio_each_have_an_end() -> None:
    few = Budget(10**9, Limits(entries=2))
    few.take("a", 1)
    few.take("b", 1)
    with pytest.raises(BadArchive, match="more than 2 entries"):
        few.take("c", 1)

    small = Budget(10**9, Limits(unpacked=100))
    small.take("a", 100)
    with pytest.raises(BadArchive, match=r"'b'.*more than 100 bytes"):
        small.take("b", 1)

    dense = Budget(10, Limits(ratio=5, ratio_free=20))
    dense.take("a", 50)
    with pytest.raises(BadArchive, match="5 times its own size"):
        dense.take("b", 1)


def test_a_little_may_be_packed_as_tightly_as_it_likes() -> None:
    Budget(1, Limits(ratio=5, ratio_free=1000)).take("a", 1000)
