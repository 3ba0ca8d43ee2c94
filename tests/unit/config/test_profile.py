import json
import logging
from pathlib import Path

import pytest

from shoal.config.profile import beside, kept_costs


def test_a_profile_lies_in_a_models_folder_or_next_to_its_file(tmp_path: Path) -> None:
    assert beside(tmp_path) == tmp_path / "profile.json"
    assert beside(tmp_path / "cats.py") == tmp_path / "cats.profile.json"
    assert beside(tmp_path / "cats.tar.gz") == tmp_path / "cats.profile.json"


def test_costs_are_read_and_the_rest_is_left_to_people(tmp_path: Path) -> None:
    rows = [{"size": 1, "total": 0.002, "memory": 5}, {"size": 8, "total": 0.004}, {"size": 0, "total": 1}]
    (tmp_path / "profile.json").write_text(json.dumps({"model": "cats", "rows": rows}))

    assert kept_costs(tmp_path) == {1: 0.002, 8: 0.004}


def test_a_model_without_a_profile_has_none(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    assert kept_costs(tmp_path / "cats.py") == {}
    assert not caplog.records


@pytest.mark.parametrize("text", ["", "[]", '{"rows": [{"size": "one"}]}', "{" * 5_000_000])
def test_what_is_no_profile_is_left_aside_with_a_word(
    text: str, tmp_path: Path, caplog: pytest.LogCaptureFixture
) -> None:
    (tmp_path / "cats.profile.json").write_text(text)

    with caplog.at_level(logging.WARNING, "shoal.config"):
        assert kept_costs(tmp_path / "cats.py") == {}
    assert "cats.profile.json is left aside" in caplog.text
