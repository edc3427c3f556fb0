"""Builds the report of a supervised process: it exited, was ended, exceeded a limit, or never
began."""

from __future__ import annotations

import errno
import os
import signal
from typing import Any

import msgspec

from rota.wire.queues import LimitsView
from rota.wire.workers import CompletedReport, OrderView
from rota.worker.reports import (
    SHUTDOWN,
    Status,
    StopReason,
    exit_code_of,
    report_error,
    report_exit,
)
from rota.worker.supervisor.client import Ended, Launch

UNITS = ("B", "KiB", "MiB", "GiB", "TiB")


class StartError(Exception):
    """Raised when the program could not be started."""


def check_started(ended: Ended, launch: Launch) -> None:
    """Raises StartError if the program was not started."""
    if ended.problem is None or ended.cause == "supervisor":
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
        raise StartError(f"this worker could not start a process for the job: {why}")
    if number == errno.ENOENT:
        path = launch.env.get("PATH", "")
        raise StartError(f"program {program!r} was not found on this worker (PATH is {path!r})")
    if number == errno.EACCES:
        raise StartError(f"program {program!r} may not be executed on this worker")
    hint = " (a script needs a first line such as #!/bin/sh)" * (number == errno.ENOEXEC)
    raise StartError(f"program {program!r} cannot be started: {why}{hint}")


def signals_text(ended: Ended) -> str:
    """Describes the signals that ended it."""
    if not ended.signals:
        return "nothing was left to end"
    return ", then ".join(f"{one.signal} to {_processes(one.processes)}" for one in ended.signals)


def excess_text(ended: Ended, allowed: int) -> str:
    """Describes how much it used of what it was ended for."""
    if ended.cause == "memory":
        return f"used {size_text(ended.used)} of {size_text(allowed)} memory"
    return f"had {_processes(ended.used)}, {allowed} are allowed"


def size_text(size: float) -> str:
    """Formats a size: `2.1 GiB`."""
    unit = 0
    while size >= 1024 and unit < len(UNITS) - 1:
        size /= 1024
        unit += 1
    return f"{size:.1f}".removesuffix(".0") + f" {UNITS[unit]}"


def _processes(count: int) -> str:
    return f"{count} process" if count == 1 else f"{count} processes"


KILLED_INSIDE = 128 + signal.SIGKILL
"""Exit code of the engine's program if the container was killed; not every engine says why."""


class ExitReporter:
    """Builds the report of one execution's end."""

    def __init__(self, order: OrderView, *, contained: bool = False) -> None:
        self._order = order
        self._contained = contained
        self._limits = order.limits or LimitsView()

    def report(self, ended: Ended, stop_reason: StopReason | None, tail: str) -> CompletedReport:
        """Builds the report. `stop_reason`: why the worker stopped it, if it did; `tail`: the last
        lines of its output."""
        report = (
            self._exited(ended, tail) if ended.cause == "exit" else self._ended(ended, stop_reason)
        )
        report.usage = ended.usage
        return report

    def _exited(self, ended: Ended, tail: str) -> CompletedReport:
        code = ended.returncode
        assert code is not None
        report = report_exit(self._order.execution_id, self._order.fence, code, tail)
        hint = self._hint(ended, code)
        if code != 0 and hint:
            error = msgspec.json.decode(report.error)
            error["message"] = f"{error['message']}; {hint}"
            report.error = msgspec.Raw(msgspec.json.encode(error))
        return report

    def _hint(self, ended: Ended, code: int) -> str:
        """Explains an exit code by a limit, which programs seldom do."""
        if code == -signal.SIGXFSZ:
            return f"it wrote a file larger than the {size_text(self._limits.file_size)} allowed"
        if ended.forks_refused:
            return f"it wanted more than the {self._limits.processes} processes allowed"
        if self._contained and code == KILLED_INSIDE and self._order.requirements.memory:
            allowed = size_text(self._order.requirements.memory)
            return f"it was killed, most likely because it wanted more than {allowed} memory"
        return ""

    def _excess(self, ended: Ended) -> dict[str, Any]:
        if ended.cause == "memory":
            allowed = self._order.requirements.memory
        else:
            allowed = self._limits.processes
        return {
            "message": excess_text(ended, allowed),
            "reason": ended.cause,
            "used": ended.used,
            "allowed": allowed,
        }

    def _ended(self, ended: Ended, stop_reason: StopReason | None) -> CompletedReport:
        """Lists the signals; nothing is left, since the supervisor reports the end only then."""
        status, error = self._status_and_error(ended, stop_reason)
        error["signals"] = [msgspec.structs.asdict(signal) for signal in ended.signals]
        error["left"] = 0
        order, code = self._order, ended.returncode
        report = report_error(order.execution_id, order.fence, status, error)
        report.exit_code = None if code is None else exit_code_of(code)
        return report

    def _status_and_error(
        self, ended: Ended, stop_reason: StopReason | None
    ) -> tuple[Status, dict[str, Any]]:
        if ended.cause == "timeout":
            message = f"timed out after {self._order.timeout:g} s; {signals_text(ended)}"
            return "timed_out", {"message": message}
        if ended.cause in ("memory", "processes"):
            return "failed", self._excess(ended)
        if ended.cause in ("shim", "supervisor"):
            return "failed", {"message": _unsupervised(ended)}
        if stop_reason == "cancelled":
            return "cancelled", {"message": f"cancelled; {signals_text(ended)}"}
        return "failed", {"message": SHUTDOWN}


def _unsupervised(ended: Ended) -> str:
    if ended.cause == "shim":
        return "the process that collects this job's processes was killed, and the job with it"
    how = ended.problem[2] if ended.problem is not None else "for an unknown reason"
    return f"the worker's supervisor ended ({how}), and this job with it; it has been restarted"
