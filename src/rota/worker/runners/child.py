"""What became of a guarded process, in the words that people will read."""

from __future__ import annotations

import errno
import os

from rota.worker.guard.client import Ended, Launch

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class StartError(Exception):
    """The program could not be started, and why."""


def check_started(ended: Ended, launch: Launch) -> None:
    """Raises StartError if it was not."""
    if ended.problem is None or ended.cause == "guard":
        return
    what, number, text = ended.problem
    why = text if number is None else os.strerror(number)
    program = launch.argv[0]
    if what == "cwd":
        raise StartError(
            f"the working folder {launch.cwd!r} does not exist on this worker"
            if number == errno.ENOENT
            else f"the working folder {launch.cwd!r} cannot be used: {why}"
        )
    if what == "worker":
        raise StartError(f"this worker could not make a process for the job: {why}")
    if number == errno.ENOENT:
        path = launch.env.get("PATH", "")
        raise StartError(f"program {program!r} was not found on this worker (PATH is {path!r})")
    if number == errno.EACCES:
        raise StartError(f"program {program!r} may not be executed on this worker")
    hint = " (a script needs a first line such as #!/bin/sh)" * (number == errno.ENOEXEC)
    raise StartError(f"program {program!r} cannot be started: {why}{hint}")


def signals_text(ended: Ended) -> str:
    """What it took to end it."""
    if not ended.deeds:
        return "nothing was left to end"
    return ", then ".join(f"{one.signal} to {_processes(one.processes)}" for one in ended.deeds)


def excess_text(ended: Ended, allowed: int) -> str:
    """How much it had of what it was ended for."""
    if ended.cause == "memory":
        return f"used {size_text(ended.used)} of {size_text(allowed)} memory"
    return f"had {_processes(ended.used)}, {allowed} are allowed"


def size_text(size: float) -> str:
    """`2.1 GiB`."""
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.1f}".removesuffix(".0") + f" {UNITS[unit]}"


def _processes(count: int) -> str:
    return f"{count} process" if count == 1 else f"{count} processes"
