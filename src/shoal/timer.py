"""Timer: rings at a moment to within some ten microseconds, where event loops know milliseconds only."""

import asyncio
import ctypes
import math
import os
import sys
import time
from collections.abc import Callable

CLOCK_MONOTONIC = 1
TFD_NONBLOCK = 0o4000
TFD_CLOEXEC = 0o2000000
TFD_TIMER_ABSTIME = 1


class _Timespec(ctypes.Structure):
    _fields_ = (("seconds", ctypes.c_long), ("nanoseconds", ctypes.c_long))


class _Setting(ctypes.Structure):
    _fields_ = (("interval", _Timespec), ("value", _Timespec))


class Timer:
    """Calls back once for each `at`; a moment that has passed rings at once. Elsewhere than on Linux, the loop's."""

    def __init__(self, ring: Callable[[], None]) -> None:
        self._ring = ring
        self._fd = -1
        self._library = ctypes.CDLL(None, use_errno=True)
        self._setting = _Setting()
        self._handle: asyncio.TimerHandle | None = None

    def start(self) -> None:
        """Take a timer from the kernel."""
        if sys.platform == "linux":
            self._fd = self._library.timerfd_create(CLOCK_MONOTONIC, TFD_NONBLOCK | TFD_CLOEXEC)
        if self._fd >= 0:
            asyncio.get_running_loop().add_reader(self._fd, self._rang)

    def at(self, moment: float) -> None:
        """Ring at this moment of the monotonic clock, instead of any before; `inf` is never."""
        if self._fd < 0:
            if self._handle is not None:
                self._handle.cancel()
                self._handle = None
            if moment < math.inf:
                delay = max(0.0, moment - time.monotonic())
                self._handle = asyncio.get_running_loop().call_later(delay, self._ring)
            return
        value = self._setting.value
        value.seconds, value.nanoseconds = (
            divmod(max(1, int(moment * 1e9)), 1_000_000_000) if moment < math.inf else (0, 0)
        )
        self._library.timerfd_settime(self._fd, TFD_TIMER_ABSTIME, ctypes.byref(self._setting), None)

    def stop(self) -> None:
        """Give it back."""
        if self._handle is not None:
            self._handle.cancel()
            self._handle = None
        if self._fd >= 0:
            asyncio.get_running_loop().remove_reader(self._fd)
            os.close(self._fd)
            self._fd = -1

    def _rang(self) -> None:
        try:
            os.read(self._fd, 8)
        except BlockingIOError:
            return
        self._ring()
