"""Ends every process of every job when the agent dies, however it dies.

The warden is a tiny process of its own. It reads the agent's pipe; the kernel closes that pipe when
the agent is gone, be it by SIGKILL. Then the warden kills what it was told of until nothing is
left. It needs nothing but the standard library, so that it starts at once. It does not stop jobs of
an agent that is alive but frozen.
"""

from __future__ import annotations

import contextlib
import os
import signal
import subprocess
import sys
import threading
from pathlib import Path
from typing import BinaryIO

ROUNDS_MAX = 500
"""Looks for survivors before it gives up: only the kernel can hold a process that long."""
ROUND_S = 0.02


class Warden:
    """The agent's handle on its warden."""

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-I", "-S", __file__],
            stdin=subprocess.PIPE,
            stdout=subprocess.DEVNULL,
            start_new_session=True,
        )
        self.pid = self._process.pid

    def watch(self, session: int, execution_id: str) -> None:
        """The processes of this session, or with this id in their environment, are a job's."""
        self._tell(f"+{session} {execution_id}\n")

    def release(self, session: int) -> None:
        """They are gone."""
        self._tell(f"-{session}\n")

    def dismiss(self) -> None:
        """The agent leaves in good order."""
        self._process.communicate()

    def _tell(self, line: str) -> None:
        pipe = self._process.stdin
        assert pipe is not None
        try:
            pipe.write(line.encode())
            pipe.flush()
        except (BrokenPipeError, ValueError):
            pass  # it is gone already; jobs go on, and only the agent's own death would matter


def watch_over(pipe: BinaryIO) -> dict[int, str]:
    """Reads until the agent is gone; what was left then."""
    jobs: dict[int, str] = {}
    for line in pipe:
        session, _, execution_id = line[1:].decode().strip().partition(" ")
        if line.startswith(b"+"):
            jobs[int(session)] = execution_id
        else:
            jobs.pop(int(session), None)
    return jobs


def survivors(jobs: dict[int, str]) -> list[int]:
    """Processes of these jobs that are alive."""
    marks = {b"ROTA_EXECUTION_ID=" + name.encode() for name in jobs.values()}
    numbers = (entry.name for entry in Path("/proc").iterdir() if entry.name.isdigit())
    return [int(number) for number in numbers if _is_one(Path("/proc", number), jobs, marks)]


def _is_one(entry: Path, jobs: dict[int, str], marks: set[bytes]) -> bool:
    try:
        stat = (entry / "stat").read_bytes().rpartition(b")")[2].split()
        if stat[0] == b"Z":
            return False
        if int(stat[3]) in jobs:
            return True
        return not marks.isdisjoint((entry / "environ").read_bytes().split(b"\0"))
    except OSError:
        return False  # gone, or not ours to look at


def main() -> None:
    """Waits for the agent's death."""
    for number in (signal.SIGTERM, signal.SIGINT, signal.SIGHUP):
        signal.signal(number, signal.SIG_IGN)
    jobs = watch_over(sys.stdin.buffer)
    pause = threading.Event()
    for _ in range(ROUNDS_MAX if jobs else 0):
        left = survivors(jobs)
        if not left:
            return
        for pid in left:
            with contextlib.suppress(ProcessLookupError):
                os.kill(pid, signal.SIGKILL)
        pause.wait(ROUND_S)


if __name__ == "__main__":
    main()
