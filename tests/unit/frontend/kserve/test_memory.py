import os
from pathlib import Path
from typing import Any

import pytest

from shoal.errors import InvalidInput, ServingError
from shoal.frontend.kserve.memory import MOST_REGIONS, Regions
from shoal.frontend.kserve.status import AlreadyThere, NotThere, Unsupported
from tests.unit.frontend.kserve.bed import Memory


@pytest.fixture
def regions(tmp_path: Path) -> Regions:
    (tmp_path / "obj").write_bytes(bytes(range(100)))
    return Regions(is_on=True, lend=lambda _: None, largest=64, folder=tmp_path)


def test_a_region_is_read_from_where_it_was_registered(regions: Regions) -> None:
    regions.register("r", "/obj", 10, 50)

    assert regions.status("r") == regions.status() == [{"name": "r", "key": "/obj", "offset": 10, "byte_size": 50}]
    assert bytes(regions.read("r", 5, 3)) == bytes([15, 16, 17])  # type: ignore[arg-type]  # not lent
    assert bytes(regions.read("r", 50, 0)) == b""  # type: ignore[arg-type]


def test_an_input_lands_in_memory_that_workers_can_read(tmp_path: Path) -> None:
    (tmp_path / "obj").write_bytes(b"abcdef")
    block = Memory(bytes(4))
    regions = Regions(is_on=True, lend=lambda size: block, largest=64, folder=tmp_path)
    regions.register("r", "obj", 0, 6)

    assert regions.read("r", 1, 4) is block and bytes(block.view) == b"bcde"


def test_an_output_is_written_into_its_window(regions: Regions, tmp_path: Path) -> None:
    regions.register("r", "/obj", 10, 50)
    window = regions.window("r", 2, 4)
    window.write("OUT", memoryview(b"XYZ"))
    assert (tmp_path / "obj").read_bytes()[11:17] == b"\x0bXYZ\x0f\x10"
    with pytest.raises(ServingError, match=r"for output 'OUT' \(4 bytes\) should be at least 5 bytes"):
        window.write("OUT", memoryview(b"12345"))


def test_a_region_in_use_is_closed_when_its_last_user_let_go(regions: Regions) -> None:
    regions.register("r", "/obj", 0, 50)
    before = len(os.listdir("/proc/self/fd"))
    window = regions.window("r", 0, 4)
    regions.unregister("r")
    window.write("OUT", memoryview(b"late"))
    assert len(os.listdir("/proc/self/fd")) == before
    window.let_go()
    window.let_go()
    assert len(os.listdir("/proc/self/fd")) == before - 1


def test_unregistering_forgets_one_or_all_and_is_never_wrong(regions: Regions) -> None:
    before = len(os.listdir("/proc/self/fd"))
    for name in "abc":
        regions.register(name, "/obj", 0, 50)
    regions.unregister("nobody")
    regions.unregister("a")
    assert [row["name"] for row in regions.status()] == ["b", "c"]
    regions.unregister()
    assert regions.status() == [] and len(os.listdir("/proc/self/fd")) == before
    regions.register("a", "/obj", 0, 1)
    regions.close()
    assert len(os.listdir("/proc/self/fd")) == before


@pytest.mark.parametrize(
    "key",
    ["", "/", "//", "/../secret", "a/b", "/.", "..", "x\0y", "a" * 300, 3, None, "/triton_python_backend_shm_region_1"],
)
def test_a_key_that_is_not_one_name_is_refused(regions: Regions, key: Any) -> None:
    with pytest.raises(InvalidInput):
        regions.register("r", key, 0, 1)


def test_only_plain_files_are_opened_and_no_links(regions: Regions, tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "obj")
    (tmp_path / "folder").mkdir()
    os.mkfifo(tmp_path / "pipe")
    for key in ("/link", "/folder", "/pipe", "/missing"):
        with pytest.raises(ServingError, match=f"Unable to open shared memory region: '{key}'"):
            regions.register("r", key, 0, 1)


@pytest.mark.parametrize(("offset", "size"), [(-1, 1), (0, -1), (0, 1.5), ("0", 1), (True, 1), (0, 2**63)])
def test_offsets_and_sizes_are_numbers_of_bytes(regions: Regions, offset: Any, size: Any) -> None:
    with pytest.raises(InvalidInput, match="whole number of bytes"):
        regions.register("r", "/obj", offset, size)


def test_a_region_lies_inside_its_object(regions: Regions) -> None:
    regions.register("whole", "/obj", 0, 100)
    before = len(os.listdir("/proc/self/fd"))
    with pytest.raises(InvalidInput, match="failed to register shared memory region 'r': invalid args"):
        regions.register("r", "/obj", 1, 100)
    assert len(os.listdir("/proc/self/fd")) == before


def test_a_name_is_taken_once(regions: Regions) -> None:
    regions.register("r", "/obj", 0, 1)
    with pytest.raises(AlreadyThere, match="shared memory region 'r' already in manager"):
        regions.register("r", "/obj", 0, 1)


def test_there_are_only_so_many(regions: Regions, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("shoal.frontend.kserve.memory.MOST_REGIONS", 2)
    assert MOST_REGIONS > 2
    regions.register("a", "/obj", 0, 1)
    regions.register("b", "/obj", 0, 1)
    with pytest.raises(InvalidInput, match="that is the most"):
        regions.register("c", "/obj", 0, 1)
    regions.close()


def test_what_lies_outside_a_region_is_refused(regions: Regions) -> None:
    regions.register("r", "/obj", 10, 50)
    with pytest.raises(NotThere, match="Unable to find shared memory region: 'q'"):
        regions.read("q", 0, 1)
    with pytest.raises(NotThere, match="Unable to find system shared memory region: 'q'"):
        regions.status("q")
    with pytest.raises(InvalidInput, match="Invalid offset for shared memory region: 'r'"):
        regions.window("r", 50, 1)
    with pytest.raises(InvalidInput, match=r"Invalid offset \+ byte size for shared memory region: 'r'"):
        regions.read("r", 49, 2)


def test_an_input_has_a_limit(regions: Regions) -> None:
    regions.register("r", "/obj", 0, 100)
    with pytest.raises(InvalidInput, match="may have 64 bytes, got 65"):
        regions.read("r", 0, 65)


def test_an_object_that_was_shortened_ends_no_server(tmp_path: Path) -> None:
    (tmp_path / "obj").write_bytes(bytes(100))
    block = Memory(bytes(50))
    regions = Regions(is_on=True, lend=lambda size: block, largest=64, folder=tmp_path)
    regions.register("r", "/obj", 0, 100)
    window = regions.window("r", 0, 50)
    os.truncate(tmp_path / "obj", 10)
    with pytest.raises(InvalidInput, match="shorter than it was registered"):
        regions.read("r", 0, 50)
    assert block.released
    with pytest.raises(InvalidInput, match="shorter than it was registered"):
        window.write("OUT", memoryview(bytes(50)))
    assert (tmp_path / "obj").stat().st_size == 10


def test_all_of_it_can_be_switched_off(tmp_path: Path) -> None:
    regions = Regions(is_on=False, lend=lambda _: None, largest=64, folder=tmp_path)
    with pytest.raises(Unsupported, match="are off on this server"):
        regions.register("r", "/obj", 0, 1)
    with pytest.raises(Unsupported, match="are off on this server"):
        regions.unregister()
    assert regions.status() == []
