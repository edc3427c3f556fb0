"""One child process: started clean, its end seen through a file descriptor, its usage counted."""

from __future__ import annotations

import asyncio
import contextlib
import errno
import os
import signal
import subprocess
from collections.abc import Mapping, Sequence
from typing import Any

import msgspec

from rota.worker.runners.reaper import Reaper

UMASK = 0o077


class StartError(Exception):
    """The program could not be started, and why."""


class Launch(msgspec.Struct, frozen=True):
    """What to start, and where."""

    argv: Sequence[str]
    env: Mapping[str, str]
    cwd: str
    output: int


class Child:
    """A process that leads its own session and group, reads nothing and inherits nothing."""

    def __init__(self, launch: Launch, reaper: Reaper) -> None:
        self._reaper = reaper
        process = _start(launch)
        self.pid = process.pid
        self.ended: asyncio.Future[int] = asyncio.get_running_loop().create_future()
        """The return code; below 0 the signal that killed it."""
        self.usage: dict[str, Any] = {}
        self._process = process
        self._handle = _watch(process)
        reaper.started(self.pid)
        asyncio.get_running_loop().add_reader(self._handle, self._exited)

    def kill_if_alive(self) -> None:
        """The last resort of a run that broke off: its group dies at once."""
        if not self.ended.done():
            with contextlib.suppress(ProcessLookupError):
                os.killpg(self.pid, signal.SIGKILL)

    def _exited(self) -> None:
        pid, status, usage = os.wait4(self.pid, os.WNOHANG)
        if pid == 0:
            return
        asyncio.get_running_loop().remove_reader(self._handle)
        os.close(self._handle)
        self._reaper.collected(pid)
        self.usage = {
            "cpu_seconds": round(usage.ru_utime + usage.ru_stime, 6),
            "memory_peak": usage.ru_maxrss * 1024,
        }
        # Popen would wait for it itself otherwise, and find that it is gone.
        self._process.returncode = os.waitstatus_to_exitcode(status)
        if not self.ended.done():
            self.ended.set_result(self._process.returncode)


def _watch(process: subprocess.Popen[bytes]) -> int:
    try:
        return os.pidfd_open(process.pid)
    except OSError as error:
        process.kill()
        process.wait()
        raise StartError(f"the process cannot be watched: {error.strerror}") from None


def _start(launch: Launch) -> subprocess.Popen[bytes]:
    if not os.path.isdir(launch.cwd):
        raise StartError(f"the working folder {launch.cwd!r} does not exist on this worker")
    program = launch.argv[0]
    try:
        return subprocess.Popen(
            launch.argv,
            env=launch.env,
            cwd=launch.cwd,
            stdin=subprocess.DEVNULL,
            stdout=launch.output,
            stderr=launch.output,
            close_fds=True,
            start_new_session=True,
            umask=UMASK,
        )
    except FileNotFoundError:
        raise StartError(
            f"program {program!r} was not found on this worker "
            f"(PATH is {launch.env.get('PATH', '')!r})"
        ) from None
    except PermissionError:
        raise StartError(f"program {program!r} may not be executed on this worker") from None
    except OSError as error:
        hint = " (a script needs a first line such as #!/bin/sh)" * (error.errno == errno.ENOEXEC)
        raise StartError(f"program {program!r} cannot be started: {error.strerror}{hint}") from None
    except ValueError as error:  # text that the system cannot pass on, such as half a surrogate
        raise StartError(f"program {program!r} cannot be started: {error}") from None
