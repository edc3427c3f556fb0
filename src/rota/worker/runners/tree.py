"""The processes of one execution, found wherever they went, and ended to the last one.

The agent is a child subreaper: a process whose parent died becomes the agent's child, so nothing
that a job starts can leave the agent's tree. A process belongs to an execution if it descends from
its main process, is in the session that the main process leads, or has the execution's id in its
environment.
"""

from __future__ import annotations

import asyncio
import contextlib
import os
import signal
from collections.abc import Sequence

import msgspec
import psutil

from rota.worker.runners.child import Child
from rota.worker.runners.reaper import Reaper

LOOK_S = 0.02
"""Between two looks at whether processes have gone; doubled up to the next."""
LOOK_S_MAX = 0.25


class Deeds(msgspec.Struct):
    """What it took to end a tree."""

    terminated: int = 0
    killed: int = 0

    def __str__(self) -> str:
        said = f"SIGTERM to {_processes(self.terminated)}" if self.terminated else ""
        if not self.killed:
            return said or "nothing was left to end"
        if not said:
            return f"SIGKILL to {_processes(self.killed)}"
        return f"SIGTERM, then SIGKILL to {_processes(self.killed)}"


def _processes(count: int) -> str:
    return f"{count} process" if count == 1 else f"{count} processes"


class Tree:
    """All processes of one execution."""

    def __init__(self, execution_id: str, child: Child, reaper: Reaper) -> None:
        self._mark = execution_id
        self._leader = child.pid
        self._collected = child.ended.done
        """The main process was waited for: its number may name another by now."""
        self._reaper = reaper

    def members(self) -> list[psutil.Process]:
        """Those alive now."""
        mine: list[psutil.Process] = []
        pids: set[int] = set()
        # Parents come before their children, so one pass also finds who descends from whom.
        for process in psutil.Process().children(recursive=True):
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if self._belongs(process, pids):
                    pids.add(process.pid)
                    if process.status() != psutil.STATUS_ZOMBIE:
                        mine.append(process)
        return mine

    def strays(self) -> list[psutil.Process]:
        """Those alive after the main process has ended; cheap where there are none."""
        return self.members() if self._reaper.orphans() else []

    async def end(self, grace_s: float, at_once: asyncio.Event) -> Deeds:
        """Returns when none is left: SIGTERM, `grace_s` to obey unless `at_once`, SIGKILL.

        A process that the kernel holds in an operation outlives even SIGKILL; then this waits on,
        for its resources are not free.
        """
        deeds = Deeds()
        left = self.members()
        if left and not at_once.is_set():
            deeds.terminated = self._signal(left, signal.SIGTERM)
            left = await self._obey(grace_s, at_once)
        killed: set[int] = set()
        look_s = LOOK_S
        while left:
            killed.update(process.pid for process in left)
            deeds.killed = len(killed)
            self._signal(left, signal.SIGKILL)
            await asyncio.sleep(look_s)
            look_s = min(2 * look_s, LOOK_S_MAX)
            left = self.members()
        self._reaper.reap()
        return deeds

    async def _obey(self, grace_s: float, at_once: asyncio.Event) -> list[psutil.Process]:
        look_s, waited_s = LOOK_S, 0.0
        while (left := self.members()) and waited_s < grace_s and not at_once.is_set():
            await asyncio.sleep(min(look_s, grace_s - waited_s))
            waited_s += look_s
            look_s = min(2 * look_s, LOOK_S_MAX)
        return left

    def _signal(self, processes: Sequence[psutil.Process], number: signal.Signals) -> int:
        if not self._collected():
            # The whole group at one stroke: a member that forks meanwhile does not slip through.
            with contextlib.suppress(ProcessLookupError, PermissionError):
                os.killpg(self._leader, number)
        for process in processes:
            with contextlib.suppress(psutil.Error, ProcessLookupError):
                if self._collected() or os.getpgid(process.pid) != self._leader:
                    process.send_signal(number)
        return len(processes)

    def _belongs(self, process: psutil.Process, found: set[int]) -> bool:
        if process.pid == self._leader and not self._collected():
            return True
        if process.ppid() in found or os.getsid(process.pid) == self._leader:
            return True
        try:
            return bool(process.environ().get("ROTA_EXECUTION_ID") == self._mark)
        except psutil.AccessDenied:
            return False
