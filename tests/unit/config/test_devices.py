import stat
from pathlib import Path

import pytest

from shoal.config.devices import GpuUsage, count_cpus, count_gpus, count_visible, machine, usage_text
from tests.support import FakeClock

TABLE = "utilization.gpu [%], utilization.memory [%], memory.used [MiB]\n7 %, 1 %, 4 MiB\n"


def driver(folder: Path, gpus: int) -> Path:
    for number in range(gpus):
        (folder / "gpus" / f"0000:0{number}:00.0").mkdir(parents=True)
    return folder / "gpus"


def tool(folder: Path, script: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Put an nvidia-smi of our own, and nothing else, on the path."""
    program = folder / "bin" / "nvidia-smi"
    program.parent.mkdir()
    program.write_text(f"#!/bin/sh\n{script}\n")
    program.chmod(stat.S_IRWXU)
    monkeypatch.setenv("PATH", str(program.parent))


@pytest.mark.parametrize(
    ("text", "count"),
    [
        ("0", 1),
        ("0,1,2", 3),
        (" 1 , 0", 2),
        ("3,2,1,0", 4),
        ("4", 0),
        ("0,9,1", 1),
        ("-1", 0),
        ("0,-1,1", 1),
        ("0,0,1", 1),
        ("GPU-12ab,GPU-34cd", 2),
        ("MIG-12ab", 1),
        ("NoDevFiles", 0),
        ("", 0),
    ],
)
def test_the_variable_of_cuda_is_read_as_cuda_reads_it(text: str, count: int) -> None:
    assert count_visible(text, present=4) == count
    assert count_visible(text, present=0) == 0


def test_gpus_are_those_the_driver_lists(tmp_path: Path) -> None:
    gpus = driver(tmp_path, 3)

    assert count_gpus({}, gpus) == 3
    assert count_gpus({"CUDA_VISIBLE_DEVICES": "1,2"}, gpus) == 2
    assert count_gpus({"CUDA_VISIBLE_DEVICES": " "}, gpus) == 0


def test_without_the_drivers_list_nvidia_smi_is_asked(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, 'echo "GPU 0: A"; echo "  MIG 1g.5gb"; echo "GPU 1: B"', monkeypatch)

    assert count_gpus({}, tmp_path / "none") == 2


@pytest.mark.parametrize("script", ["echo 'GPU 0: A'; exit 9", "exit 0"])
def test_a_tool_that_fails_shows_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch, script: str) -> None:
    tool(tmp_path, script, monkeypatch)

    assert count_gpus({}, tmp_path / "none") == 0


def test_without_driver_and_tool_there_are_no_gpus(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(tmp_path))

    assert count_gpus({}, tmp_path / "none") == 0


@pytest.mark.parametrize(
    ("text", "most"), [("50000 100000", 1), ("100000 100000", 1), ("max 100000", None), ("?", None)]
)
def test_a_container_limits_the_processors(tmp_path: Path, text: str, most: int | None) -> None:
    (tmp_path / "cpu.max").write_text(text)
    all_of_them = count_cpus(tmp_path / "none")

    assert count_cpus(tmp_path / "cpu.max") == (most or all_of_them)


def test_a_machine_has_a_processor() -> None:
    assert machine({"CUDA_VISIBLE_DEVICES": ""}).cpus >= 1
    assert machine({"CUDA_VISIBLE_DEVICES": ""}).gpus == 0


def test_usage_is_told_in_upstreams_words() -> None:
    text = "gpuId::2 utilization.gpu [%]::7 %utilization.memory [%]::1 %memory.used [MiB]::4 MiB"

    assert usage_text(2, TABLE) == text


@pytest.mark.parametrize("table", ["", "No devices were found\n", "a, b\n1\n"])
def test_usage_that_is_not_there_is_not_made_up(table: str) -> None:
    assert usage_text(0, table) == "N/A"


def test_usage_is_asked_for_again_only_after_a_while(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    tool(tmp_path, f'echo "$*" >> {tmp_path}/asked; printf "a\\n$2\\n"', monkeypatch)
    clock = FakeClock(100.0)
    usage = GpuUsage(clock, keep=5.0)

    assert [usage(0), usage(1), usage(0)] == ["gpuId::0 a::0", "gpuId::1 a::1", "gpuId::0 a::0"]
    clock.time = 104.9
    usage(0)
    assert len((tmp_path / "asked").read_text().splitlines()) == 2
    clock.time = 105.0
    usage(0)
    assert (tmp_path / "asked").read_text().splitlines()[2].startswith("-i 0 --query-gpu=utilization.gpu,")
