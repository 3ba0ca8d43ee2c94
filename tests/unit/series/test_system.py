from pathlib import Path

from shoal.series.system import Machine, gpu_rows


def write(folder: Path, busy: int, idle: int) -> None:
    (folder / "stat").write_text(f"cpu  {busy} 0 0 {idle} 0 0 0 0 0 0\ncpu0 1 2 3\n")
    (folder / "meminfo").write_text("MemTotal: 2048 kB\nMemAvailable: 512 kB\nHugePages_Total: 0\n")


def test_processor_time_is_the_share_since_the_last_reading(tmp_path: Path) -> None:
    write(tmp_path, 100, 100)
    machine = Machine(tmp_path)
    write(tmp_path, 130, 170)
    rows = {name: value for name, value, _ in machine.read()}

    assert rows["CPUUtilization"] == 30.0
    assert (rows["MemoryUsed"], rows["MemoryAvailable"], rows["MemoryUtilization"]) == (1.5, 0.5, 75.0)
    assert rows["DiskUsage"] > 0
    assert {name: value for name, value, _ in machine.read()}["CPUUtilization"] == 0.0


def test_a_machine_that_tells_nothing_is_no_error(tmp_path: Path) -> None:
    assert {name for name, _, _ in Machine(tmp_path).read()} == {
        "CPUUtilization",
        "DiskUsage",
        "DiskAvailable",
        "DiskUtilization",
    }


def test_gpus_are_read_line_by_line_and_odd_lines_left_out() -> None:
    rows = gpu_rows("0, 35, 4096, 16384\n1, [N/A], 1, 2\nnonsense\n2, 0, 0, 0\n")

    assert rows == [
        ("GPUUtilization", 35.0, {"DeviceId": "0"}),
        ("GPUMemoryUsed", 4096.0, {"DeviceId": "0"}),
        ("GPUMemoryUtilization", 25.0, {"DeviceId": "0"}),
    ]
