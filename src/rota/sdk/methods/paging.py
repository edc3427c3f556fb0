"""Pages through lists."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import replace
from typing import Any, Protocol, TypeVar

from rota.sdk import calls
from rota.sdk.calls import Call, JobSearch
from rota.sdk.methods import event_calls, schedule_calls
from rota.sdk.request_plan import ClientState, EmitItem, RequestPlan, fetch
from rota.wire.events import HookView, TriggerView
from rota.wire.jobs import JobView
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.queues import QueueView
from rota.wire.schedules import CalendarView, ScheduleView
from rota.wire.workers import WorkerView

T = TypeVar("T")


class Page(Protocol):
    """Page of a list."""

    @property
    def items(self) -> list[Any]: ...

    @property
    def next_cursor(self) -> str | None:
        """Cursor of the next page; None: this is the last one."""
        ...


def all_jobs(
    state: ClientState, search: JobSearch, keep: Callable[[JobView], bool] | None = None
) -> RequestPlan[None]:
    """Emits all jobs that match, newest first; or passes them to `keep` until it returns False."""
    while True:
        page = yield from fetch(state, calls.list_jobs(search))
        for job in page.items:
            if keep is None:
                yield EmitItem(job)
            elif not keep(job):
                return
        if page.next_cursor is None:
            return
        search = replace(search, cursor=page.next_cursor)


def all_workers(
    state: ClientState, status: Sequence[str], capabilities: Sequence[str]
) -> RequestPlan[list[WorkerView]]:
    """Lists workers that are in one of the statuses and have all the capabilities."""
    return _gather(
        state,
        lambda cursor: calls.list_workers(
            status=status, capabilities=capabilities, limit=PAGE_ITEMS_MAX, cursor=cursor
        ),
    )


def all_queues(state: ClientState) -> RequestPlan[list[QueueView]]:
    return _gather(state, lambda cursor: calls.list_queues(limit=PAGE_ITEMS_MAX, cursor=cursor))


def all_schedules(
    state: ClientState, *, name: str | None, tenant: str | None, owner: str | None
) -> RequestPlan[list[ScheduleView]]:
    return _gather(
        state,
        lambda cursor: schedule_calls.list_schedules(
            name=name, tenant=tenant, owner=owner, limit=PAGE_ITEMS_MAX, cursor=cursor
        ),
    )


def all_calendars(state: ClientState) -> RequestPlan[list[CalendarView]]:
    return _gather(
        state,
        lambda cursor: schedule_calls.list_calendars(limit=PAGE_ITEMS_MAX, cursor=cursor),
    )


def all_triggers(
    state: ClientState, *, name: str | None, owner: str | None
) -> RequestPlan[list[TriggerView]]:
    return _gather(
        state,
        lambda cursor: event_calls.list_triggers(
            name=name, owner=owner, limit=PAGE_ITEMS_MAX, cursor=cursor
        ),
    )


def all_hooks(state: ClientState) -> RequestPlan[list[HookView]]:
    return _gather(
        state, lambda cursor: event_calls.list_hooks(limit=PAGE_ITEMS_MAX, cursor=cursor)
    )


def _gather(
    state: ClientState, page_at: Callable[[str | None], Call[Any]]
) -> RequestPlan[list[Any]]:
    found: list[Any] = []
    cursor: str | None = None
    while True:
        page: Page = yield from fetch(state, page_at(cursor))
        found += page.items
        cursor = page.next_cursor
        if cursor is None:
            return found
