import tomllib

import pytest
import yaml
from hypothesis import given
from hypothesis import strategies as st

from shoal.config import pbtxt
from shoal.config.load import model_config
from shoal.config.registration import usable
from shoal.tools.tune.setting import KNOBS, Setting, knob_label, setting_of, to_pbtxt, to_toml, to_yaml, values_of
from shoal.tools.tune.space import Space

SETTINGS = st.sampled_from(list(Space(limits=(1, 8, 64), delays=(0.5, 5.0)).grid()))


@given(SETTINGS)
def test_a_setting_is_what_a_model_can_be_told(setting: Setting) -> None:
    config = model_config({"name": "m", "path": "m.py", **values_of(setting)}, "models.m")

    assert (config.workers, config.instances) == (setting.workers, setting.instances)
    assert config.batching.rule == ("adaptive" if setting.delay is None else "fixed")
    assert config.batching.batch_size == setting.limit


@given(SETTINGS)
def test_what_is_written_as_toml_is_read_as_the_same_setting(setting: Setting) -> None:
    file = tomllib.loads(to_toml(setting, "m"))
    model_config({"name": "m", "path": "m.py", **file["models"]["m"]}, "models.m")

    assert setting_of(file["models"]["m"]) == setting


@given(SETTINGS)
def test_what_is_written_as_yaml_has_an_effect(setting: Setting) -> None:
    notes: list[str] = []
    found = usable(yaml.safe_load(to_yaml(setting)), notes)

    assert notes == []
    assert found["minWorkers"] == found["maxWorkers"] == setting.workers * setting.instances
    assert ("batchSize" in found) is (setting.delay is not None)


@given(SETTINGS)
def test_what_is_written_as_pbtxt_is_understood(setting: Setting) -> None:
    message = pbtxt.parse(to_pbtxt(setting), "config.pbtxt")

    assert message.instance_group[0].count == setting.workers * setting.instances
    assert message.HasField("dynamic_batching") is (setting.limit != 1)
    assert message.dynamic_batching.max_queue_delay_microseconds == round(1000 * (setting.delay or 0))


def test_a_name_with_a_dot_is_quoted() -> None:
    assert tomllib.loads(to_toml(Setting(workers=2), "a.b"))["models"]["a.b"]["workers"] == 2


@pytest.mark.parametrize(
    ("values", "setting"),
    [
        ({}, Setting()),
        ({"batching": {"policy": "single"}}, Setting(limit=1, delay=0.0)),
        ({"batching": {"batch_size": 8}}, Setting(limit=8, delay=100.0)),
        ({"batching": {"policy": "fixed"}}, Setting(limit=256, delay=100.0)),
        ({"batching": {"policy": "adaptive", "batch_size": 8}, "workers": 3}, Setting(limit=8, workers=3)),
    ],
)
def test_what_a_file_says_is_read(values: dict[str, object], setting: Setting) -> None:
    assert setting_of(values) == setting


@given(SETTINGS, SETTINGS)
def test_taking_every_knob_of_another_makes_it_that_other(one: Setting, other: Setting) -> None:
    for knob in KNOBS:
        one = one.with_knob(knob, other)
        assert one.has_knob(knob, other)
        assert knob_label(one, knob) == knob_label(other, knob)

    assert one == other


def test_a_setting_says_what_it_is() -> None:
    setting = Setting(limit=16, delay=5.0, workers=2, instances=2, micro=4, threads=(2, 1, 2))

    assert setting.label == (
        "batches of 16 within 5 ms, 2 workers, 2 instances each, micro-batches of 4, stage threads 2-1-2"
    )
    assert Setting().label == "adaptive, 1 worker"
