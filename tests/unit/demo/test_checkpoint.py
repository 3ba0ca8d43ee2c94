"""The checkpoint reader: what it reads, and above all what it refuses."""

import os
import pickle
import struct
from collections import OrderedDict
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from shoal.demo.checkpoint import MAGIC, VERSION, read_checkpoint
from shoal.errors import LoadFailed


class Global:
    """Pickles as the name of something, whether or not it can be imported here."""

    def __init__(self, module: str, name: str) -> None:
        self.module, self.name = module, name


class Storage:
    def __init__(self, key: str, length: int, kind: str = "FloatStorage") -> None:
        self.pid = ("storage", Global("torch", kind), key, "cpu", length, None)


class Call:
    def __init__(self, function: Global, *arguments: Any) -> None:
        self.function, self.arguments = function, arguments


class Writer(pickle._Pickler):
    """The pickler written in Python, which can be made to write any opcode."""

    write: Callable[[bytes], Any]

    def persistent_id(self, value: Any) -> Any:
        return value.pid if isinstance(value, Storage) else None

    def save(self, value: Any, save_persistent_id: bool = True) -> None:
        if isinstance(value, Global):
            self.write(pickle.GLOBAL + f"{value.module}\n{value.name}\n".encode())
        elif isinstance(value, Call):
            self.save(value.function)
            self.save(value.arguments)
            self.write(pickle.REDUCE)
        else:
            super().save(value, save_persistent_id)  # type: ignore[misc]  # typeshed leaves it out


def tensor(storage: Storage, shape: tuple[int, ...], strides: tuple[int, ...], offset: int = 0) -> Call:
    return Call(Global("torch._utils", "_rebuild_tensor_v2"), storage, offset, shape, strides, False, OrderedDict())


def checkpoint(path: Path, tensors: Any, storages: dict[str, bytes], lengths: dict[str, int] | None = None) -> Path:
    with path.open("wb") as stream:
        for value in (MAGIC, VERSION, {"little_endian": True}, tensors, list(storages)):
            Writer(stream, 2).dump(value)
        for key, data in storages.items():
            stream.write(struct.pack("<q", (lengths or {}).get(key, len(data) // 4)) + data)
    return path


FLOATS = np.arange(6, dtype="<f4")


def test_it_reads_a_tensor_whatever_its_strides(tmp_path: Path) -> None:
    storage = Storage("7", 6)
    table = OrderedDict(plain=tensor(storage, (2, 3), (3, 1)), turned=tensor(storage, (3, 2), (1, 3)))
    tensors = read_checkpoint(checkpoint(tmp_path / "a.pth", table, {"7": FLOATS.tobytes()}))
    np.testing.assert_array_equal(tensors["plain"], FLOATS.reshape(2, 3))
    np.testing.assert_array_equal(tensors["turned"], FLOATS.reshape(2, 3).T)
    assert tensors["turned"].flags.c_contiguous


def test_it_reads_a_single_number(tmp_path: Path) -> None:
    table = OrderedDict(count=tensor(Storage("7", 1), (), ()))
    assert read_checkpoint(checkpoint(tmp_path / "a.pth", table, {"7": FLOATS[3:4].tobytes()}))["count"] == 3


@pytest.mark.parametrize(
    ("module", "name"),
    [
        ("os", "system"),
        ("posix", "system"),
        ("builtins", "eval"),
        ("builtins", "getattr"),
        ("torch", "load"),
        ("torch._utils", "_rebuild_parameter"),
        ("collections", "defaultdict"),
        ("shoal.demo.checkpoint", "os"),
    ],
)
def test_it_refuses_a_pickle_that_asks_for_anything_else(tmp_path: Path, module: str, name: str) -> None:
    marker = tmp_path / "was-run"
    evil = Call(Global(module, name), f"touch {marker}")
    with pytest.raises(LoadFailed, match=f"asks for {module}.{name}"):
        read_checkpoint(checkpoint(tmp_path / "a.pth", OrderedDict(evil=evil), {}))
    assert not marker.exists()


def test_it_refuses_a_pickle_made_the_usual_malicious_way(tmp_path: Path) -> None:
    class Evil:
        def __reduce__(self) -> Any:
            return os.system, (f"touch {tmp_path / 'was-run'}",)

    path = tmp_path / "a.pth"
    path.write_bytes(pickle.dumps(Evil()))
    with pytest.raises(LoadFailed, match="asks for"):
        read_checkpoint(path)
    assert not (tmp_path / "was-run").exists()


@pytest.mark.parametrize(
    ("shape", "strides", "offset"),
    [((7,), (1,), 0), ((2,), (6,), 0), ((6,), (1,), 1), ((2,), (-1,), 3), ((1,), (1,), -1)],
)
def test_it_refuses_a_tensor_that_reaches_outside_its_storage(
    tmp_path: Path, shape: tuple[int, ...], strides: tuple[int, ...], offset: int
) -> None:
    table = OrderedDict(wide=tensor(Storage("7", 6), shape, strides, offset))
    with pytest.raises(LoadFailed, match="outside its storage"):
        read_checkpoint(checkpoint(tmp_path / "a.pth", table, {"7": FLOATS.tobytes()}))


@pytest.mark.parametrize("length", [5, 1 << 40, -1])
def test_it_refuses_a_storage_whose_length_is_a_lie(tmp_path: Path, length: int) -> None:
    table = OrderedDict(a=tensor(Storage("7", 6), (6,), (1,)))
    with pytest.raises(LoadFailed, match="damaged"):
        read_checkpoint(checkpoint(tmp_path / "a.pth", table, {"7": FLOATS.tobytes()}, {"7": length}))


def test_it_does_not_set_memory_aside_for_bytes_that_are_not_there(tmp_path: Path) -> None:
    table = OrderedDict(a=tensor(Storage("7", 1 << 40), (1 << 40,), (1,)))
    with pytest.raises(LoadFailed, match="ends too early"):
        read_checkpoint(checkpoint(tmp_path / "a.pth", table, {"7": FLOATS.tobytes()}, {"7": 1 << 40}))


@pytest.mark.parametrize("content", [b"", b"hello", b"\x80", pickle.dumps(1), pickle.dumps(MAGIC)])
def test_a_file_that_is_no_checkpoint_is_refused_with_its_name(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "weights.pth"
    path.write_bytes(content)
    with pytest.raises(LoadFailed, match=r"weights\.pth"):
        read_checkpoint(path)


@pytest.mark.parametrize("table", [{"a": 1}, OrderedDict(a=1), OrderedDict({1: tensor(Storage("7", 6), (6,), (1,))})])
def test_a_table_of_anything_but_tensors_is_refused(tmp_path: Path, table: Any) -> None:
    with pytest.raises(LoadFailed):
        read_checkpoint(checkpoint(tmp_path / "a.pth", table, {"7": FLOATS.tobytes()}))
