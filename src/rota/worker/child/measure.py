"""What a call cost this process: cpu time, and the most memory it held."""

from __future__ import annotations

import contextlib
import os
import re
import resource

PAGE_BYTES = os.sysconf("SC_PAGE_SIZE")
_PEAK = re.compile(rb"VmHWM:\s+(\d+) kB")


class UsageMeter:
    """Reads the kernel's figures of this process; where it has none, 0."""

    def __init__(self) -> None:
        self._status = _open("/proc/self/status", os.O_RDONLY)
        self._statm = _open("/proc/self/statm", os.O_RDONLY)
        self._reset_peak = _open("/proc/self/clear_refs", os.O_WRONLY)
        self._cpu_s = 0.0

    def start(self) -> None:
        """A call begins: its peak is counted from here."""
        if self._reset_peak is not None:
            # The kernel's way to say: the highest so far is what there is now.
            with contextlib.suppress(OSError):
                os.pwrite(self._reset_peak, b"5", 0)
        self._cpu_s = _cpu_s()

    def cpu_s(self) -> float:
        """Since the start, with children that were waited for."""
        return round(_cpu_s() - self._cpu_s, 6)

    def memory_peak(self) -> int:
        """Bytes, since the start."""
        if self._status is None:
            return 0
        found = _PEAK.search(os.pread(self._status, 4096, 0))
        return int(found.group(1)) * 1024 if found else 0

    def memory(self) -> int:
        """Bytes held now."""
        if self._statm is None:
            return 0
        return int(os.pread(self._statm, 256, 0).split()[1]) * PAGE_BYTES


def _open(path: str, flags: int) -> int | None:
    try:
        return os.open(path, flags)
    except OSError:
        return None


def _cpu_s() -> float:
    own = resource.getrusage(resource.RUSAGE_SELF)
    children = resource.getrusage(resource.RUSAGE_CHILDREN)
    return own.ru_utime + own.ru_stime + children.ru_utime + children.ru_stime
