"""Reports how executions ended: builds them, and keeps those that no server has confirmed yet.

`PendingReports` knows which reports are in flight and, when a server refuses a call, which one is
at fault.
"""

from __future__ import annotations

import signal
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, Literal, TypeAlias

import msgspec

from rota.wire.limits import LEASE_REPORTS_MAX
from rota.wire.workers import NOTHING, CompletedReport

Status: TypeAlias = Literal["succeeded", "failed", "timed_out", "cancelled"]
StopReason: TypeAlias = Literal["cancelled", "shutdown"]

EX_CONFIG = 78
"""Exit code of a program that says that a retry would fail the same way."""
SHUTDOWN = "worker was told to stop"
"""Error message of jobs that a leaving worker ended."""
SIGNAL_EXIT_BASE = 128
"""Shells and container engines report death by signal N as exit code 128 + N."""


def report_returned(execution_id: str, fence: int) -> CompletedReport:
    """Reports that the execution did not start and goes back to the server."""
    return CompletedReport(execution_id=execution_id, status="returned", fence=fence)


def report_noop(execution_id: str, fence: int) -> CompletedReport:
    return CompletedReport(execution_id=execution_id, status="succeeded", fence=fence)


def report_failed(execution_id: str, fence: int, message: str) -> CompletedReport:
    """Reports an execution that failed with this message."""
    return report_error(execution_id, fence, "failed", {"message": message})


def report_stopped(execution_id: str, fence: int, reason: StopReason) -> CompletedReport:
    """Reports an execution that was stopped before it started."""
    if reason == "shutdown":
        return report_failed(execution_id, fence, SHUTDOWN)
    error = {"message": "cancelled before it started"}
    return report_error(execution_id, fence, "cancelled", error)


def report_ended(
    execution_id: str, fence: int, status: Status, message: str, exit_code: int | None
) -> CompletedReport:
    """Reports an execution that this worker ended: it timed out, or was cancelled."""
    report = report_error(execution_id, fence, status, {"message": message})
    report.exit_code = exit_code
    return report


def report_exit(execution_id: str, fence: int, returncode: int, tail: str) -> CompletedReport:
    """Reports a program that ended by itself; a `returncode` below 0 names the signal that killed
    it."""
    if returncode == 0:
        return CompletedReport(
            execution_id=execution_id, status="succeeded", fence=fence, exit_code=0
        )
    code = exit_code_of(returncode)
    error: dict[str, Any] = {"message": f"exit code {code}", "exit_code": code}
    if returncode < 0:
        error["signal"] = signal_name(-returncode)
        error["message"] = f"killed by {error['signal']}"
    if tail:
        error["tail"] = tail
    report = report_error(execution_id, fence, "failed", error)
    report.exit_code = code
    report.retryable = returncode != EX_CONFIG
    return report


def exit_code_of(returncode: int) -> int:
    """Exit code as shells show it, also for death by signal."""
    return returncode if returncode >= 0 else SIGNAL_EXIT_BASE - returncode


def signal_name(number: int) -> str:
    """Name of a signal: SIGKILL rather than 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def report_error(
    execution_id: str, fence: int, status: Status, error: dict[str, Any]
) -> CompletedReport:
    """Reports an execution that did not succeed; `error` becomes the error in its record."""
    raw = msgspec.Raw(msgspec.json.encode(error))
    return CompletedReport(execution_id=execution_id, status=status, fence=fence, error=raw)


REPORT_BYTES_PER_CALL_MAX = 8 * 1024 * 1024
"""Results and errors in one call; far below the largest body a server accepts."""


class PendingReports:
    """Reports that no server has confirmed, by execution, oldest first."""

    def __init__(self) -> None:
        self._reports: dict[str, CompletedReport] = {}
        self._in_flight: dict[str, None] = {}
        """Those that an open call carries."""
        self._batch_max = LEASE_REPORTS_MAX

    def __len__(self) -> int:
        return len(self._reports)

    def __contains__(self, key: str) -> bool:
        return key in self._reports

    def __iter__(self) -> Iterator[str]:
        return iter(self._reports)

    @property
    def unsent(self) -> int:
        """How many no open call carries."""
        return len(self._reports) - len(self._in_flight)

    def add(self, report: CompletedReport) -> None:
        self._reports[report.execution_id] = report

    def take_batch(self) -> list[CompletedReport]:
        """Returns as many as one call may carry, and counts them as in flight."""
        reports: list[CompletedReport] = []
        size = 0
        for key, report in self._reports.items():
            if key in self._in_flight:
                continue
            size += _size(report.result) + _size(report.error)
            if len(reports) >= self._batch_max or (reports and size > REPORT_BYTES_PER_CALL_MAX):
                break
            reports.append(report)
        self._in_flight.update((report.execution_id, None) for report in reports)
        return reports

    def forget(self, key: str) -> bool:
        """Removes a report that the server has, or does not want; False if it was not pending."""
        self._in_flight.pop(key, None)
        return self._reports.pop(key, None) is not None

    def call_accepted(self) -> None:
        """Resets the batch size after a call that was not refused."""
        self._batch_max = LEASE_REPORTS_MAX

    def failed(self, keys: Iterable[str]) -> None:
        """Marks the reports of an unanswered call to be sent again."""
        for key in keys:
            self._in_flight.pop(key, None)

    def all_calls_closed(self) -> None:
        """Marks all reports to be sent again."""
        self._in_flight.clear()

    def isolate_refused(self, carried: Sequence[str], detail: str) -> str | None:
        """Handles a refused call; returns the report to give up, if one was found.

        Halving the batch finds the report at fault. That report is first replaced by a failure
        without its result, and given up if the server refuses this one too.
        """
        if len(carried) > 1:
            self._batch_max = max(1, len(carried) // 2)
            return None
        report = self._reports.get(carried[0])
        if report is None or report.status == "returned" or _is_bare_failure(report):
            return carried[0]
        message = f"the server refused the report of this execution: {detail}"
        self.add(report_failed(report.execution_id, report.fence, message))
        return None


def _size(document: msgspec.Raw) -> int:
    return 0 if document is NOTHING else len(bytes(document))


def _is_bare_failure(report: CompletedReport) -> bool:
    return report.status == "failed" and bytes(report.result) == b"null"
