from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config import pbtxt
from shoal.config.proto import generate, model_config_pb2
from shoal.errors import ConfigError

EXAMPLE = """
# text recognition
name: "text_recognition"
platform: 'onnxruntime_onnx', max_batch_size: 8;
input [ { name: "input.1" data_type: TYPE_FP32 dims: [ 1, 32, 100 ] } ]
output { name: "308" data_type: TYPE_FP32 dims: 26 dims: 37 }
instance_group [ { count: 2 kind: KIND_CPU } ]
dynamic_batching { }
parameters { key: "intra_op_thread_count" value: { string_value: "1" } }
"""


def test_settings_are_read_from_text() -> None:
    message = pbtxt.parse(EXAMPLE, "config.pbtxt")

    assert (message.name, message.max_batch_size) == ("text_recognition", 8)
    assert list(message.output[0].dims) == [26, 37]
    assert message.WhichOneof("scheduling_choice") == "dynamic_batching"
    assert message.parameters["intra_op_thread_count"].string_value == "1"


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('name: "m"\nmax_batchsize: 2', "m.pbtxt:2:1: unknown field 'max_batchsize'; did you mean 'max_batch_size'?"),
        (
            "input { data_typ: TYPE_FP32 }",
            "m.pbtxt:1:9: unknown field 'data_typ' of ModelInput; did you mean 'data_type'?",
        ),
        ("input { data_type: TYPE_FLOAT }", "m.pbtxt:1:20: unknown value TYPE_FLOAT; it is one of: TYPE_INVALID, "),
        ("instance_group { kind: KIND_TPU }", "it is one of: KIND_AUTO, KIND_GPU, KIND_CPU, KIND_MODEL"),
        ("max_batch_size: 'x'", "m.pbtxt:1:17: Couldn't parse integer: 'x' (at field 'max_batch_size')"),
        ("max_batch_size: 99999999999", "Value out of range: 99999999999 (at field 'max_batch_size')"),
        ("input { dims: [ 1, 'a' ] }", "(at field 'dims')"),
        ("dynamic_batching {", 'Expected "}"'),
        ("dynamic_batching { } sequence_batching { }", '"sequence_batching" is specified along with'),
        ('name: "a" name: "b"', 'should not have multiple "name" fields'),
        ("zzzzzz: 1", "unknown field 'zzzzzz'; known are: name, platform, backend, "),
    ],
)
def test_what_is_wrong_is_told_with_its_place(text: str, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        pbtxt.parse(text, "m.pbtxt")

    assert told in str(raised.value)
    assert str(raised.value).startswith("m.pbtxt:")


@given(st.text())
def test_no_text_is_more_than_wrong(text: str) -> None:
    for read in (pbtxt.parse, pbtxt.parse_json):
        try:
            read(text, "config")
        except ConfigError as error:
            assert str(error).startswith("config")


def test_numbers_may_be_texts_in_json_and_names_of_either_case() -> None:
    message = pbtxt.parse_json(
        b'{"max_batch_size": "16", "versionPolicy": {"specific": {"versions": ["3"]}}}', "config"
    )

    assert message.max_batch_size == 16
    assert list(message.version_policy.specific.versions) == [3]


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ('{"max_batch_sze": 1}', "unknown field 'max_batch_sze'; did you mean 'max_batch_size'?"),
        ('{"input": [{"data_type": "TYPE_FLOAT"}]}', "unknown value TYPE_FLOAT; it is one of: "),
        ('{"max_batch_size": "x"}', "max_batch_size"),
        ("[]", "expected a JSON object"),
        ("", "expected a JSON object"),
        ("{", "Expecting property name"),
        ('{"name": "a", "name": "b"}', "duplicate key name"),
        ('{"dynamic_batching": {}, "sequence_batching": {}}', "scheduling_choice"),
        ('{"a":' * 100_000, "recursion"),
        (b'{"name": "\xff"}', "utf-8"),
    ],
)
def test_json_that_is_wrong_is_told(text: str | bytes, told: str) -> None:
    with pytest.raises(ConfigError) as raised:
        pbtxt.parse_json(text, "config")

    assert told in str(raised.value)
    assert str(raised.value).startswith("config: ")


def test_a_file_is_read(tmp_path: Path) -> None:
    path = tmp_path / "config.pbtxt"
    path.write_text(EXAMPLE)
    assert pbtxt.read(path).max_batch_size == 8

    path.write_text("nope: 1")
    with pytest.raises(ConfigError, match=r"config\.pbtxt:1:1: unknown field 'nope'"):
        pbtxt.read(path)
    path.write_bytes(b'name: "\xff"')
    with pytest.raises(ConfigError, match="is not UTF-8 at byte 7"):
        pbtxt.read(path)
    with pytest.raises(ConfigError, match=r"cannot read .*: No such file"):
        pbtxt.read(tmp_path / "none")


def test_a_file_may_not_be_huge(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(pbtxt, "LARGEST", 10)
    (tmp_path / "c").write_text("#" * 10)
    pbtxt.read(tmp_path / "c")
    (tmp_path / "c").write_text("#" * 11)
    with pytest.raises(ConfigError, match="larger than 10 bytes"):
        pbtxt.read(tmp_path / "c")
    with pytest.raises(ConfigError, match="larger than 10 bytes"):
        pbtxt.parse_json("{         }", "config")


FIELDS = {
    "ModelConfig": "name 1 platform 2 backend 17 runtime 25 version_policy 3 max_batch_size 4 input 5 output 6 "
    "batch_input 20 batch_output 21 optimization 12 dynamic_batching 11 sequence_batching 13 ensemble_scheduling 15 "
    "instance_group 7 default_model_filename 8 cc_model_filenames 9 metric_tags 10 parameters 14 model_warmup 16 "
    "model_operations 18 model_transaction_policy 19 model_repository_agents 23 response_cache 24 model_metrics 26",
    "ModelInput": "name 1 data_type 2 format 3 dims 4 reshape 5 is_shape_tensor 6 allow_ragged_batch 7 optional 8 "
    "is_non_linear_format_io 9",
    "ModelOutput": "name 1 data_type 2 dims 3 reshape 5 label_filename 4 is_shape_tensor 6 is_non_linear_format_io 7",
    "ModelInstanceGroup": "name 1 kind 4 count 2 rate_limiter 6 gpus 3 secondary_devices 8 profile 5 passive 7 "
    "host_policy 9",
    "ModelDynamicBatching": "preferred_batch_size 1 max_queue_delay_microseconds 2 preserve_ordering 3 "
    "priority_levels 4 default_priority_level 5 default_queue_policy 6 priority_queue_policy 7",
    "ModelQueuePolicy": "timeout_action 1 default_timeout_microseconds 2 allow_timeout_override 3 max_queue_size 4",
    "ModelSequenceBatching": "direct 3 oldest 4 max_sequence_idle_microseconds 1 control_input 2 state 5 "
    "iterative_sequence 6",
    "ModelSequenceBatching.Control": "kind 1 int32_false_true 2 fp32_false_true 3 bool_false_true 5 data_type 4",
    "ModelSequenceBatching.State": "input_name 1 output_name 2 data_type 3 dims 4 initial_state 5 "
    "use_same_buffer_for_input_output 6 use_growable_memory 7",
    "ModelSequenceBatching.InitialState": "data_type 1 dims 2 zero_data 3 data_file 4 name 5",
    "ModelSequenceBatching.StrategyOldest": "max_candidate_sequences 1 preferred_batch_size 2 "
    "max_queue_delay_microseconds 3 preserve_ordering 4",
    "ModelEnsembling.Step": "model_name 1 model_version 2 input_map 3 output_map 4 model_namespace 5",
    "ModelWarmup": "name 1 batch_size 2 inputs 3 count 4",
    "ModelWarmup.Input": "data_type 1 dims 2 zero_data 3 random_data 4 input_data_file 5",
    "ModelOptimizationPolicy": "graph 1 priority 2 cuda 3 execution_accelerators 4 input_pinned_memory 5 "
    "output_pinned_memory 6 gather_kernel_buffer_threshold 7 eager_batching 8",
    "ModelVersionPolicy": "latest 1 all 2 specific 3",
    "ModelRateLimiter.Resource": "name 1 global 2 count 3",
    "BatchInput": "kind 1 target_name 2 data_type 3 source_input 4",
    "BatchOutput": "target_name 1 kind 2 source_input 3",
}


@pytest.mark.parametrize("kind", FIELDS)
def test_fields_have_the_numbers_that_clients_send(kind: str) -> None:
    words = FIELDS[kind].split()
    message = model_config_pb2.DESCRIPTOR.pool.FindMessageTypeByName(f"inference.{kind}")

    expected = dict(zip(words[::2], map(int, words[1::2]), strict=True))
    assert {field.name: field.number for field in message.fields} == expected


def test_the_module_is_what_the_proto_file_says() -> None:
    written = Path(model_config_pb2.__file__).read_text()

    assert written == generate.generate(), "run python -m shoal.config.proto.generate"
