"""How a call of a Python function ended, as its record will say it."""

from __future__ import annotations

from typing import Any, Literal, TypeAlias

import msgspec

from rota.wire.executions import CompletedReport
from rota.wire.queues import LimitsView
from rota.wire.units import Duration
from rota.wire.workers import OrderView
from rota.worker.child.frames import Done
from rota.worker.guard.client import Ended
from rota.worker.reports import (
    SHUTDOWN,
    StopReason,
    exit_code_of,
    report_error,
    report_failed,
    signal_name,
)
from rota.worker.runners.child import signals_text
from rota.worker.runners.verdict import ExitReporter

KILLED_WITH_ANOTHER = "another call killed this process"
"""What is said of calls that shared a process with one that would not end."""
OBEYED = "it ended when asked to"

BreakOffCause: TypeAlias = Literal["timeout", "abandoned"] | StopReason
"""Why a call was broken off."""


def limits_of(order: OrderView) -> dict[str, int]:
    """What the guard holds a process to in which this call runs alone."""
    said = order.limits or LimitsView()
    limits = {
        "processes": said.processes,
        "open_files": said.open_files,
        "file_size": said.file_size,
    }
    return {**limits, "memory": memory} if (memory := order.requirements.memory) else limits


def report_done(order: OrderView, done: Done) -> CompletedReport:
    """It came to its own end."""
    allowed = (order.limits or LimitsView()).result_size
    if done.succeeded and len(done.document) > allowed:
        message = f"the function's result is {len(done.document)} bytes as JSON, {allowed} are kept"
        error = {"type": "ResultError", "message": message}
        report = report_error(order.execution_id, order.fence, "failed", error)
        report.retryable = False
    else:
        report = CompletedReport(
            execution_id=order.execution_id,
            status="succeeded" if done.succeeded else "failed",
            fence=order.fence,
            retryable=done.retryable,
            retry_after=None if done.delay_ms is None else Duration(done.delay_ms),
        )
        document = msgspec.Raw(done.document)
        if done.succeeded:
            report.result = document
        else:
            report.error = document
    if done.memory_peak:
        report.usage = {"cpu_seconds": done.cpu_s, "memory_peak": done.memory_peak}
    return report


def report_broken(order: OrderView, ended: Ended, tail: str, *, shared: bool) -> CompletedReport:
    """Its process is gone, by its own doing or by somebody else's; `tail`: its last lines."""
    if ended.cause not in ("exit", "stop", "kill"):
        return ExitReporter(order).report(ended, None, tail)
    if shared and ended.cause != "exit":
        return report_failed(order.execution_id, order.fence, KILLED_WITH_ANOTHER)
    code = ended.returncode or 0
    how = f"was killed by {signal_name(-code)}" if code < 0 else f"exited with code {code}"
    process = "the process, which other calls shared," if shared else "the process"
    error: dict[str, Any] = {"message": f"{process} {how} in the middle of the call"}
    if tail:
        error["tail"] = tail
    report = report_error(order.execution_id, order.fence, "failed", error)
    if not shared:
        report.exit_code, report.usage = exit_code_of(code), ended.usage
    return report


def report_broken_off(
    order: OrderView, cause: BreakOffCause, ended: Ended | None
) -> CompletedReport:
    """It was ended: with its process, or (None) alone."""
    how = OBEYED if ended is None else signals_text(ended)
    error: dict[str, Any] = {"message": SHUTDOWN}
    status: Literal["timed_out", "cancelled", "failed"] = "failed"
    if cause == "timeout":
        status, error = "timed_out", {"message": f"timed out after {order.timeout:g} s; {how}"}
    elif cause == "cancelled":
        status, error = "cancelled", {"message": f"cancelled; {how}"}
    if ended is None:
        return report_error(order.execution_id, order.fence, status, error)
    error["signals"] = [msgspec.structs.asdict(deed) for deed in ended.deeds]
    error["left"] = 0
    report = report_error(order.execution_id, order.fence, status, error)
    report.exit_code = None if ended.returncode is None else exit_code_of(ended.returncode)
    return report
