"""What a Triton configuration says about scheduling, and what is refused."""

from typing import Any

import msgspec
import pytest

from shoal.config.scheduling import QueuePolicy, Scheduling, scheduling_of
from shoal.errors import ConfigError


def of(**settings: Any) -> Scheduling:
    return scheduling_of({"name": "m", "max_batch_size": 8, **settings}, "model m")


def test_nothing_is_the_default_scheduler() -> None:
    scheduling = scheduling_of({"name": "m", "input": []}, "model m")

    assert scheduling == Scheduling()
    assert (scheduling.max_batch_size, scheduling.dynamic_batching, scheduling.sequence_batching) == (0, None, None)


def test_dynamic_batching_is_read_with_everything_it_has() -> None:
    batching = of(
        dynamic_batching={
            "preferred_batch_size": [4, 8],
            "max_queue_delay_microseconds": "100",
            "priority_levels": 3,
            "default_priority_level": 2,
            "default_queue_policy": {"max_queue_size": 10},
            "priority_queue_policy": {
                "1": {
                    "timeout_action": "DELAY",
                    "default_timeout_microseconds": 5,
                    "allow_timeout_override": True,
                    "max_queue_size": 0,
                }
            },
        }
    ).dynamic_batching

    assert batching is not None
    assert batching.preferred_batch_size == (4, 8)
    assert batching.max_queue_delay_microseconds == 100
    urgent = QueuePolicy(timeout_action="DELAY", default_timeout_microseconds=5, allow_timeout_override=True)
    assert batching.policies == [urgent, QueuePolicy(max_queue_size=10), QueuePolicy(max_queue_size=10)]


def test_without_levels_there_is_one_policy() -> None:
    batching = of(dynamic_batching={"default_queue_policy": {"max_queue_size": 10}}).dynamic_batching

    assert batching is not None
    assert batching.policies == [QueuePolicy(max_queue_size=10)]


def test_sequence_batching_is_read_with_its_controls() -> None:
    settings = {
        "max_sequence_idle_microseconds": 5_000_000,
        "direct": {"minimum_slot_utilization": 0.5},
        "control_input": [
            {"name": "START", "control": [{"kind": "CONTROL_SEQUENCE_START", "int32_false_true": [0, 1]}]},
            {"name": "ID", "control": [{"kind": "CONTROL_SEQUENCE_CORRID", "data_type": "TYPE_STRING"}]},
        ],
        "state": [{"input_name": "I", "output_name": "O", "data_type": "TYPE_FP32", "dims": [1]}],
    }
    sequences = of(sequence_batching=settings).sequence_batching

    assert sequences is not None
    assert (sequences.idle_seconds, sequences.correlation_type) == (5.0, str)
    assert sequences.direct is not None
    assert sequences.direct.minimum_slot_utilization == 0.5
    plain = of(sequence_batching={}).sequence_batching
    assert plain is not None
    assert (plain.idle_seconds, plain.correlation_type) == (1.0, None)


def test_it_survives_the_way_to_a_worker() -> None:
    scheduling = of(
        dynamic_batching={"priority_levels": 1, "default_priority_level": 1, "priority_queue_policy": {1: {}}}
    )
    sent = msgspec.msgpack.decode(msgspec.msgpack.encode(msgspec.to_builtins(scheduling)), strict=False)

    assert msgspec.convert(sent, Scheduling) == scheduling


@pytest.mark.parametrize(
    ("settings", "message"),
    [
        ({"dynamic_batching": {"preferred_batch_size": [9]}}, "preferred_batch_size 9 is not between 1 and"),
        ({"dynamic_batching": {"preferred_batch_size": [0]}}, "preferred_batch_size 0"),
        ({"sequence_batching": {"oldest": {"preferred_batch_size": [16]}}}, "preferred_batch_size 16"),
        ({"dynamic_batching": {"priority_levels": 2}}, "default_priority_level is 0; with 2 priority levels"),
        ({"dynamic_batching": {"priority_levels": 2, "default_priority_level": 3}}, "default_priority_level is 3"),
        ({"dynamic_batching": {"priority_queue_policy": {"1": {}}}}, "names level 1 of 0"),
        (
            {"dynamic_batching": {"preserve_ordering": True, "priority_levels": 2, "default_priority_level": 1}},
            "single priority level",
        ),
        (
            {"dynamic_batching": {"preserve_ordering": True, "default_queue_policy": {"timeout_action": "DELAY"}}},
            "timeout_action is DELAY",
        ),
        ({"dynamic_batching": {"max_queue_delay_microseconds": -1}}, "must be between 0 and"),
        ({"dynamic_batching": {"default_queue_policy": {"max_queue_size": -1}}}, "max_queue_size must be between"),
        ({"dynamic_batching": {"delay": 1}}, "unknown field `delay`"),
        ({"sequence_batching": {"direct": {"minimum_slot_utilization": 1.5}}}, "minimum_slot_utilization must be"),
        ({"sequence_batching": {"direct": {}, "oldest": {}}}, "direct or oldest, not both"),
        ({"sequence_batching": {"iterative_sequence": True}}, "iterative_sequence is not supported"),
        ({"dynamic_batching": {}, "sequence_batching": {}}, "got dynamic_batching and sequence_batching"),
        ({"max_batch_size": -1}, "max_batch_size must be between"),
    ],
)
def test_what_means_nothing_is_refused(settings: dict[str, Any], message: str) -> None:
    with pytest.raises(ConfigError, match=message) as refused:
        of(**settings)
    assert str(refused.value).startswith("model m: ")
