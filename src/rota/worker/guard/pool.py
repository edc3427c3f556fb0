"""The guard's shims: lent to one job at a time, and used again while they are clean."""

from __future__ import annotations

import contextlib
import os
import resource
import signal
import socket
import struct

from rota.worker.guard import kernel, tree
from rota.worker.guard.channel import Channel
from rota.worker.guard.groups import Cgroup, Cgroups
from rota.worker.guard.shim import ShimSettings, fork_shim
from rota.worker.guard.words import (
    SETUP_FAILED,
    SHIM_MESSAGE_BYTES_MAX,
    Bounds,
    ShimMessage,
    read_shim_message,
)

IDLE_MAX = 32
"""Shims kept for later; each has a megabyte or two of its own."""
SEND_S = 2
"""A shim that takes nothing for so long has been stopped by somebody."""
_PATIENCE = struct.pack("ll", SEND_S, 0)
"""As the kernel wants it. A timeout of Python's would ask before every send whether it may."""


class Shim:
    """The guard's handle on one."""

    __slots__ = (
        "_cpu_s",
        "_peak",
        "_usage",
        "bounds",
        "channel",
        "forks_refused",
        "group",
        "key",
        "pid",
    )

    def __init__(self, pid: int, sock: socket.socket, bounds: Bounds) -> None:
        self.pid = pid
        self.channel = Channel(sock, bytes_max=SHIM_MESSAGE_BYTES_MAX)
        self.bounds = bounds
        self.group: Cgroup | None = None
        self.key = 0
        """The job that it is lent to; 0: none."""
        self.forks_refused = 0
        self._cpu_s = 0.0
        self._peak = 0
        self._usage: resource.struct_rusage | None = None
        """Set once it was collected."""

    def read_messages(self) -> list[ShimMessage] | None:
        """What it says now; None: it is gone. Raises ValueError for what no shim of ours says."""
        messages = self.channel.receive()
        return None if messages is None else [read_shim_message(message) for message in messages]

    def add_usage(self, cpu_s: float, peak: int) -> None:
        """A job in it is over, and cost so much."""
        self._cpu_s += cpu_s
        self._peak = max(self._peak, peak)

    def last_job_usage(self) -> tuple[float, int]:
        """Cpu seconds and memory of the job it died with: all of its own but earlier jobs' part."""
        assert self._usage is not None
        peak = self._usage.ru_maxrss * 1024
        cpu_s = self._usage.ru_utime + self._usage.ru_stime - self._cpu_s
        return max(0.0, cpu_s), peak if peak > self._peak else 0

    def is_reaped(self) -> bool:
        """Whether it is gone, and in a namespace of its own everything below it with it."""
        if self._usage is None:
            pid, _, usage = os.wait4(self.pid, os.WNOHANG)
            if pid == 0:
                return False
            self._usage = usage
            if self.group is not None:
                self.group.remove()
        return True


class ShimPool:
    """Makes shims and keeps those that wait for a job."""

    def __init__(self, agent: socket.socket, groups: Cgroups, isolation: str) -> None:
        self.groups = groups
        self.why = ""
        """Why there are no namespaces, where there are none."""
        self.living: dict[int, Shim] = {}
        """By process number."""
        self._idle: dict[Bounds, list[Shim]] = {}
        self._idle_count = 0
        self._settings = ShimSettings(agent.fileno(), None)
        kernel.prctl(kernel.PR_SET_CHILD_SUBREAPER, 1)
        if isolation == "auto":
            self._try_namespaces(agent.fileno())
        else:
            self.why = "switched off"

    @property
    def in_namespaces(self) -> bool:
        """Whether each shim is the first process of a PID namespace."""
        return self._settings.own_namespace is not None

    def take(self, bounds: Bounds) -> Shim:
        """One that holds jobs to these bounds. Raises OSError if none can be made."""
        idle = self._idle.get(bounds)
        if idle:
            self._idle_count -= 1
            return idle.pop()
        return self._make(bounds)

    def give_back(self, shim: Shim) -> bool:
        """Nothing runs below it any more; False if it is not needed, and must be dismissed."""
        if shim.bounds.memory is not None or self._idle_count >= IDLE_MAX:
            return False  # a group remembers the most memory that was used: a new job, a new group
        shim.key = 0
        self._idle.setdefault(shim.bounds, []).append(shim)
        self._idle_count += 1
        return True

    def forget(self, shim: Shim) -> None:
        """It is gone, or on its way."""
        idle = self._idle.get(shim.bounds, [])
        if shim in idle:
            idle.remove(shim)
            self._idle_count -= 1
        shim.channel.close()

    def idle(self) -> list[Shim]:
        """Those that wait for a job."""
        return [shim for shims in self._idle.values() for shim in shims]

    def orphans(self) -> list[int]:
        """Children of the guard that are no shims: their job has killed its shim."""
        return [pid for pid in tree.children(os.getpid()) if pid not in self.living]

    def _make(self, bounds: Bounds) -> Shim:
        group = self.groups.make(bounds.processes, bounds.memory)
        try:
            pid, sock = fork_shim(self._settings, bounds, group)
        except OSError:
            if group is not None:
                group.remove()
            raise
        for way in (socket.SO_SNDTIMEO, socket.SO_RCVTIMEO):
            sock.setsockopt(socket.SOL_SOCKET, way, _PATIENCE)
        shim = Shim(pid, sock, bounds)
        shim.group = group
        self.living[pid] = shim
        return shim

    def _try_namespaces(self, agent: int) -> None:
        home = os.open("/proc/self/ns/pid", os.O_RDONLY)
        self._settings = ShimSettings(agent, home)
        try:
            shim = self._make(Bounds())
        except OSError as error:
            self.why = f"the kernel refuses a PID namespace: {error.strerror}"
        else:
            self.why = self._startup_problem(shim)
            self.living.pop(shim.pid)
            os.kill(shim.pid, signal.SIGKILL)
            os.waitpid(shim.pid, 0)
            shim.channel.close()
            if shim.group is not None:
                shim.group.remove()
        if self.why:
            os.close(home)
            self._settings = ShimSettings(agent, None)

    def _startup_problem(self, shim: Shim) -> str:
        with contextlib.suppress(OSError):
            for word in shim.read_messages() or ():
                return f"/proc cannot be mounted: {word.text}" if word.kind == SETUP_FAILED else ""
        return "the first process of a PID namespace ended at once"
