import json
import math

import pytest
from google.protobuf import json_format
from hypothesis import given
from hypothesis import strategies as st

from shoal.config import pbtxt
from shoal.triton.form import config_json, value_name


def shown(text: str) -> dict[str, object]:
    return config_json(pbtxt.parse(text, "config"))


def test_numbers_of_64_bits_are_numbers() -> None:
    settings = shown("input { dims: [ -1, 9007199254740993 ] } dynamic_batching { max_queue_delay_microseconds: 5 }")

    assert json.loads(json.dumps(settings))["input"][0]["dims"] == [-1, 9007199254740993]
    assert settings["dynamic_batching"]["max_queue_delay_microseconds"] == 5  # type: ignore[index]


def test_defaults_are_shown_and_unset_messages_are_not() -> None:
    settings = shown("")

    assert settings == {
        "name": "",
        "platform": "",
        "backend": "",
        "runtime": "",
        "max_batch_size": 0,
        "input": [],
        "output": [],
        "batch_input": [],
        "batch_output": [],
        "instance_group": [],
        "default_model_filename": "",
        "cc_model_filenames": {},
        "metric_tags": {},
        "parameters": {},
        "model_warmup": [],
    }


@pytest.mark.parametrize(("text", "value"), [("0.1", 0.1), ("0.25", 0.25), ("0.3333333", 0.3333333), ("1e-7", 1e-7)])
def test_a_float_is_shown_as_short_as_it_was_written(text: str, value: float) -> None:
    settings = shown(f"sequence_batching {{ direct {{ minimum_slot_utilization: {text} }} }}")

    assert settings["sequence_batching"]["direct"]["minimum_slot_utilization"] == value  # type: ignore[index]


@given(st.floats(-(2.0**126), 2.0**126, width=32) | st.sampled_from([math.inf, -math.inf]))
def test_what_is_shown_can_be_read_again(number: float) -> None:
    message = pbtxt.parse("", "config")
    message.sequence_batching.direct.minimum_slot_utilization = number
    message.sequence_batching.control_input.add(name="S").control.add(fp32_false_true=[0, number])
    message.parameters["k"].string_value = "v"
    message.model_metrics.metric_control.add().histogram_options.buckets.append(0.1)

    again = json_format.ParseDict(json.loads(json.dumps(config_json(message))), type(message)())
    assert again == message


def test_what_json_has_no_number_for_is_a_word() -> None:
    settings = shown("sequence_batching { control_input { control { fp32_false_true: [ nan, -inf ] } } }")

    assert '["NaN", "-Infinity"]' in json.dumps(settings)


def test_a_newer_field_is_shown_when_it_is_set() -> None:
    assert shown("ensemble_scheduling { }")["ensemble_scheduling"] == {"step": []}
    inflight = shown("ensemble_scheduling { max_inflight_requests: 3 }")
    assert inflight["ensemble_scheduling"] == {"step": [], "max_inflight_requests": 3}


def test_a_value_without_a_name_is_its_number() -> None:
    message = pbtxt.parse("input { data_type: 99 } output { data_type: TYPE_BF16 }", "config")

    assert value_name(message.input[0], "data_type") == "99"
    assert config_json(message)["input"][0]["data_type"] == 99
    assert value_name(message.output[0], "data_type") == "TYPE_BF16"
