"""Reports of how executions ended, in the words that people will read."""

from __future__ import annotations

import signal
from typing import Any, Literal, TypeAlias

import msgspec

from rota.wire.executions import CompletedReport

Status: TypeAlias = Literal["succeeded", "failed", "timed_out", "cancelled"]
StopReason: TypeAlias = Literal["cancelled", "shutdown"]

EX_CONFIG = 78
"""The exit code of a program that says: another try would end the same way."""
SHUTDOWN = "worker was told to stop"
"""What is said of jobs that a worker ended because it had to leave."""
SIGNAL_EXIT_BASE = 128
"""Shells and container engines report a death by signal as this plus its number."""


def report_returned(execution_id: str, fence: int) -> CompletedReport:
    """It has not begun, and will not here."""
    return CompletedReport(execution_id=execution_id, status="returned", fence=fence)


def report_noop(execution_id: str, fence: int) -> CompletedReport:
    """There was nothing to do."""
    return CompletedReport(execution_id=execution_id, status="succeeded", fence=fence)


def report_failed(execution_id: str, fence: int, message: str) -> CompletedReport:
    """An execution that could not be brought to an end of its own."""
    return report_error(execution_id, fence, "failed", {"message": message})


def report_stopped(execution_id: str, fence: int, reason: StopReason) -> CompletedReport:
    """An execution that was stopped before it began."""
    if reason == "shutdown":
        return report_failed(execution_id, fence, SHUTDOWN)
    error = {"message": "cancelled before it started"}
    return report_error(execution_id, fence, "cancelled", error)


def report_ended(
    execution_id: str, fence: int, status: Status, message: str, exit_code: int | None
) -> CompletedReport:
    """An execution that this worker ended: time was up, or it was told to."""
    report = report_error(execution_id, fence, status, {"message": message})
    report.exit_code = exit_code
    return report


def report_exit(execution_id: str, fence: int, returncode: int, tail: str) -> CompletedReport:
    """A program that came to its own end; `returncode` below 0 names the signal that killed it."""
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
    """A death by signal as shells count it."""
    return returncode if returncode >= 0 else SIGNAL_EXIT_BASE - returncode


def signal_name(number: int) -> str:
    """SIGKILL rather than 9."""
    try:
        return signal.Signals(number).name
    except ValueError:
        return f"signal {number}"


def report_error(
    execution_id: str, fence: int, status: Status, error: dict[str, Any]
) -> CompletedReport:
    """An execution that did not succeed; `error` is what its record will show."""
    raw = msgspec.Raw(msgspec.json.encode(error))
    return CompletedReport(execution_id=execution_id, status=status, fence=fence, error=raw)
