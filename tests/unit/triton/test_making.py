from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from shoal.config.model import Batching, ModelConfig, TensorSpec
from shoal.errors import ConfigError
from shoal.triton.making import make, placement
from shoal.triton.repository import Folders
from tests.unit.triton.repositories import BATCHED, PLAIN, TENSORS, ensemble, put, step

KIND = "data_type: TYPE_FP32 dims: 1"
STATE = f'input_name: "A" output_name: "B" {KIND}'
CONTROL = 'control_input { name: "C" control { kind: CONTROL_SEQUENCE_START int32_false_true: [ 0, 1 ] } }'


def made(root: Path, settings: str, *, gpus: int = 0, file: str = "model.py", is_adaptive: bool = False) -> ModelConfig:
    put(root, "m", settings, file=file)
    found = Folders([root]).find("m")
    return make(found.message, found, 1, range(gpus), is_adaptive=is_adaptive)


def test_a_model_is_what_its_settings_say(tmp_path: Path) -> None:
    config = made(tmp_path, BATCHED)

    assert (config.name, config.version, config.flavour, config.backend) == ("m", "1", "triton", "python")
    assert config.path == str(tmp_path / "m" / "1")
    assert config.settings["max_batch_size"] == 8
    assert config.interface is not None
    assert config.interface.max_batch_size == 8
    assert config.interface.inputs == [TensorSpec(name="IN", datatype="FP32", dims=[4])]
    assert config.interface.outputs == [TensorSpec(name="OUT", datatype="FP32", dims=[4])]
    assert (config.isolate, config.side_effects) == (True, False)


def test_tensors_are_told_in_the_words_of_clients(tmp_path: Path) -> None:
    folder = put(tmp_path, "m")
    (folder / "labels.txt").write_text("cat\ndog\n")
    config = made(
        tmp_path,
        """backend: "python" max_batch_size: 2
        input [ { name: "A" data_type: TYPE_STRING dims: [ 1 ] reshape { shape: [ ] } optional: true },
                { name: "B" data_type: TYPE_BF16 dims: [ -1, 3 ] allow_ragged_batch: true } ]
        output [ { name: "C" data_type: TYPE_INT64 dims: [ 2 ] label_filename: "labels.txt" } ]
        model_transaction_policy { decoupled: true }""",
    )

    assert config.interface is not None
    assert config.interface.inputs == [
        TensorSpec(name="A", datatype="BYTES", dims=[1], reshape=[], is_optional=True),
        TensorSpec(name="B", datatype="BF16", dims=[-1, 3], is_ragged=True),
    ]
    assert config.interface.outputs == [TensorSpec(name="C", datatype="INT64", dims=[2], labels=["cat", "dog"])]
    assert config.interface.is_decoupled
    assert not config.isolate, "what has answered cannot be run again"


@pytest.mark.parametrize(
    ("settings", "is_adaptive", "batching"),
    [
        ("", False, Batching(policy="single")),
        ("", True, Batching(policy="adaptive", batch_size=8)),
        ("dynamic_batching { }", False, Batching(policy="fixed", batch_size=8, max_batch_delay=0.0)),
        (
            "dynamic_batching { max_queue_delay_microseconds: 500 }",
            True,
            Batching(policy="fixed", batch_size=8, max_batch_delay=0.5),
        ),
        ("sequence_batching { }", True, Batching(policy="single")),
    ],
)
def test_the_nearest_policy_is_chosen(tmp_path: Path, settings: str, is_adaptive: bool, batching: Batching) -> None:
    assert made(tmp_path, BATCHED + settings, is_adaptive=is_adaptive).batching == batching


def test_a_model_without_a_batch_dimension_is_never_batched(tmp_path: Path) -> None:
    assert made(tmp_path, PLAIN, is_adaptive=True).batching == Batching(policy="single")
    assert made(tmp_path, PLAIN + "dynamic_batching { }").batching.batch_size == 1


def test_requests_of_sequences_are_never_run_twice(tmp_path: Path) -> None:
    config = made(tmp_path, BATCHED + "sequence_batching { }")

    assert (config.isolate, config.side_effects) == (False, True)


@pytest.mark.parametrize(
    ("backend", "groups", "gpus", "instances", "devices"),
    [
        ("python", "{ count: 3 kind: KIND_CPU }", 0, 1, ["cpu"] * 3),
        ("identity", "{ count: 3 kind: KIND_CPU }", 0, 3, ["cpu"]),
        ("identity", "{ count: 2 kind: KIND_GPU }", 2, 2, ["cuda:0", "cuda:1"]),
        (
            "identity",
            "{ count: 1 kind: KIND_CPU }, { count: 2 kind: KIND_GPU gpus: [ 1 ] }",
            2,
            1,
            ["cpu", *["cuda:1"] * 2],
        ),
        ("identity", "{ count: 2 kind: KIND_CPU }, { count: 4 kind: KIND_GPU }", 1, 2, ["cpu", "cuda:0", "cuda:0"]),
        ("python", "{ count: 1 kind: KIND_GPU gpus: [ 1, 0 ] }", 2, 1, ["cuda:1", "cuda:0"]),
        ("python", "{ kind: KIND_CPU passive: true }, { kind: KIND_CPU count: 2 }", 0, 1, ["cpu"] * 2),
        ("identity", "{ kind: KIND_MODEL count: 2 }", 2, 2, ["cpu"]),
    ],
)
def test_instances_become_threads_and_processes(
    tmp_path: Path, backend: str, groups: str, gpus: int, instances: int, devices: list[str]
) -> None:
    config = made(tmp_path, f'backend: "{backend}" {TENSORS} instance_group [ {groups} ]', gpus=gpus)

    assert (config.instances, config.workers) == (instances, len(devices))
    assert [config.devices[n] if config.devices else config.device for n in range(config.workers)] == devices


@given(st.dictionaries(st.integers(0, 7), st.integers(1, 12), min_size=1), st.booleans())
def test_no_instance_is_lost_or_moved(counts: dict[int, int], is_sharing: bool) -> None:
    groups: list[dict[str, Any]] = [
        {"kind": "KIND_GPU", "gpus": [gpu], "count": count, "passive": False} for gpu, count in counts.items()
    ]
    place = placement({"instance_group": groups, "backend": "onnxruntime" if is_sharing else "python"})

    spread = {gpu: place.devices.count(f"cuda:{gpu}") * place.instances for gpu in counts}
    assert spread == counts


def test_an_ensemble_has_no_processes_to_place(tmp_path: Path) -> None:
    config = made(tmp_path, ensemble(step("other")), file="")

    assert (config.backend, config.workers, config.instances) == ("ensemble", 1, 1)


@pytest.mark.parametrize(
    ("settings", "reason"),
    [
        (PLAIN + 'default_model_filename: "other.py"', "unable to find '.*/m/1/other.py' for model 'm'"),
        (PLAIN + 'default_model_filename: "../1/model.py"', "must be a name inside the version's folder"),
        (PLAIN + 'default_model_filename: ".."', "must be a name inside the version's folder"),
        (PLAIN + 'runtime: "model.py"', "unable to use runtime 'model.py' for model 'm'"),
        (
            'platform: "tensorrt_plan"' + TENSORS,
            "unable to find backend 'tensorrt' for model 'm'; served are: onnxruntime",
        ),
        (PLAIN + "instance_group { passive: true }", "every instance group of model m is passive"),
        (PLAIN + "instance_group { secondary_devices { } }", "specifies secondary_devices"),
        (BATCHED + "sequence_batching { iterative_sequence: true }", "m: .*iterative_sequence is not supported"),
        (
            BATCHED + f'sequence_batching {{ state {{ {STATE} initial_state {{ name: "x" {KIND} }} }} }}',
            "expects state input 'A' to have state_data set: zero_data or data_file",
        ),
        (
            BATCHED + f'sequence_batching {{ state {{ {STATE} initial_state {{ name: "x" {KIND} dims: 1 }} }} }}',
            "doesn't match the size of 'state' dimensions for state input 'A'. 2 != 1",
        ),
        (BATCHED + f"sequence_batching {{ state {{ {STATE} }} state {{ {STATE} }} }}", "'A' more than once for m"),
        (
            BATCHED + f'sequence_batching {{ state {{ input_name: "A" {KIND} }} }}',
            "state must specify 'input_name' and 'output_name' for m",
        ),
        (
            BATCHED + 'sequence_batching { state { input_name: "A" output_name: "B" dims: 1 } }',
            "state input 'A' must specify 'data_type' for m",
        ),
        (
            BATCHED + 'sequence_batching { state { input_name: "A" output_name: "B" data_type: TYPE_FP32 dims: 0 } }',
            "state input 'A' must specify 'dims', each of which must be integer >= 1, or -1",
        ),
        (
            BATCHED + f"sequence_batching {{ {CONTROL} {CONTROL.replace('START', 'READY')} }}",
            "control tensor 'C' more than once for m",
        ),
        (
            PLAIN.replace("TYPE_FP32", "99"),
            "model input 'IN' must specify 'data_type' for m",
        ),
    ],
)
def test_what_cannot_be_served_is_refused(tmp_path: Path, settings: str, reason: str) -> None:
    with pytest.raises(ConfigError, match=reason):
        made(tmp_path, settings)


@pytest.mark.parametrize("runtime", ["", "libtriton_python.so"])
def test_the_usual_runtime_may_be_named(tmp_path: Path, runtime: str) -> None:
    assert made(tmp_path, f'{PLAIN} runtime: "{runtime}"').backend == "python"


def test_files_that_are_named_lie_inside_the_folder(tmp_path: Path) -> None:
    (tmp_path / "secret.txt").write_text("x")
    labelled = PLAIN.replace('"OUT"', '"OUT" label_filename: "../secret.txt"')

    with pytest.raises(ConfigError, match=r"label_filename '\.\./secret\.txt' leads out of"):
        made(tmp_path, labelled)


def test_gpus_must_be_there(tmp_path: Path) -> None:
    group = "instance_group { kind: KIND_GPU gpus: [ 0, 3 ] }"

    with pytest.raises(ConfigError, match=r"unsupported gpu id 3. GPUs that are present: 0, 1"):
        made(tmp_path, PLAIN + group, gpus=2)
    with pytest.raises(ConfigError, match=r"unsupported gpu id 0. GPUs that are present: none"):
        made(tmp_path, PLAIN + group)
