"""Batched functions in processes that fork and end."""

import subprocess
import sys


def run_script(script: str) -> subprocess.CompletedProcess[str]:
    return subprocess.run([sys.executable, "-c", script], capture_output=True, text=True, timeout=60)


def test_a_forked_process_starts_threads_of_its_own() -> None:
    script = """
import os, sys, threading
from shoal.embedded.batched import batched

busy = threading.Event()
inside = threading.Event()

@batched
def pid(items):
    if items == ["parent"]:
        inside.set()
        busy.wait()
    return [os.getpid()] * len(items)

caller = threading.Thread(target=pid, args=("parent",))
caller.start()
inside.wait()          # forks while the parent's worker is busy and a caller waits
child = os.fork()
if not child:
    os._exit(0 if pid("child") == os.getpid() else 1)
_, status = os.waitpid(child, 0)
busy.set()
caller.join()
sys.exit(os.waitstatus_to_exitcode(status) or (pid("again") != os.getpid()))
"""
    done = run_script(script)
    assert (done.returncode, done.stderr) == (0, "")


def test_the_interpreter_ends_once_the_running_batch_has() -> None:
    script = """
import atexit, threading
from shoal.embedded.batched import batched

inside = threading.Event()
ending = threading.Event()

@batched(batch_size=4, max_batch_delay=1)
def slow(items):
    inside.set()
    assert ending.wait(20)
    print("finished", flush=True)
    return items

threading.Thread(target=slow, args=(1,), daemon=True).start()
inside.wait()
atexit.register(ending.set)   # runs before Shoal's own, which was registered earlier
"""
    done = run_script(script)
    assert (done.returncode, done.stdout, done.stderr) == (0, "finished\n", "")


def test_an_idle_function_does_not_keep_the_interpreter() -> None:
    done = run_script("from shoal.embedded.batched import batched\nprint(batched(lambda items: items)(7))")
    assert (done.returncode, done.stdout, done.stderr) == (0, "7\n", "")
