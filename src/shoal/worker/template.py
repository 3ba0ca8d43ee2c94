"""The template: a process that has made the heavy imports and forks workers from itself, so a restart takes
milliseconds.

It runs no user code and touches no device; it stays single-threaded. Workers are its children and die with it; it dies
with the front process. It talks in `TemplateWord`s over one socket, whose fork orders bring the worker's own socket,
the pipes for its output and the memory for its answers.
"""

import ast
import ctypes
import gc
import importlib
import importlib.util
import json
import os
import select
import signal
import socket
import sys
import traceback
import warnings
from pathlib import Path, PurePath

from shoal import heap
from shoal.upstream import finder
from shoal.wire.memory import ArenaReader
from shoal.wire.messages import Exited, Fork, Forked, Warmed, decode_template_word, encode
from shoal.wire.tray import TrayWriter
from shoal.worker import main as worker

# Libraries known to be safe to import before a fork: they start no thread that a child would miss.
WARM = frozenset({"cv2", "numpy", "onnxruntime", "pandas", "PIL", "scipy", "sklearn", "torch", "torchvision"})
UPSTREAM = "shoal.worker.backends.upstream"  # what workers of other servers' archives run on
PR_SET_PDEATHSIG = 1


def main() -> None:
    """Entry point: CONTROL_FD ARENA_FD PARENT_PID [FILE.py or FOLDER ...]; what these will import is made ready."""
    control_fd, arena_fd, parent = map(int, sys.argv[1:4])
    die_with(parent)
    heap.keep(heap.WORKER)
    heap.share()
    control = socket.socket(fileno=control_fd)
    failed = warm([Path(name) for name in sys.argv[4:]])
    arena = ArenaReader(arena_fd) if arena_fd >= 0 else None
    control.send(encode(Warmed(failed)))
    gc.collect()
    gc.freeze()  # what is here stays shared with the children
    Template(control, arena).run()


def warm(files: list[Path]) -> list[str]:
    """Import what these will import, as far as it is known to be safe; the names that failed."""
    failed = []
    needs = {name for file in files for name in needs_of(file)}
    for name in sorted(name for name in needs if name.split(".")[0] in WARM or name == UPSTREAM):
        try:
            with warnings.catch_warnings():
                warnings.simplefilter("ignore")
                importlib.import_module(name)
        except Exception:  # whatever it is, the worker will show it to the user
            failed.append(name)
    return failed


def needs_of(path: Path) -> set[str]:
    """Name the modules that a Python file, or the handler that an archive's manifest names, will import."""
    names = _archive_needs(path) if path.is_dir() else imports_of(path)
    if any(name.split(".")[0] in ("ts", "mms") for name in names):
        names.add(UPSTREAM)
    if any(name.startswith("ts.torch_handler.") for name in names) and importlib.util.find_spec("torch"):
        names.add("torch")  # which those handlers are made of
    return names


def _archive_needs(folder: Path) -> set[str]:
    """TorchServe's own handler, where an unpacked archive uses one and so brings no file for it."""
    try:
        manifest = json.loads((folder / "MAR-INF" / "MANIFEST.json").read_bytes())
        name = PurePath(manifest["model"]["handler"]).name.removesuffix(".py")
    except (OSError, ValueError, LookupError, TypeError):
        return set()
    return {"ts", f"ts.torch_handler.{name}"} if name in finder.handlers() else {"ts"}


def imports_of(file: Path) -> set[str]:
    """Name the modules a Python file imports anywhere, without running it."""
    try:
        tree = ast.parse(file.read_bytes())
    except (OSError, SyntaxError, ValueError):
        return set()
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names.update(alias.name for alias in node.names)
        elif isinstance(node, ast.ImportFrom) and node.module and not node.level:
            names.add(node.module)
    return names


def die_with(parent: int) -> None:
    """Have the kernel kill this process when its parent dies; leave at once if that has happened."""
    if sys.platform == "linux":
        ctypes.CDLL(None, use_errno=True).prctl(PR_SET_PDEATHSIG, signal.SIGKILL)
    if os.getppid() != parent:
        os._exit(0)


class Template:
    """Waits for fork orders and for children that end."""

    def __init__(self, control: socket.socket, arena: ArenaReader | None) -> None:
        self._control = control
        self._arena = arena
        self._woken, self._waker = socket.socketpair()

    def run(self) -> None:
        """Serve until the front process closes the control socket."""
        self._waker.setblocking(False)
        self._woken.setblocking(False)
        signal.set_wakeup_fd(self._waker.fileno(), warn_on_full_buffer=False)
        signal.signal(signal.SIGCHLD, lambda *_: None)
        while True:
            ready, _, _ = select.select([self._control, self._woken], [], [])
            if self._woken in ready:
                self._woken.recv(4096)
                self._reap()
            if self._control in ready and not self._obey():
                return

    def _obey(self) -> bool:
        message, fds, _, _ = socket.recv_fds(self._control, 64 * 1024, 4)
        if not message:
            return False
        order = decode_template_word(message)
        assert isinstance(order, Fork), order
        pid = os.fork()
        if pid == 0:
            self._become_worker(order.worker, *fds)
        for fd in fds:
            os.close(fd)
        self._control.send(encode(Forked(order.worker, pid)))
        return True

    def _reap(self) -> None:
        while True:
            try:
                pid, status = os.waitpid(-1, os.WNOHANG)
            except ChildProcessError:
                return
            if not pid:
                return
            self._control.send(encode(Exited(pid, status)))

    def _become_worker(self, name: str, sock_fd: int, stdout_fd: int, stderr_fd: int, tray_fd: int = -1) -> None:
        """Turn the fork into a worker; never returns."""
        code = 3
        try:
            parent = os.getppid()
            signal.set_wakeup_fd(-1)
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            for sock in (self._control, self._woken, self._waker):
                sock.close()
            die_with(parent)
            os.setpgid(0, 0)
            _take_over_output(stdout_fd, stderr_fd)
            _vary_random_numbers()
            tray = None
            if tray_fd >= 0:
                tray = TrayWriter(tray_fd)
                os.close(tray_fd)
            worker.run(socket.socket(fileno=sock_fd), self._arena, tray)
            code = 0
        except SystemExit as left:
            code = left.code if isinstance(left.code, int) else 1
        except BaseException:  # the last place that can tell
            traceback.print_exc()
        finally:
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(code)


def _take_over_output(stdout_fd: int, stderr_fd: int) -> None:
    """Send what the handler prints to the pipes, line by line."""
    nothing = os.open(os.devnull, os.O_RDONLY)
    for source, target in ((nothing, 0), (stdout_fd, 1), (stderr_fd, 2)):
        os.dup2(source, target)
        os.close(source)
    sys.stdout = open(1, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115
    sys.stderr = open(2, "w", buffering=1, encoding="utf-8", errors="replace", closefd=False)  # noqa: SIM115


def _vary_random_numbers() -> None:
    """Forks of one template must not draw the same numbers; `random` sees to itself, NumPy does not."""
    if numpy := sys.modules.get("numpy"):
        numpy.random.seed()


if __name__ == "__main__":
    main()
