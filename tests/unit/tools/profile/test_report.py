import json

import msgspec
import pytest

from shoal.errors import InvalidInput
from shoal.tools.profile import report
from shoal.tools.profile.measure import Measured
from shoal.tools.profile.rules import row_of
from shoal.tools.profile.source import parameters_of


def found(*sizes: int, device_memory: int = 0) -> Measured:
    measured = Measured("Bees", 0.5, 50_000_000)
    for size in sizes:
        stages = {"preprocess": [0.001], "inference": [0.002 * size], "postprocess": [0.0]}
        measured.rows.append(row_of(size, [0.003 * size], stages, 1_000_000, device_memory))
    return measured


def test_markdown_has_a_row_for_each_size_and_what_follows_from_them() -> None:
    text = report.to_markdown(report.profile_of("bees.py", ["cat.jpg"], found(1, 2), goal=0.004))

    assert "| batch | total ms | 10-90 % | ms/item | items/s | pre ms | infer ms | memory |" in text
    assert "| 2 | 6.00 | 6.00-6.00 | 3.00 | 333 | 1.00 | 4.00 | +1 MB |" in text
    assert "- knee: batch size 1" in text
    assert "- goal 4.00 ms: batch size 1" in text


def test_gpu_memory_has_a_column_where_there_is_any() -> None:
    made = report.profile_of("m", [], found(1, device_memory=2_000_000), goal=0.0)

    assert "GPU memory |" in report.to_markdown(made)
    assert "| +1 MB | 2 MB |" in report.to_markdown(made)


def test_a_goal_that_cannot_be_met_is_said_so() -> None:
    made = report.profile_of("m", [], found(1), goal=0.001)

    assert "goal 1.00 ms: no batch is that fast; a single item takes 3.00 ms" in report.findings(made)


def test_why_it_stopped_is_told() -> None:
    measured = found(1)
    measured.stopped = "batch size 2: out of memory"

    assert report.findings(report.profile_of("m", [], measured, 0.0))[-1] == "stopped: batch size 2: out of memory"


def test_json_is_read_back_as_it_was() -> None:
    made = report.profile_of("bees.py", ["cat.jpg"], found(1, 2), goal=0.004)

    assert msgspec.json.decode(report.to_json(made), type=report.Profile) == made
    assert json.loads(report.to_json(made))["rows"][1]["size"] == 2


def test_parameters_are_json_where_they_can_be() -> None:
    assert parameters_of(["a=1", "b=x=y", 'c={"d": [2]}']) == {"a": 1, "b": "x=y", "c": {"d": [2]}}
    for text in ("a", "=1"):
        with pytest.raises(InvalidInput, match="NAME=VALUE"):
            parameters_of([text])
