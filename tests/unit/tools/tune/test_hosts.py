"""How a setting reaches a server: a settings file, or a config.pbtxt."""

import json
from pathlib import Path

import pytest

from shoal.config import pbtxt
from shoal.errors import ConfigError, InvalidInput
from shoal.tools.tune.hosts import Native, Triton, triton_model
from shoal.tools.tune.setting import Setting
from shoal.tools.tune.space import Space

CONFIG = 'backend: "identity"\nmax_batch_size: 32\n'
DYNAMIC = (
    "dynamic_batching { preferred_batch_size: [ 8 ] max_queue_delay_microseconds: 2000 preserve_ordering: true }\n"
)


def model(folder: Path, config: str = CONFIG) -> Path:
    (folder / "repository" / "m" / "1").mkdir(parents=True)
    (folder / "repository" / "m" / "1" / "model.bin").write_text("weights")
    (folder / "repository" / "m" / "config.pbtxt").write_text(config)
    return folder / "repository" / "m"


def test_a_model_is_served_by_a_settings_file_with_the_setting_over_what_was_said(tmp_path: Path) -> None:
    host = Native("m", {"page": True, "port": 99}, {"path": "m.py", "workers": 7}, Setting())

    command = host.arguments(Setting(limit=8, delay=5.0, workers=2), tmp_path)
    file = json.loads((tmp_path / "settings.json").read_text())

    assert command == ["serve", "--config", str(tmp_path / "settings.json")]
    assert (file["page"], file["port"]) == (True, 0)
    assert (file["models"]["m"]["path"], file["models"]["m"]["workers"]) == ("m.py", 2)
    assert file["models"]["m"]["batching"] == {"policy": "fixed", "batch_size": 8, "max_batch_delay": 5.0}


def test_a_default_that_nobody_spoke_of_stays_unsaid(tmp_path: Path) -> None:
    Native("m", {}, {"path": "m.py"}, Setting()).arguments(Setting(), tmp_path)
    unsaid = json.loads((tmp_path / "settings.json").read_text())["models"]["m"]
    Native("m", {}, {"path": "m.py", "batching": {"batch_size": 4}}, Setting()).arguments(Setting(), tmp_path)
    said = json.loads((tmp_path / "settings.json").read_text())["models"]["m"]

    assert "batching" not in unsaid
    assert said["batching"]["policy"] == "adaptive"


def test_where_a_server_is_shows_in_what_it_says() -> None:
    host = Native("m", {}, {}, Setting())

    assert host.address("inference   http://127.0.0.1:5\n") is None
    found = host.address("inference   http://127.0.0.1:5\nmanagement  http://127.0.0.1:6\n")
    assert found is not None
    assert (found.inference, found.management) == ("http://127.0.0.1:5", "http://127.0.0.1:6")


def test_tritons_lines_are_read_once_it_listens_everywhere(tmp_path: Path) -> None:
    host = Triton(model(tmp_path))
    line = "I Started HTTPService at 127.0.0.1:5\n"

    assert host.address(line) is None
    found = host.address(f"{line}I Started Metrics Service at 127.0.0.1:6\n")
    assert found is not None and found.inference == "http://127.0.0.1:5"


@pytest.mark.parametrize(
    ("config", "default"),
    [
        (CONFIG, Setting(limit=1, delay=0.0)),
        (CONFIG + DYNAMIC, Setting(limit=32, delay=2.0)),
        (CONFIG + "dynamic_batching { }\ninstance_group [ { count: 2 }, { count: 1 } ]\n", Setting(32, 0.0, workers=3)),
        ('backend: "identity"\n', Setting(limit=1, delay=0.0)),
    ],
)
def test_what_a_triton_model_is_served_with_now_is_read(tmp_path: Path, config: str, default: Setting) -> None:
    assert Triton(model(tmp_path, config)).default == default


def test_a_triton_model_is_served_by_links_and_other_settings(tmp_path: Path) -> None:
    host = Triton(model(tmp_path, CONFIG + DYNAMIC + "instance_group [ { kind: KIND_CPU count: 4 } ]\n"))
    (tmp_path / "repository" / "beside").mkdir()
    (tmp_path / "copy").mkdir()

    command = host.arguments(Setting(limit=16, delay=5.0, workers=2), tmp_path / "copy")
    message = pbtxt.read(tmp_path / "copy" / "m" / "config.pbtxt")

    assert f"--model-repository={tmp_path / 'copy'}" in command and "--load-model=m" in command
    assert (tmp_path / "copy" / "m" / "1" / "model.bin").read_text() == "weights"
    assert (tmp_path / "copy" / "beside").is_dir()
    assert message.max_batch_size == 16
    assert message.dynamic_batching.max_queue_delay_microseconds == 5000
    assert message.dynamic_batching.preserve_ordering
    assert list(message.dynamic_batching.preferred_batch_size) == []
    assert [group.count for group in message.instance_group] == [2]
    assert "max_batch_size: 32" in (tmp_path / "repository" / "m" / "config.pbtxt").read_text()


def test_one_at_a_time_has_no_dynamic_batching(tmp_path: Path) -> None:
    host = Triton(model(tmp_path, CONFIG + DYNAMIC))
    (tmp_path / "copy").mkdir()
    host.arguments(Setting(limit=1, delay=0.0), tmp_path / "copy")
    message = pbtxt.read(tmp_path / "copy" / "m" / "config.pbtxt")

    assert not message.HasField("dynamic_batching")
    assert message.max_batch_size == 32


def test_only_batches_that_the_model_takes_are_tried(tmp_path: Path) -> None:
    grid = list(Triton(model(tmp_path)).space(Space(limits=(1, 8, 64), delays=(5.0,), workers=(1, 2))).grid())

    assert {each.limit for each in grid} == {1, 8, 32}
    assert {each.delay for each in grid} == {0.0, 5.0}
    assert {(each.instances, each.micro) for each in grid} == {(1, 0)}


def test_no_race_of_a_triton_model_is_adaptive(tmp_path: Path) -> None:
    host = Triton(model(tmp_path))
    space = host.space(Space())

    assert all(each.delay is not None for group in space.groups(host.default) for each in group)


def test_what_has_no_limit_to_tune_is_refused(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="sequences and ensembles"):
        Triton(model(tmp_path, CONFIG + "sequence_batching { }\n"))


def test_triton_models_are_told_from_others(tmp_path: Path) -> None:
    folder = model(tmp_path)
    (tmp_path / "empty").mkdir()
    (tmp_path / "empty" / "config.pbtxt").touch()

    assert triton_model(folder) == triton_model(folder / "config.pbtxt") == folder.resolve()
    assert triton_model(tmp_path) is None
    with pytest.raises(ConfigError, match="no folder of a version"):
        triton_model(tmp_path / "empty")


def test_each_kind_of_model_has_its_own_files(tmp_path: Path) -> None:
    setting = Setting(limit=8, delay=5.0)

    assert list(Native("m", {}, {}, Setting()).files(setting)) == ["settings.toml", "model-config.yaml"]
    assert list(Triton(model(tmp_path)).files(setting)) == ["config.pbtxt"]
