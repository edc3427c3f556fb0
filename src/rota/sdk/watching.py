"""Follows what changes: the stream of state changes, a job's log as it grows, jobs until they end.

Streams make it fast, asking makes it right: whenever a stream breaks or falls silent, the state is
read again, so a change that was missed costs a moment and nothing else.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable, Iterator
from dataclasses import dataclass, replace

import httpx2
import msgspec

from rota.sdk import calls
from rota.sdk.answers import BACKOFF_FIRST_S
from rota.sdk.calls import FINAL, JobSearch
from rota.sdk.carrier import Carrier, Retrying
from rota.sdk.errors import AnswerError, ApiError, SilenceError, UnreachableError, WaitTimeoutError
from rota.wire.jobs import JobView
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.service import ChangeView

QUIET_S = 60.0
"""A stream silent for this long is opened anew: the server sends a sign of life more often."""
LOOK_AGAIN_S = 5.0
"""Jobs waited for are asked about this often even if the stream says nothing."""
SURVEY_FROM = 20
"""From this many jobs on it is cheaper to page through all of their time than to ask for each."""
LOG_LOOK_S, LOG_LOOK_S_MAX = 0.05, 1.0
"""How soon, and at most how late, a job that has not started is looked at again."""
CLOCK_SLACK_MS = 60_000
"""How far a job's id and its time of creation may lie apart."""


@dataclass(frozen=True, slots=True)
class Event:
    """One event of the stream; `id` is where to resume.

    Its kind is `message` for a change, or `reset` where changes were missed for good: what one
    knows must then be read anew.
    """

    id: str
    kind: str
    data: bytes

    @property
    def change(self) -> ChangeView:
        """What changed."""
        try:
            return msgspec.json.decode(self.data, type=ChangeView)
        except msgspec.MsgspecError as error:
            raise AnswerError(f"cannot read an event of the stream: {error}") from error


def events(carrier: Carrier, *, after: str | None = None) -> Iterator[Event]:
    """Every state change from now on, or after an event's id; goes on through lost connections."""
    last, retrying = after, Retrying(carrier, "events")
    while True:
        try:
            for event in stream_once(carrier, last, QUIET_S):
                retrying.progressed()
                if event is not None:
                    last = event.id or last
                    yield event
            carrier.clock.sleep(BACKOFF_FIRST_S)
        except SilenceError:
            continue
        except (UnreachableError, ApiError) as error:
            retrying.after(error)


def stream_once(carrier: Carrier, after: str | None, quiet_s: float) -> Iterator[Event | None]:
    """Events of one connection, until it ends; None once first, when it stands."""
    headers = {"Accept": "text/event-stream"}
    if after:
        headers["Last-Event-ID"] = after
    with carrier.open(calls.stream(), headers, quiet_s=quiet_s) as response:
        yield None
        for event in httpx2.EventSource(response):
            if event.data:
                yield Event(event.id, event.event, event.data.encode())


def follow_log(carrier: Carrier, job_id: str) -> Iterator[bytes]:
    """What a job printed and prints, one execution after the other, until it has ended.

    A lost connection is taken up again at the byte where it broke off.
    """
    shown: str | None = None
    waits = 0
    while True:
        job = carrier.call(calls.get_job(job_id))
        if job.execution_id is not None and job.execution_id != shown:
            shown, waits = job.execution_id, 0
            yield from _follow_execution(carrier, job_id, shown)
        elif job.status in FINAL:
            return
        else:
            waits += 1
            carrier.clock.sleep(min(LOG_LOOK_S * waits, LOG_LOOK_S_MAX))


def _follow_execution(carrier: Carrier, job_id: str, execution_id: str) -> Iterator[bytes]:
    offset, retrying = 0, Retrying(carrier, execution_id)
    while True:
        call = calls.job_logs(job_id, follow=True, execution_id=execution_id, offset=offset)
        try:
            with carrier.open(call, {"Accept": "text/plain"}, quiet_s=QUIET_S) as response:
                retrying.progressed()
                for chunk in response.iter_bytes():
                    offset += len(chunk)
                    yield chunk
        except SilenceError:
            continue
        except (UnreachableError, ApiError) as error:
            retrying.after(error)
            continue
        # A server that stops ends its streams too: only the execution says that it is over.
        if carrier.call(calls.get_execution(execution_id)).end_time is not None:
            return
        carrier.clock.sleep(BACKOFF_FIRST_S)


def all_jobs(carrier: Carrier, search: JobSearch) -> Iterator[JobView]:
    """All jobs that match, newest first, page after page."""
    while True:
        page = carrier.call(calls.list_jobs(search))
        yield from page.items
        if page.next_cursor is None:
            return
        search = replace(search, cursor=page.next_cursor)


class Waiting:
    """Waits for jobs to end."""

    def __init__(
        self,
        carrier: Carrier,
        job_ids: Iterable[str],
        *,
        timeout_s: float | None = None,
        on_end: Callable[[str, str], None] | None = None,
    ) -> None:
        self._carrier = carrier
        self._order = tuple(dict.fromkeys(job_ids))
        self._pending = dict.fromkeys(self._order)
        self._ended: dict[str, str] = {}
        self._on_end = on_end
        self._last: str | None = None
        clock = carrier.clock
        self._deadline_s = None if timeout_s is None else clock.elapsed_s() + timeout_s

    def run(self) -> dict[str, str]:
        """The status each ended in, in the order given; raises WaitTimeoutError, NotFoundError."""
        retrying = Retrying(self._carrier, "wait")
        while self._pending:
            try:
                for event in stream_once(self._carrier, self._last, self._quiet_s()):
                    retrying.progressed()
                    self._hear(event)
                    if not self._pending:
                        break
                    self._check_time()
                else:
                    self._carrier.clock.sleep(BACKOFF_FIRST_S)
            except SilenceError:
                self._check_time()
            except (UnreachableError, ApiError) as error:
                self._check_time()
                retrying.after(error)
        return {job_id: self._ended[job_id] for job_id in self._order}

    def _quiet_s(self) -> float:
        if self._deadline_s is None:
            return LOOK_AGAIN_S
        return min(LOOK_AGAIN_S, max(0.01, self._deadline_s - self._carrier.clock.elapsed_s()))

    def _check_time(self) -> None:
        if self._deadline_s is not None and self._carrier.clock.elapsed_s() >= self._deadline_s:
            raise WaitTimeoutError(tuple(self._pending))

    def _hear(self, event: Event | None) -> None:
        if event is not None:
            self._last = event.id or self._last
        if event is None or event.kind == "reset":
            # The stream stands: what ends from here on is sure to be in it.
            self._survey()
            return
        change = event.change
        if change.kind == "job":
            self._take(change.id, change.status)

    def _survey(self) -> None:
        if len(self._pending) >= SURVEY_FROM:
            self._page_through()
        for job_id in tuple(self._pending)[: SURVEY_FROM - 1]:
            self._take(job_id, self._carrier.call(calls.get_job(job_id)).status)

    def _page_through(self) -> None:
        oldest, newest = min(self._pending), max(self._pending)
        search = JobSearch(
            status=FINAL,
            created_after=calls.made_at(oldest, later_ms=-CLOCK_SLACK_MS),
            created_before=calls.made_at(newest, later_ms=CLOCK_SLACK_MS),
            limit=PAGE_ITEMS_MAX,
        )
        for job in all_jobs(self._carrier, search):
            self._take(job.job_id, job.status)
            if not self._pending or job.job_id < oldest:
                return

    def _take(self, job_id: str, status: str) -> None:
        if status in FINAL and job_id in self._pending:
            del self._pending[job_id]
            self._ended[job_id] = status
            if self._on_end is not None:
                self._on_end(job_id, status)
