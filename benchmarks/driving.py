"""What benchmarks of whole servers share: load by `wrk` and `h2load`, and what a server's processes used meanwhile."""

import contextlib
import json
import os
import re
import resource
import shutil
import subprocess
import sys
import time
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from pathlib import Path

SCRIPT = Path(__file__).parent / "peers" / "post.lua"
TICK = os.sysconf("SC_CLK_TCK")
TIME = re.compile(r"time for request:\s+(.*)")
UNITS = {"us": 1e-3, "ms": 1.0, "s": 1e3}

_requests = re.compile(r"requests: (\d+) total, \d+ started, (\d+) done, (\d+) succeeded, (\d+) failed")
_rate = re.compile(r"finished in [\d.]+\w*, ([\d.]+) req/s")
_data = re.compile(r"\(space savings [\d.]+%\), [\d.]+\w+ \((\d+)\) data")


@dataclass(frozen=True)
class Load:
    """What one run of a load generator gave."""

    requests: int
    rps: float
    p50_ms: float
    p99_ms: float
    errors: int


def need(*programs: str) -> None:
    """Leave with a sentence where a program is missing."""
    where = {"wrk": "wrk", "h2load": "nghttp2-client"}
    for program in programs:
        if shutil.which(program) is None:
            sys.exit(f"{program} is not installed; it is in the Debian package {where.get(program, program)}")


def raise_file_limit(wanted: int) -> None:
    """Let this process, and those it starts, open so many files."""
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft >= wanted:
        return
    with contextlib.suppress(ValueError, OSError):
        resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, max(hard, wanted)))
        return
    if hard < wanted:
        sys.exit(f"{wanted} open files are needed and {hard} allowed: ulimit -Hn {wanted}")
    resource.setrlimit(resource.RLIMIT_NOFILE, (wanted, hard))


def family(pid: int) -> list[int]:
    """Give a process and those below it."""
    found = [pid]
    with contextlib.suppress(OSError):
        for task in Path(f"/proc/{pid}/task").iterdir():
            for child in (task / "children").read_text().split():
                found += family(int(child))
    return found


def fronts(pids: Iterable[int]) -> list[int]:
    """Those of a server's processes that accept for its core."""
    return [pid for pid in pids if b"shoal.fronts.main" in Path(f"/proc/{pid}/cmdline").read_bytes()]


def cpu_seconds(pids: Iterable[int]) -> float:
    """The CPU time that processes have used, user and system."""
    total = 0
    for pid in pids:
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rsplit(")", 1)[1].split()
            total += int(fields[11]) + int(fields[12])
    return total / TICK


def rest(pid: int, within: float = 60.0) -> None:
    """Wait until a server has nothing to do: it and those below it use under a twentieth of a core."""
    end = time.monotonic() + within
    while time.monotonic() < end:
        pids = family(pid)
        before = cpu_seconds(pids)
        time.sleep(0.5)
        if family(pid) == pids and cpu_seconds(pids) - before < 0.05 * 0.5:
            return
    print(f"process {pid} is still at work after {within:g} s", file=sys.stderr, flush=True)


def memory(pids: Iterable[int]) -> tuple[int, int]:
    """Bytes of processes in memory: resident, and with shared pages counted by their share."""
    found = {"Rss:": 0, "Pss:": 0}
    for pid in pids:
        with contextlib.suppress(OSError):
            for line in Path(f"/proc/{pid}/smaps_rollup").read_text().splitlines():
                words = line.split()
                if words[0] in found:
                    found[words[0]] += int(words[1]) * 1024
    return found["Rss:"], found["Pss:"]


def wrk(
    url: str, body: Path, headers: Mapping[str, str], connections: int, seconds: float, *, threads: int = 1
) -> Load:
    """Load a server over HTTP: one file, posted on so many connections as fast as it is answered."""
    lines = "\n".join(f"{name}: {value}" for name, value in headers.items())
    shape = [f"-t{min(threads, connections)}", f"-c{connections}", f"-d{max(1, round(seconds))}s"]
    done = subprocess.run(
        ["wrk", *shape, "--timeout", "20s", "--latency", "-s", str(SCRIPT), url],
        env={**os.environ, "BODY_FILE": str(body), "HEADERS": lines},
        capture_output=True,
        text=True,
        check=False,
    )
    line = next((line for line in done.stdout.splitlines() if line.startswith("RESULT ")), None)
    if line is None:
        raise RuntimeError(f"wrk failed:\n{done.stdout}{done.stderr}")
    got = json.loads(line.removeprefix("RESULT "))
    good = got["requests"] - got["bad_status"]
    errors = sum(got[kind] for kind in ("bad_status", "connect", "read", "write", "timeout"))
    return Load(good, good / got["seconds"], got["p50_ms"], got["p99_ms"], errors)


def h2load(url: str, body: Path, connections: int, streams: int, seconds: float, *, answer: int = 0) -> Load:
    """Load a gRPC server with one message again and again, each stream as fast as it is answered.

    Answers that are shorter than `answer` bytes on the whole are errors: gRPC refuses with status 200 as well.
    """
    head = ["-H", "content-type: application/grpc", "-H", "te: trailers"]
    shape = ["-c", str(connections), "-m", str(streams), "-t", "1", "-w", "24", "-W", "26"]
    log = body.with_suffix(".log")
    log.unlink(missing_ok=True)
    command = ["h2load", *shape, "-D", f"{seconds * 1000:.0f}ms", "--log-file", str(log), "-d", str(body), *head, url]
    out = subprocess.run(command, check=True, capture_output=True, text=True).stdout
    found, rate, data = _requests.search(out), _rate.search(out), _data.search(out)
    if found is None or rate is None or data is None:
        raise RuntimeError(f"h2load failed:\n{out}")
    done, good = int(found[2]), int(found[3])
    errors = done - good
    if good and int(data[1]) / good < answer:
        errors = done
    times = sorted(int(line.split("\t")[2]) for line in log.read_text().splitlines())
    log.unlink()
    at = [times[min(len(times) - 1, int(part * len(times)))] / 1000 if times else 0.0 for part in (0.5, 0.99)]
    return Load(good, float(rate[1]), at[0], at[1], errors)
