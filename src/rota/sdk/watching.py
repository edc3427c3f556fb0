"""Waits for jobs, and follows logs and the event stream (server-sent events).

Streams make it fast, and polling makes it right: whenever a stream breaks or falls silent, the
state is read again, so a missed change only costs time.
"""

from __future__ import annotations

import codecs
import re
from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass
from typing import Any

import msgspec

from rota.sdk import calls
from rota.sdk.backoff import FIRST_S
from rota.sdk.calls import FINAL, JobSearch
from rota.sdk.errors import (
    AnswerError,
    ApiError,
    JobFailed,
    NotFoundError,
    SilenceError,
    UnreachableError,
    WaitTimeoutError,
)
from rota.sdk.methods.paging import all_jobs
from rota.sdk.request_plan import (
    ClientState,
    EmitItem,
    OpenStream,
    ReadMore,
    RequestPlan,
    RetryBackoff,
    Sleep,
    ask,
    fetch,
)
from rota.wire.jobs import JobView
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.service import ChangeView

_LINE_END = re.compile(r"\r\n|\n|\r(?!$)")


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the stream; `id` is the position to resume from.

    Its kind is `message` for a change, or `reset` if changes were missed for good: the state must
    then be read again.
    """

    id: str
    kind: str
    data: bytes

    @property
    def change(self) -> ChangeView:
        try:
            return msgspec.json.decode(self.data, type=ChangeView)
        except msgspec.MsgspecError as error:
            raise AnswerError(f"cannot read an event of the stream: {error}") from error


class EventReader:
    """Parser of a stream of events, whose chunks may be cut anywhere."""

    def __init__(self) -> None:
        self._decoder = codecs.getincrementaldecoder("utf-8")("replace")
        self._left = ""
        self._last_id = ""
        self._kind = ""
        self._data: list[str] = []

    def feed(self, chunk: bytes) -> Iterator[Event]:
        """Yields the events that are complete now."""
        *lines, self._left = _LINE_END.split(self._left + self._decoder.decode(chunk))
        for line in lines:
            if not line:
                yield from self._dispatch()
            elif not line.startswith(":"):
                self._field(*_parts(line))

    def _field(self, name: str, value: str) -> None:
        if name == "data":
            self._data.append(value)
        elif name == "event":
            self._kind = value
        elif name == "id" and "\0" not in value:
            self._last_id = value

    def _dispatch(self) -> Iterator[Event]:
        data, self._data = "\n".join(self._data), []
        kind, self._kind = self._kind or "message", ""
        if data:
            yield Event(self._last_id, kind, data.encode())


def _parts(line: str) -> tuple[str, str]:
    name, _, value = line.partition(":")
    return name, value.removeprefix(" ")


QUIET_S = 60.0
"""A stream that is silent for this long is opened again: the server sends keep-alives
more often.
"""
RECHECK_S = 5.0
"""How often the awaited jobs are read even if the stream is silent."""
PAGED_FROM = 20
"""From this many jobs on, listing all jobs of their time is cheaper than reading each."""
LOG_POLL_S, LOG_POLL_S_MAX = 0.05, 1.0
"""How soon, and at most how late, a job that has not started is looked at again."""
VISIBLE_S_MAX = 10.0
"""How long a server may take to know a job whose transaction was committed: with a leader it takes
far less.
"""
CLOCK_SLACK_MS = 60_000
"""Maximum distance between the time in a job's id and its time of creation."""
TAIL_LINES, TAIL_BYTES = 20, 8192
"""Of the log of a job that failed: what its error carries, at most."""


def events(state: ClientState, after: str | None = None) -> RequestPlan[None]:
    """Emits every state change from now on, or after an event's id; survives lost connections."""
    last, retrying = after, RetryBackoff(state, "events")
    while True:
        reader = EventReader()
        try:
            yield _open_stream(last, QUIET_S)
            while (chunk := (yield ReadMore())) is not None:
                retrying.reset()
                for event in reader.feed(chunk):
                    last = event.id or last
                    yield EmitItem(event)
            yield Sleep(FIRST_S)
        except SilenceError:
            continue
        except (UnreachableError, ApiError) as error:
            yield from retrying.after(error)


def _open_stream(after: str | None, quiet_s: float) -> OpenStream:
    headers = {"Accept": "text/event-stream"}
    if after:
        headers["Last-Event-ID"] = after
    return OpenStream(calls.stream(), headers, quiet_s)


def follow_log(state: ClientState, job_id: str, tail: int | None = None) -> RequestPlan[None]:
    """Emits the log of a job, one execution after the other, until it has ended.

    `tail`: the first execution starts with its last lines only. After a lost connection it resumes
    at the same byte.
    """
    shown: str | None = None
    waits = 0
    yield from _await_visible(state, job_id)
    while True:
        job = yield from fetch(state, calls.get_job(job_id))
        if job.execution_id is not None and job.execution_id != shown:
            shown, waits = job.execution_id, 0
            start = 0 if tail is None else (yield from _last_lines(state, job_id, shown, tail))
            tail = None
            yield from _follow_execution(state, job_id, shown, start)
        elif job.status in FINAL:
            return
        else:
            waits += 1
            yield Sleep(min(LOG_POLL_S * waits, LOG_POLL_S_MAX))


def _last_lines(state: ClientState, job_id: str, execution_id: str, tail: int) -> RequestPlan[int]:
    """Emits the last lines, and returns the offset to continue from."""
    call = calls.job_logs(job_id, execution_id=execution_id, tail=tail)
    answer = yield from ask(state, call)
    yield EmitItem(answer.body)
    return int(answer.headers.get("rota-log-offset", 0)) + len(answer.body)


def _follow_execution(
    state: ClientState, job_id: str, execution_id: str, offset: int
) -> RequestPlan[None]:
    retrying = RetryBackoff(state, execution_id)
    while True:
        call = calls.job_logs(job_id, follow=True, execution_id=execution_id, offset=offset)
        try:
            yield OpenStream(call, {"Accept": "text/plain"}, QUIET_S)
            retrying.reset()
            while (chunk := (yield ReadMore())) is not None:
                offset += len(chunk)
                yield EmitItem(chunk)
        except SilenceError:
            continue
        except (UnreachableError, ApiError) as error:
            yield from retrying.after(error)
            continue
        # A stopping server ends its streams too: only the execution says whether it has ended.
        execution = yield from fetch(state, calls.get_execution(execution_id))
        if execution.end_time is not None:
            return
        yield Sleep(FIRST_S)


def _await_visible(
    state: ClientState, job_id: str, within_s: float = VISIBLE_S_MAX
) -> RequestPlan[None]:
    """Waits until a job that was submitted in a transaction is known; raises NotFoundError."""
    until_s = state.clock.elapsed_s() + within_s
    while job_id in state.expected_jobs:
        try:
            yield from fetch(state, calls.get_job(job_id))
            state.expected_jobs.pop(job_id, None)
        except NotFoundError:
            if state.clock.elapsed_s() >= until_s:
                raise
            yield Sleep(FIRST_S)


def wait_for_end(state: ClientState, job_id: str, timeout_s: float | None) -> RequestPlan[JobView]:
    """Waits until a job has ended, and returns it."""
    yield from JobWaiter(state, (job_id,), timeout_s=timeout_s).plan()
    job = yield from fetch(state, calls.get_job(job_id))
    return job


def wait_for_result(state: ClientState, job_id: str, timeout_s: float | None) -> RequestPlan[Any]:
    """Waits for the result of a job; raises JobFailed."""
    job = yield from wait_for_end(state, job_id, timeout_s)
    if job.status == "succeeded":
        return job.result
    tail = b"" if job.execution_id is None else (yield from _tail(job))
    raise JobFailed(job, tail.decode("utf-8", "replace"))


def _tail(job: JobView) -> RequestPlan[bytes]:
    tail = b""
    try:
        call = calls.job_logs(job.job_id, tail=TAIL_LINES)
        yield OpenStream(call, {"Accept": "text/plain"}, QUIET_S)
        while (chunk := (yield ReadMore())) is not None:
            tail = (tail + chunk)[-TAIL_BYTES:]
    except (UnreachableError, ApiError):
        # The failure of the job is what matters; its log only helps to explain it.
        return tail
    return tail


class JobWaiter:
    """Waits for a set of jobs to end."""

    def __init__(
        self,
        state: ClientState,
        job_ids: Iterable[str],
        *,
        timeout_s: float | None = None,
        on_end: Callable[[str, str], None] | None = None,
    ) -> None:
        self._state = state
        self._order = tuple(dict.fromkeys(job_ids))
        self._pending = dict.fromkeys(self._order)
        self._ended: dict[str, str] = {}
        self._on_end = on_end
        self._last: str | None = None
        clock = state.clock
        self._deadline_s = None if timeout_s is None else clock.elapsed_s() + timeout_s

    def plan(self) -> RequestPlan[dict[str, str]]:
        """Returns the status of each job in the order given; raises WaitTimeoutError,
        NotFoundError.
        """
        retrying = RetryBackoff(self._state, "wait")
        for job_id in self._order:
            yield from self._await_visible(job_id)
        while self._pending:
            try:
                yield from self._listen(retrying)
            except SilenceError:
                self._check_time()
            except (UnreachableError, ApiError) as error:
                self._check_time()
                yield from retrying.after(error)
        return {job_id: self._ended[job_id] for job_id in self._order}

    def _await_visible(self, job_id: str) -> RequestPlan[None]:
        left_s = VISIBLE_S_MAX
        if self._deadline_s is not None:
            left_s = min(left_s, self._deadline_s - self._state.clock.elapsed_s())
        try:
            yield from _await_visible(self._state, job_id, left_s)
        except NotFoundError:
            self._check_time()
            raise

    def _listen(self, retrying: RetryBackoff) -> RequestPlan[None]:
        """Reads one connection, until it ends or no job is pending."""
        reader = EventReader()
        yield _open_stream(self._last, self._quiet_s())
        retrying.reset()
        # The stream is open: jobs that end from here on are certain to be in it.
        yield from self._read_states()
        while self._pending:
            self._check_time()
            chunk = yield ReadMore()
            if chunk is None:
                yield Sleep(FIRST_S)
                return
            for event in reader.feed(chunk):
                yield from self._on_event(event)

    def _quiet_s(self) -> float:
        if self._deadline_s is None:
            return RECHECK_S
        return min(RECHECK_S, max(0.01, self._deadline_s - self._state.clock.elapsed_s()))

    def _check_time(self) -> None:
        if self._deadline_s is not None and self._state.clock.elapsed_s() >= self._deadline_s:
            raise WaitTimeoutError(tuple(self._pending))

    def _on_event(self, event: Event) -> RequestPlan[None]:
        self._last = event.id or self._last
        if event.kind == "reset":
            yield from self._read_states()
            return
        change = event.change
        if change.kind == "job":
            self._record_end(change.id, change.status)

    def _read_states(self) -> RequestPlan[None]:
        if len(self._pending) >= PAGED_FROM:
            yield from self._page_through()
        for job_id in tuple(self._pending)[: PAGED_FROM - 1]:
            job = yield from fetch(self._state, calls.get_job(job_id))
            self._record_end(job_id, job.status)

    def _page_through(self) -> RequestPlan[None]:
        oldest, newest = min(self._pending), max(self._pending)
        search = JobSearch(
            status=FINAL,
            created_after=calls.uuid7_time(oldest, later_ms=-CLOCK_SLACK_MS),
            created_before=calls.uuid7_time(newest, later_ms=CLOCK_SLACK_MS),
            limit=PAGE_ITEMS_MAX,
        )

        def keep(job: JobView) -> bool:
            self._record_end(job.job_id, job.status)
            return bool(self._pending) and job.job_id >= oldest

        yield from all_jobs(self._state, search, keep)

    def _record_end(self, job_id: str, status: str) -> None:
        if status in FINAL and job_id in self._pending:
            del self._pending[job_id]
            self._ended[job_id] = status
            if self._on_end is not None:
                self._on_end(job_id, status)
