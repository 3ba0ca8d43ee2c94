"""A worker's process: whose it is, what it may take of the machine, and how it ends."""

import ctypes
import grp
import os
import pwd
import resource
import signal
import sys
from typing import NoReturn

from shoal.config.model import ModelConfig, WorkerLimits
from shoal.errors import LoadFailed

PR_SET_PDEATHSIG = 1
PR_SET_NO_NEW_PRIVS = 38
RESOURCES = {
    "memory": resource.RLIMIT_DATA,  # the shared memory of requests, which is mapped whole, does not count in it
    "files": resource.RLIMIT_NOFILE,
    "file_size": resource.RLIMIT_FSIZE,
    "cpu_time": resource.RLIMIT_CPU,
    "processes": resource.RLIMIT_NPROC,
}


def restrict(config: ModelConfig) -> None:
    """Take away what this model's workers are not to have; called before any code of the model runs.

    Raises LoadFailed where that is not possible: a worker never runs with more than it was to have.
    """
    _limit(config.limits)
    become(config.user)


def _limit(limits: WorkerLimits) -> None:
    for name, number in RESOURCES.items():
        value = getattr(limits, name)
        if not value:
            continue
        _, most = resource.getrlimit(number)
        if most != resource.RLIM_INFINITY and value > most:
            raise LoadFailed(f"limits.{name} is {value}, and the server itself has only {most}")
        resource.setrlimit(number, (value, value))


def become(user: str) -> None:
    """Go over to another user, for good; an empty name changes nothing."""
    if not user:
        return
    try:
        entry = pwd.getpwuid(int(user)) if user.isdecimal() else pwd.getpwnam(user)
    except KeyError:
        raise LoadFailed(f"workers are to run as user {user!r}, and this machine has no such user") from None
    if entry.pw_uid == os.geteuid():
        return
    parent = os.getppid()
    try:
        os.setgroups([group.gr_gid for group in grp.getgrall() if entry.pw_name in group.gr_mem])
        os.setgid(entry.pw_gid)
        os.setuid(entry.pw_uid)
    except PermissionError:
        raise LoadFailed(f"workers are to run as user {user!r}, which only a server started by root can do") from None
    os.environ |= {"HOME": entry.pw_dir, "USER": entry.pw_name, "LOGNAME": entry.pw_name}
    if sys.platform == "linux":
        prctl = ctypes.CDLL(None, use_errno=True).prctl
        prctl(PR_SET_NO_NEW_PRIVS, 1, 0, 0, 0)  # no program of another user's, sudo among them, gives it back
        prctl(PR_SET_PDEATHSIG, signal.SIGKILL)  # forgotten with the change of user
    if os.getppid() != parent:
        os._exit(0)


def leave(code: int) -> NoReturn:
    """End the process at once, whatever threads still do; what was printed is not lost."""
    for stream in (sys.stdout, sys.stderr):
        try:
            stream.flush()
        except (OSError, ValueError):  # nobody reads it, or the handler closed it
            continue
    os._exit(code)
