import io
from pathlib import Path, PurePosixPath

import pytest

from shoal.archive.unpack import _write
from shoal.errors import BadArchive


@pytest.mark.parametrize(("size", "words"), [(5, "more than the 5 bytes"), (20, "has 10 bytes and says 20")])
def test_an_entry_gives_neither_more_nor_less_than_it_says(tmp_path: Path, size: int, words: str) -> None:
    with pytest.raises(BadArchive, match=words):
        _write(tmp_path, PurePosixPath("a"), io.BytesIO(b"x" * 10), size, 0o644, lambda: None)
    assert len((tmp_path / "a").read_bytes()) <= 10
