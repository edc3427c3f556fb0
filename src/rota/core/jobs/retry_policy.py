"""Retry policy: another attempt or a dead letter, with exponential backoff and jitter."""

from __future__ import annotations

from rota.core.commands import Completion
from rota.core.ids import fraction
from rota.core.model import Backoff, Execution, ExecutionState, JobId, Millis, RetryPolicy

EXIT_RETRY_NOW = 75
"""EX_TEMPFAIL: the job asks to be retried without delay."""
EXIT_NEVER_RETRY = 78
"""EX_CONFIG: the job says that a retry is no use."""


def retry_delay_ms(policy: RetryPolicy, job_id: JobId, attempt: int) -> Millis:
    """Delay after attempt `attempt` (from 1) failed; jitter is a hash of job id and attempt."""
    base = min(_backoff_ms(policy, attempt), float(policy.max_delay_ms))
    spread = base * policy.jitter
    return max(0, round(base - spread + 2 * spread * fraction(job_id, attempt)))


def _backoff_ms(policy: RetryPolicy, attempt: int) -> float:
    match policy.backoff:
        case Backoff.FIXED:
            return float(policy.delay_ms)
        case Backoff.LINEAR:
            return float(policy.delay_ms) * attempt
        case Backoff.EXPONENTIAL:
            # Floats overflow; `max_delay_ms` is reached long before this exponent.
            return policy.delay_ms * policy.factor ** min(attempt - 1, 100)


def may_retry(policy: RetryPolicy, attempt: int, *, retryable: bool, exit_code: int | None) -> bool:
    """Whether there is another attempt after number `attempt` failed."""
    return retryable and exit_code != EXIT_NEVER_RETRY and attempt < policy.max_attempts


def failure_reason(execution: Execution, completion: Completion | None) -> str:
    """Reason, in a word, of a job that failed and is not retried."""
    if execution.state is ExecutionState.TIMED_OUT:
        return "timeout"
    if completion is not None and not completion.retryable:
        return "not_retryable"
    if completion is not None and completion.used is not None and completion.used.out_of_memory:
        return "memory"
    return "error" if execution.exit_code is None else "exit_code"
