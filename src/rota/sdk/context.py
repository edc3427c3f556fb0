"""Context of a running job function: its job, progress and log, cancellation, array and gang,
trace.
"""

from __future__ import annotations

import os
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from contextvars import ContextVar
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from threading import Event
from typing import Any, Protocol

from rota.sdk.clock import Clock, SystemClock
from rota.sdk.job_exceptions import Cancelled
from rota.wire.groups import PlaceView, RankView
from rota.wire.limits import MESSAGE_CHARS_MAX
from rota.wire.traces import TraceParent, parse_traceparent

EPOCH = datetime(1970, 1, 1, tzinfo=UTC)


class Transport(Protocol):
    """Destination of a context's reports: a worker's pipe, or a list in a test."""

    def report_progress(self, fraction: float, message: str) -> None:
        """Reports progress, from 0 to 1."""
        ...

    def write_log(self, text: str) -> None:
        """Appends text, which ends in a line feed, to the job's log."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextInfo:
    """Data of one execution, from its order."""

    job_id: str
    execution_id: str
    attempt: int = 1
    """1 for the first attempt; an attempt that was lost with its worker does not count."""
    fence: int = 1
    """Increases with every execution of the job: see `rota.sdk.fencing`."""
    name: str = ""
    queue: str = "default"
    payload: Any = None
    """The submitted payload, decoded from JSON."""
    deadline: datetime | None = None
    """When the worker will stop the execution; None: no timeout."""
    scheduled_at: datetime | None = None
    """The time the job was due, however late it runs."""
    traceparent: str | None = None
    array: PlaceView | None = None
    """For a member of an array: `array_id`, `index` and `count`."""
    gang: RankView | None = None
    """For a member of a gang: `gang_id`, `index`, `size` and `hosts`, the machines of
    all by index.
    """


class Context:
    """Context of one execution, passed to a function's parameter named `ctx`.

    Safe to use from threads that the function starts.
    """

    def __init__(
        self, info: ContextInfo, transport: Transport, *, clock: Clock | None = None
    ) -> None:
        self.info = info
        self._transport = transport
        self._clock = clock or SystemClock()
        self._cancelled = Event()

    def __repr__(self) -> str:
        return f"<Context of job {self.job_id}, attempt {self.attempt}, fence {self.fence}>"

    @property
    def job_id(self) -> str:
        """The job's id: the same in every attempt, so a good key for effects that must
        happen once.
        """
        return self.info.job_id

    @property
    def execution_id(self) -> str:
        return self.info.execution_id

    @property
    def attempt(self) -> int:
        """The number of this attempt, from 1."""
        return self.info.attempt

    @property
    def fence(self) -> int:
        """Higher in every later execution of the job: pass it to a system that must refuse stale
        writes.
        """
        return self.info.fence

    @property
    def payload(self) -> Any:
        """The submitted payload, decoded from JSON."""
        return self.info.payload

    @property
    def array(self) -> PlaceView | None:
        """Position in the job's array: `index` of `count`; None: it is not a member of one."""
        return self.info.array

    @property
    def gang(self) -> RankView | None:
        """Position in the job's gang: `index` of `size`, and `hosts` by index; None: it is not a
        member of one.
        """
        return self.info.gang

    @property
    def scheduled_at(self) -> datetime | None:
        """The time the job was due."""
        return self.info.scheduled_at

    @property
    def deadline(self) -> datetime | None:
        """When the worker will stop this execution; None: no timeout."""
        return self.info.deadline

    @property
    def remaining_s(self) -> float | None:
        """Seconds until the deadline, never below 0; None: no timeout."""
        if self.info.deadline is None:
            return None
        now = EPOCH + timedelta(milliseconds=self._clock.now_ms())
        return max(0.0, (self.info.deadline - now).total_seconds())

    def progress(self, fraction: float, message: str = "") -> None:
        """Reports progress from 0 to 1, with a message."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress must be from 0 to 1, not {fraction}")
        self._transport.report_progress(float(fraction), message[:MESSAGE_CHARS_MAX])

    def log(self, text: str) -> None:
        """Writes a line to the job's log."""
        self._transport.write_log(text if text.endswith("\n") else text + "\n")

    @property
    def cancelled(self) -> bool:
        """Whether the job must stop: clean up and return, or raise `Cancelled`."""
        return self._cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        """Raises `Cancelled` if the job must stop."""
        if self.cancelled:
            raise Cancelled(f"job {self.job_id} was cancelled")

    def wait_cancelled(self, seconds: float) -> bool:
        """Waits until the job must stop, at most this long; returns whether it must."""
        return self._cancelled.wait(seconds)

    def cancel(self) -> None:
        """Tells the function to stop; called by its worker."""
        self._cancelled.set()

    @contextmanager
    def active(self) -> Iterator[None]:
        """Makes this the current context of the thread or asyncio task inside the block."""
        token = _current.set(self)
        try:
            yield
        finally:
            _current.reset(token)


_current: ContextVar[Context | None] = ContextVar("rota_context", default=None)


def current_or_none() -> Context | None:
    """Returns the context of the job function that is running here, if any."""
    return _current.get()


def current_context() -> Context:
    """Returns the context of the job function that is running here, for code that has no `ctx`."""
    found = _current.get()
    if found is None:
        raise LookupError("no job is running here: call current_context() in a job's function")
    return found


def current_traceparent() -> str | None:
    """Returns OpenTelemetry's current span, else that of the current job, else the environment's.

    OpenTelemetry is never imported for it: a program with a span has imported it already.
    """
    api: Any = sys.modules.get("opentelemetry.trace")
    if api is not None:
        found = api.get_current_span().get_span_context()
        if found.is_valid:
            sampled = bool(found.trace_flags & 1)
            return str(TraceParent(f"{found.trace_id:032x}", f"{found.span_id:016x}", sampled))
    job = current_or_none()
    given = os.environ.get("TRACEPARENT") if job is None else job.info.traceparent
    return given if given and parse_traceparent(given) else None
