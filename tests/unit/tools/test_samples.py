from pathlib import Path

import pytest

from shoal.errors import InvalidInput
from shoal.tools import samples
from shoal.tools.samples import Sample, read_samples


def test_a_file_is_sent_with_the_type_of_its_name(tmp_path: Path) -> None:
    (tmp_path / "cat.jpg").write_bytes(b"jpeg")

    assert read_samples([str(tmp_path / "cat.jpg")]) == [Sample(b"jpeg", "image/jpeg", "cat.jpg")]


def test_a_folder_gives_its_files_in_order_without_hidden_ones_and_folders(tmp_path: Path) -> None:
    for name in ("b.json", "a.txt", ".hidden"):
        (tmp_path / name).write_text("1")
    (tmp_path / "more").mkdir()

    assert [(found.name, found.content_type) for found in read_samples([str(tmp_path)])] == [
        ("a.txt", "text/plain; charset=utf-8"),
        ("b.json", "application/json"),
    ]


@pytest.mark.parametrize(
    ("text", "content_type"),
    [
        ('{"x": 1}', "application/json"),
        ("[1, 2]", "application/json"),
        ('"a/b.jpg"', "application/json"),
        ("hello there", "text/plain; charset=utf-8"),
        ("hello", "text/plain; charset=utf-8"),
    ],
)
def test_text_is_json_where_it_can_be(text: str, content_type: str) -> None:
    assert read_samples([text]) == [Sample(text.encode(), content_type, "text")]


@pytest.mark.parametrize("text", ["cat.jpg", "pictures/", "/no/such/file", "./x"])
def test_a_name_that_leads_nowhere_is_not_sent_as_text(text: str) -> None:
    with pytest.raises(InvalidInput, match="no such file or folder"):
        read_samples([text])


def test_long_json_is_no_file_name() -> None:
    text = "[" + ",".join(["1"] * 5000) + "]"

    assert read_samples([text])[0].body == text.encode()


def test_a_content_type_that_is_given_wins(tmp_path: Path) -> None:
    (tmp_path / "a.json").write_text("1")

    found = read_samples([str(tmp_path), "2"], "application/x-own")

    assert {sample.content_type for sample in found} == {"application/x-own"}


def test_an_empty_folder_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="no files to send"):
        read_samples([str(tmp_path)])


def test_samples_have_a_limit_together(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(samples, "MOST_BYTES", 3)

    with pytest.raises(InvalidInput, match="4 bytes together"):
        read_samples(["12", "34"])
    assert len(read_samples(["1", "23"])) == 2


def test_an_unreadable_file_is_said_to_be_one(tmp_path: Path) -> None:
    broken = tmp_path / "loop"
    broken.symlink_to(broken)

    with pytest.raises(InvalidInput):
        read_samples([str(broken)])
