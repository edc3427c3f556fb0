"""How a command's end is reported: by itself, by us, or by a limit it ran into."""

from __future__ import annotations

import signal
from typing import Any

import msgspec

from rota.wire.executions import CompletedReport
from rota.wire.queues import LimitsView
from rota.wire.workers import OrderView
from rota.worker.guard.client import Ended
from rota.worker.reports import (
    SHUTDOWN,
    Status,
    StopReason,
    exit_code_of,
    report_error,
    report_exit,
)
from rota.worker.runners.child import excess_text, signals_text, size_text

KILLED_INSIDE = 128 + signal.SIGKILL
"""What an engine's program ends with where the container was killed; not every engine says why."""


class ExitReporter:
    """Puts one execution's end into words."""

    def __init__(self, order: OrderView, *, contained: bool = False) -> None:
        self._order = order
        self._contained = contained
        self._limits = order.limits or LimitsView()

    def report(self, ended: Ended, told: StopReason | None, tail: str) -> CompletedReport:
        """`told`: why somebody wanted it ended, if anybody did; `tail`: its last lines."""
        report = self._exited(ended, tail) if ended.cause == "exit" else self._ended(ended, told)
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
        """What a program seldom says itself."""
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

    def _ended(self, ended: Ended, told: StopReason | None) -> CompletedReport:
        """Says what was done to whom; the guard told of the end when nothing was left."""
        status, error = self._status_and_error(ended, told)
        error["signals"] = [msgspec.structs.asdict(deed) for deed in ended.deeds]
        error["left"] = 0
        order, code = self._order, ended.returncode
        report = report_error(order.execution_id, order.fence, status, error)
        report.exit_code = None if code is None else exit_code_of(code)
        return report

    def _status_and_error(
        self, ended: Ended, told: StopReason | None
    ) -> tuple[Status, dict[str, Any]]:
        if ended.cause == "timeout":
            message = f"timed out after {self._order.timeout:g} s; {signals_text(ended)}"
            return "timed_out", {"message": message}
        if ended.cause in ("memory", "processes"):
            return "failed", self._excess(ended)
        if ended.cause in ("shim", "guard"):
            return "failed", {"message": _unsupervised(ended)}
        if told == "cancelled":
            return "cancelled", {"message": f"cancelled; {signals_text(ended)}"}
        return "failed", {"message": SHUTDOWN}


def _unsupervised(ended: Ended) -> str:
    if ended.cause == "shim":
        return "the process that collects this job's processes was killed, and the job with it"
    how = ended.problem[2] if ended.problem is not None else "for no known reason"
    return f"the worker's guard ended ({how}), and this job with it; the worker has a new guard"
