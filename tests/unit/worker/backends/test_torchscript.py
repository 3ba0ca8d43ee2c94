"""TorchScript modules and exported programs, made here."""

import importlib.util
import zipfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch

from shoal.errors import LoadFailed
from shoal.wire.messages import Failure
from shoal.worker.backends import torchscript
from tests.process.tensor_front import Raw, interface, parameters, same, spec
from tests.unit.worker.backends.making import ask, config, one, program

X = np.arange(4, dtype=np.float32).reshape(2, 2)
# TorchScript reads source files, and these are what it can compile.
NETS = """
from typing import Dict, List, Optional, Tuple
import torch

class Sub(torch.nn.Module):
    def forward(self, a, b):
        return a - b

class Pair(torch.nn.Module):
    def forward(self, a):
        return a + 1, a * 2

class Words(torch.nn.Module):
    def forward(self, values: Dict[str, torch.Tensor]) -> Dict[str, torch.Tensor]:
        return {"sum": values["a"] + values["b"], "a": values["a"]}

class Shout(torch.nn.Module):
    def forward(self, words: List[str]) -> List[str]:
        return [word + "!" for word in words]

class Maybe(torch.nn.Module):
    def forward(self, a, b: Optional[torch.Tensor] = None):
        return a if b is None else a + b

class Listed(torch.nn.Module):
    def forward(self, a) -> List[torch.Tensor]:
        return [a, -a]

class InPlace(torch.nn.Module):
    def forward(self, a):
        a.add_(1)
        return a

class Fails(torch.nn.Module):
    def forward(self, a):
        return a.reshape(7, 7)

class Half(torch.nn.Module):
    def forward(self, a):
        return a + a

class Grown(torch.nn.Module):
    def __init__(self):
        super().__init__()
        self.weight = torch.nn.Parameter(torch.ones(2))

    def forward(self, a):
        return a * self.weight
"""


pytestmark = pytest.mark.filterwarnings("ignore:`torch.jit:DeprecationWarning", "ignore:`torch.jit:FutureWarning")


@pytest.fixture(scope="module")
def nets(tmp_path_factory: pytest.TempPathFactory) -> Any:
    file = tmp_path_factory.mktemp("nets") / "nets.py"
    file.write_text(NETS)
    found = importlib.util.spec_from_file_location("nets", file)
    assert found is not None and found.loader is not None
    module = importlib.util.module_from_spec(found)
    found.loader.exec_module(module)
    return module


@pytest.fixture(autouse=True)
def threads() -> Iterator[None]:
    """What a model sets for its process is set back."""
    before = torch.get_num_threads()
    yield
    torch.set_num_threads(before)
    torch._C._set_graph_executor_optimize(True)


def script(folder: Path, net: Any) -> Path:
    torch.jit.script(net).save(str(folder / "model.pt"))
    return folder


def export(folder: Path, net: Any, *examples: Any) -> Path:
    rows = torch.export.Dim("rows", min=1)
    program = torch.export.export(net, examples, dynamic_shapes=tuple({0: rows} for _ in examples))
    torch.export.save(program, str(folder / "model.pt2"))
    return folder


def two(first: str, second: str, *outputs: str) -> dict[str, Any]:
    return interface([spec(first, "FP32", 2), spec(second, "FP32", 2)], [spec(name, "FP32", 2) for name in outputs], 8)


ONE = interface([spec("a", "FP32", 2)], [spec("y", "FP32", 2)], 8)


def test_a_batch_is_run_as_one_and_split(tmp_path: Path, nets: Any) -> None:
    made = program(script(tmp_path, nets.Sub()), "pytorch", two("a", "b", "y"), instances=2)
    first, second = ask(made, {"a": X, "b": X[::-1].copy()}, {"a": X[:1], "b": X[:1] + 1})
    assert isinstance(first, dict) and same(first["y"], X - X[::-1])
    assert isinstance(second, dict) and same(second["y"], np.full((1, 2), -1, np.float32))


@pytest.mark.parametrize(
    ("first", "second", "sign"),
    [
        ("a", "b", 1),  # the names of the arguments
        ("b", "a", -1),
        ("in__0", "in__1", 1),  # their numbers
        ("in__1", "other__0", -1),
        ("p", "q", 1),  # their order
        ("a", "q", 1),
    ],
)
def test_inputs_find_their_arguments(tmp_path: Path, nets: Any, first: str, second: str, sign: int) -> None:
    made = program(script(tmp_path, nets.Sub()), "pytorch", two(first, second, "y"))
    assert same(one(made, {first: X, second: 3 * X})["y"], sign * (X - 3 * X))


def test_numbers_with_gaps_are_refused(tmp_path: Path, nets: Any) -> None:
    with pytest.raises(LoadFailed, match="must be numbered from 0 without gaps, got in__0, in__2"):
        program(script(tmp_path, nets.Sub()), "pytorch", two("in__0", "in__2", "y"))


@pytest.mark.parametrize(("outputs", "plus"), [(("y", "z"), "y"), (("o__1", "o__0"), "o__0")])
def test_a_tuple_is_named_in_order_or_by_number(tmp_path: Path, nets: Any, outputs: tuple[str, str], plus: str) -> None:
    io = interface([spec("a", "FP32", 2)], [spec(name, "FP32", 2) for name in outputs], 8)
    made = program(script(tmp_path, nets.Pair()), "pytorch", io)
    answer = one(made, {"a": X})
    (times,) = set(outputs) - {plus}
    assert same(answer[plus], X + 1) and same(answer[times], X * 2)
    assert list(one(made, {"a": X}, outputs=[times])) == [times]


def test_a_list_of_tensors_is_named_in_order(tmp_path: Path, nets: Any) -> None:
    io = interface([spec("a", "FP32", 2)], [spec("y", "FP32", 2), spec("z", "FP32", 2)], 8)
    assert same(one(program(script(tmp_path, nets.Listed()), "pytorch", io), {"a": X})["z"], -X)


def test_a_dict_is_given_and_taken_by_name(tmp_path: Path, nets: Any) -> None:
    made = program(script(tmp_path, nets.Words()), "pytorch", two("a", "b", "sum"))
    answer = one(made, {"a": X, "b": X})
    assert list(answer) == ["sum"] and same(answer["sum"], 2 * X)
    failure = one(program(tmp_path, "pytorch", two("a", "b", "other")), {"a": X, "b": X})
    assert isinstance(failure, Failure) and failure.status == 500
    assert failure.message.startswith("output 'other' is not among what the model gave: ")


def test_too_few_outputs_are_said(tmp_path: Path, nets: Any) -> None:
    failure = one(program(script(tmp_path, nets.Sub()), "pytorch", two("a", "b", "y", "z")), {"a": X, "b": X})
    assert failure.message == "the model gave 1 outputs, and 2 are configured: y, z"


def test_strings_are_lists(tmp_path: Path, nets: Any) -> None:
    io = interface([spec("words", "BYTES", 1)], [spec("y", "BYTES", 1)], 8)
    made = program(script(tmp_path, nets.Shout()), "pytorch", io)
    first, second = ask(
        made, {"words": np.array([["é".encode()]], object)}, {"words": np.array([[b"b"], [b"c"]], object)}
    )
    assert isinstance(first, dict) and first["y"].tolist() == [["é!".encode()]]
    assert isinstance(second, dict) and second["y"].tolist() == [[b"b!"], [b"c!"]]


def test_optional_inputs_may_be_missing(tmp_path: Path, nets: Any) -> None:
    io = interface([spec("a", "FP32", 2), spec("b", "FP32", 2, is_optional=True)], [spec("y", "FP32", 2)], 8)
    made = program(script(tmp_path, nets.Maybe()), "pytorch", io)
    first, second = ask(made, {"a": X}, {"a": X, "b": X})
    assert isinstance(first, dict) and same(first["y"], X)
    assert isinstance(second, dict) and same(second["y"], 2 * X)


def test_a_model_that_writes_into_its_input_hurts_nobody(tmp_path: Path, nets: Any) -> None:
    made = program(script(tmp_path, nets.InPlace()), "pytorch", ONE)
    for _ in range(2):
        assert same(one(made, {"a": X})["y"], X + 1)


@pytest.mark.parametrize(
    ("datatype", "dtype"),
    [("UINT8", np.uint8), ("INT8", np.int8), ("INT16", np.int16), ("INT32", np.int32), ("INT64", np.int64),
     ("FP16", np.float16), ("FP64", np.float64)],
)  # fmt: skip
def test_numbers_keep_their_type(tmp_path: Path, nets: Any, datatype: str, dtype: Any) -> None:
    io = interface([spec("a", datatype, 2)], [spec("y", datatype, 2)], 8)
    made = program(script(tmp_path, nets.Half()), "pytorch", io)
    assert same(one(made, {"a": X.astype(dtype)})["y"], (2 * X).astype(dtype))


def test_bfloat16_is_computed_with(tmp_path: Path, nets: Any) -> None:
    io = interface([spec("a", "BF16", 1)], [spec("y", "BF16", 1)], 8)
    made = program(script(tmp_path, nets.Half()), "pytorch", io)
    assert one(made, {"a": Raw("BF16", [1, 1], (0x3FC0).to_bytes(2, "little"))})["y"].tolist() == [[0x4040]]


def test_a_failure_is_told_with_its_text(tmp_path: Path, nets: Any) -> None:
    failure = one(program(script(tmp_path, nets.Fails()), "pytorch", ONE), {"a": X})
    assert isinstance(failure, Failure) and failure.status == 500
    assert failure.message.startswith("PyTorch execute failure: ") and "shape '[7, 7]'" in failure.message


def test_weights_need_no_gradient_whatever_the_mode(tmp_path: Path, nets: Any) -> None:
    for mode in ("true", "false"):
        settings = parameters(INFERENCE_MODE=mode, DISABLE_OPTIMIZED_EXECUTION="true")
        made = program(script(tmp_path, nets.Grown()), "pytorch", ONE, settings=settings)
        assert same(one(made, {"a": X})["y"], X)


def test_threads_are_shared_between_instances(tmp_path: Path, nets: Any) -> None:
    script(tmp_path, nets.Sub())
    program(tmp_path, "pytorch", two("a", "b", "y"), instances=64)
    assert torch.get_num_threads() == 1
    program(tmp_path, "pytorch", two("a", "b", "y"), settings=parameters(INTRA_OP_THREAD_COUNT=3))
    assert torch.get_num_threads() == 3


def test_an_exported_program_is_served(tmp_path: Path, nets: Any) -> None:
    version = export(tmp_path, nets.Sub(), torch.ones(2, 2), torch.ones(2, 2))
    made = program(version, "pytorch", two("b", "a", "y"))
    first, second = ask(made, {"a": X, "b": 2 * X}, {"a": X[:1], "b": X[:1]})
    assert isinstance(first, dict) and same(first["y"], -X)
    assert isinstance(second, dict) and same(second["y"], np.zeros((1, 2), np.float32))


def test_an_archive_with_pickled_objects_or_compiled_code_is_refused(tmp_path: Path, nets: Any) -> None:
    version = export(tmp_path, nets.Sub(), torch.ones(2, 2), torch.ones(2, 2))
    for name, message in (
        ("x/data/constants/opaque_obj_0", "carries a pickled object"),
        ("x/data/aotinductor/model/a.so", "is a compiled package"),
    ):
        with zipfile.ZipFile(version / "other.pt2", "w") as archive:
            archive.writestr(name, b"")
        with pytest.raises(LoadFailed, match=message):
            program(version, "pytorch", ONE, settings={"default_model_filename": "other.pt2"})


@pytest.mark.parametrize("name", ["model.pt", "model.pt2"])
def test_a_file_that_is_no_model_is_refused(tmp_path: Path, name: str) -> None:
    (tmp_path / name).write_bytes(b"no")
    with pytest.raises(LoadFailed, match=f"{name} of model 'm' cannot be loaded"):
        program(tmp_path, "pytorch", ONE)


def test_pickled_modules_are_not_loaded(tmp_path: Path) -> None:
    torch.save(torch.nn.Linear(2, 2), tmp_path / "model.pt")
    with pytest.raises(LoadFailed, match="cannot be loaded"):
        program(tmp_path, "pytorch", ONE)


def test_a_gpu_that_is_not_here_is_refused(tmp_path: Path, nets: Any) -> None:
    if not torch.cuda.is_available():
        with pytest.raises(LoadFailed, match="is to run on cuda:0, and torch sees no GPU here"):
            torchscript.load(config(script(tmp_path, nets.Sub()), "pytorch", ONE, device="cuda:0"))
