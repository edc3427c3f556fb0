"""The context of a running job function: its job, progress and log, cancellation, array and gang,
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
    """Where a context's words go: a worker's pipe, or a list in a test."""

    def report_progress(self, fraction: float, message: str) -> None:
        """How far the job is, from 0 to 1."""
        ...

    def write_log(self, text: str) -> None:
        """Text for the job's log, ending in a line feed."""
        ...


@dataclass(frozen=True, slots=True, kw_only=True)
class ContextInfo:
    """One execution, as its worker was told of it."""

    job_id: str
    execution_id: str
    attempt: int = 1
    """1 for the first try; a try that was lost with its worker does not count."""
    fence: int = 1
    """Grows with every execution of the job: see `rota.sdk.fencing`."""
    name: str = ""
    queue: str = "default"
    payload: Any = None
    """What was submitted, decoded from JSON."""
    deadline: datetime | None = None
    """When the worker will stop it; None: no timeout."""
    scheduled_at: datetime | None = None
    """The moment the job was meant for, however late it runs."""
    traceparent: str | None = None
    array: PlaceView | None = None
    """Of an array's member: `array_id`, `index` and `count`."""
    gang: RankView | None = None
    """Of a gang's member: `gang_id`, `index`, `size` and `hosts`, the machines of all by index."""


class Context:
    """One execution, for the function that runs in it: a parameter named `ctx` gets it.

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
        """The job: the same in every try, so a good key for what must happen once."""
        return self.info.job_id

    @property
    def execution_id(self) -> str:
        """This try."""
        return self.info.execution_id

    @property
    def attempt(self) -> int:
        """Which try this is, from 1."""
        return self.info.attempt

    @property
    def fence(self) -> int:
        """Higher in every later execution of the job: hand it to what must refuse a stale one."""
        return self.info.fence

    @property
    def payload(self) -> Any:
        """What was submitted, decoded from JSON."""
        return self.info.payload

    @property
    def array(self) -> PlaceView | None:
        """Its place in the array it is a member of: `index` of `count`; None: it is in none."""
        return self.info.array

    @property
    def gang(self) -> RankView | None:
        """Its place in the gang it is a member of: `index` of `size`, and `hosts` by index."""
        return self.info.gang

    @property
    def scheduled_at(self) -> datetime | None:
        """The moment the job was meant for."""
        return self.info.scheduled_at

    @property
    def deadline(self) -> datetime | None:
        """When the worker will stop this try; None: no timeout."""
        return self.info.deadline

    @property
    def remaining_s(self) -> float | None:
        """Seconds until then, never below 0."""
        if self.info.deadline is None:
            return None
        now = EPOCH + timedelta(milliseconds=self._clock.now_ms())
        return max(0.0, (self.info.deadline - now).total_seconds())

    def progress(self, fraction: float, message: str = "") -> None:
        """Says how far the job is, from 0 to 1, with a word on what it is doing."""
        if not 0 <= fraction <= 1:
            raise ValueError(f"progress is from 0 to 1, not {fraction}")
        self._transport.report_progress(float(fraction), message[:MESSAGE_CHARS_MAX])

    def log(self, text: str) -> None:
        """A line in the job's log."""
        self._transport.write_log(text if text.endswith("\n") else text + "\n")

    @property
    def cancelled(self) -> bool:
        """Whether the job is to stop: clean up and return, or raise `Cancelled`."""
        return self._cancelled.is_set()

    def raise_if_cancelled(self) -> None:
        """Ends the function here if the job is to stop."""
        if self.cancelled:
            raise Cancelled(f"job {self.job_id} was cancelled")

    def wait_cancelled(self, seconds: float) -> bool:
        """Waits, but no longer than until the job is to stop; whether it is."""
        return self._cancelled.wait(seconds)

    def cancel(self) -> None:
        """Tells the function to stop; its worker calls this."""
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
    """The context of the function that runs here, if one does."""
    return _current.get()


def current_context() -> Context:
    """The context of the function that runs here, for code too deep to be handed it."""
    found = _current.get()
    if found is None:
        raise LookupError("no job runs here: current_context() works inside a job's function only")
    return found


def current_traceparent() -> str | None:
    """OpenTelemetry's current span; else the job's that this runs in; else the environment's.

    OpenTelemetry is never loaded for it: a program that has no span has not imported it either.
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
