"""Reports of workers from wire to core: completions, running executions, progress messages."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec
from msgspec.structs import replace

from rota.api.convert.groups import used_of
from rota.api.convert.jobs import free_json
from rota.api.problems import invalid
from rota.core.commands import Completion, Running
from rota.core.model import ExecutionId, ExecutionState
from rota.wire.formats import encode
from rota.wire.limits import MESSAGE_CHARS_MAX, RESULT_BYTES_MAX, TASK_BYTES_MAX
from rota.wire.problems import ProblemError
from rota.wire.workers import NOTHING, CompletedReport, CompletionSpec, RunningReport

_NULL = b"null"
_X = ExecutionState
_ENDED = {state.value: state for state in (_X.SUCCEEDED, _X.FAILED, _X.TIMED_OUT, _X.CANCELLED)}
_ENDED["returned"] = _X.PREEMPTED
_BARE = {
    status: Completion(execution_id=ExecutionId(""), fence=0, state=state)
    for status, state in _ENDED.items()
}
"""Most reports are these, but for whose they are."""


def completion_of(execution_id: str, report: CompletionSpec, where: str = "") -> Completion:
    """How an execution ended."""
    if _is_bare(report):
        bare = _BARE[report.status]
        return replace(bare, execution_id=ExecutionId(execution_id), fence=report.fence)
    usage = encode(report.usage) if report.usage is not None else None
    if usage is not None and len(usage) > TASK_BYTES_MAX:
        raise invalid(where + "usage", f"larger than {TASK_BYTES_MAX} bytes as JSON")
    return Completion(
        execution_id=ExecutionId(execution_id),
        fence=report.fence,
        state=_ENDED[report.status],
        result=_free_value(report.result, where, "result"),
        error=_free_value(report.error, where, "error"),
        exit_code=report.exit_code,
        usage=usage,
        retryable=report.retryable,
        delay_ms=None if report.retry_after is None else report.retry_after.ms,
        used=used_of(report),
    )


def _is_bare(report: CompletionSpec) -> bool:
    """Whether it says how the execution ended, and no more."""
    return (
        report.result == NOTHING
        and report.error == NOTHING
        and report.exit_code is None
        and report.usage is None
        and report.retryable
        and report.retry_after is None
    )


def completions_of(reports: Sequence[CompletedReport]) -> tuple[Completion, ...]:
    """Those carried by a lease call."""
    try:
        return tuple([completion_of(report.execution_id, report) for report in reports])
    except ProblemError:
        # Places are spelled out only now: most calls are not refused.
        for number, report in enumerate(reports):
            completion_of(report.execution_id, report, f"completed[{number}].")
        raise


def _free_value(raw: msgspec.Raw, where: str, name: str) -> bytes | None:
    if raw is NOTHING:
        return None
    data = bytes(raw)
    return None if data == _NULL else free_json(data, where + name, RESULT_BYTES_MAX)


def running_of(reports: Sequence[str | RunningReport] | None) -> tuple[Running, ...] | None:
    """What a worker says it has."""
    if reports is None:
        return None
    return tuple(
        Running(execution_id=ExecutionId(one))
        if isinstance(one, str)
        else Running(
            execution_id=ExecutionId(one.execution_id),
            fence=one.fence,
            progress=one.progress,
            message=clean_message(one.message),
        )
        for one in reports
    )


def clean_message(message: str | None) -> str | None:
    """On one line and without control characters: it is shown on terminals and pages."""
    if message is None:
        return None
    return "".join(c if c.isprintable() else " " for c in message)[:MESSAGE_CHARS_MAX]
