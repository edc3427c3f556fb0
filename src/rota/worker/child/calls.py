"""One call from the inside: the context it gets, and the words in which its end is told."""

from __future__ import annotations

import asyncio
from datetime import UTC, datetime, timedelta
from typing import Any

import msgspec

from rota.sdk.clock import SystemClock
from rota.sdk.context import Context, ContextInfo, Transport
from rota.sdk.job_exceptions import Cancelled
from rota.worker.child.frames import Begin, Done
from rota.worker.child.functions import FunctionNotFoundError
from rota.worker.child.results import (
    ResultError,
    delay_ms,
    error_document,
    is_retryable,
    plain_error,
    result_document,
)

_clock = SystemClock()
_json = msgspec.json.Decoder()


def context_of(begin: Begin, transport: Transport) -> Context:
    """What the function may know and say."""
    deadline = None
    if begin.timeout_s is not None:
        now = datetime.fromtimestamp(_clock.now_ms() / 1000, UTC)
        deadline = now + timedelta(seconds=begin.timeout_s)
    info = ContextInfo(
        job_id=begin.job_id,
        execution_id=begin.execution_id,
        attempt=begin.attempt,
        fence=begin.fence,
        name=begin.name,
        queue=begin.queue,
        payload=_json.decode(begin.payload),
        deadline=deadline,
        scheduled_at=datetime.fromisoformat(begin.scheduled_at),
        traceparent=begin.traceparent,
        array=begin.array,
        gang=begin.gang,
    )
    return Context(info, transport)


class CallResult(msgspec.Struct):
    """How a call ended."""

    succeeded: bool
    document: bytes
    retryable: bool = True
    delay_ms: int | None = None

    def to_message(self, number: int, *, asynchronous: bool) -> Done:
        """As the agent is told; what it cost is filled in by those who know."""
        return Done(
            number, self.succeeded, self.document, self.retryable, asynchronous, 0.0, 0, 0,
            self.delay_ms,
        )  # fmt: skip


def call_returned(value: Any) -> CallResult:
    """The function came back. What cannot be kept would be no different another time."""
    try:
        return CallResult(succeeded=True, document=result_document(value))
    except ResultError as error:
        document = plain_error("ResultError", str(error))
        return CallResult(succeeded=False, document=document, retryable=False)


def call_raised(error: BaseException) -> CallResult:
    """The function did not come back, or was never reached."""
    if isinstance(error, FunctionNotFoundError):
        return CallResult(succeeded=False, document=plain_error("NotFoundError", str(error)))
    if isinstance(error, Cancelled | asyncio.CancelledError):
        return CallResult(succeeded=False, document=plain_error("Cancelled", "cancelled"))
    return CallResult(
        succeeded=False,
        document=error_document(error),
        retryable=is_retryable(error),
        delay_ms=delay_ms(error),
    )
