"""What can be asked for in pages: which of a kind, and where the last page ended."""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from rota.core.model import (
    ExecutionState,
    Instant,
    JobId,
    JobState,
    ScheduleId,
    TriggerId,
    WorkerId,
)
from rota.core.schedule_model import OccurrenceDecision
from rota.core.trigger_model import EventDecision

T = TypeVar("T")


class Page(list[T]):
    """Those found, newest first; `rest`: before which id the search goes on, if it ended early.

    Only a query that says how far to `look` gets such a page. It may be short, even empty.
    """

    __slots__ = ("rest",)

    def __init__(self, found: Iterable[T] = (), rest: str | None = None) -> None:
        super().__init__(found)
        self.rest = rest


class JobQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which jobs, newest first; `before` is the id of the last one already seen.

    `after` is an id that all of them come after, whatever is seen already.
    `states` are alternatives, `labels` must all be there; the bounds of `created_at` are exclusive.
    `look` says how much work a page is worth, in entries of indexes; None: as much as it takes.
    """

    states: tuple[JobState, ...] = ()
    priority: int | None = None
    not_priority: int | None = None
    queue: str | None = None
    tenant: str | None = None
    name: str | None = None
    labels: tuple[tuple[str, str], ...] = ()
    created_after: Instant | None = None
    created_before: Instant | None = None
    before: str | None = None
    after: str | None = None
    limit: int = 50
    look: int | None = None


class ExecutionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which executions, newest first; `before` and `look` are as for jobs."""

    job_id: JobId | None = None
    worker_id: WorkerId | None = None
    states: tuple[ExecutionState, ...] = ()
    before: str | None = None
    limit: int = 50
    look: int | None = None


class SampleQuery(msgspec.Struct, frozen=True, kw_only=True):
    """The first executions of each of some stretches of ids that follow each other."""

    bounds: tuple[str, ...]
    """Rising: stretch n begins at bound n and ends before the next one."""
    worker_id: WorkerId | None = None
    tenant: str | None = None
    """Tells this tenant's apart; all of a stretch are looked at all the same."""
    limit: int = 1_000
    """Of each stretch."""


class Sampled(msgspec.Struct, frozen=True):
    """So many of the executions of a stretch that were looked at are alike."""

    stretch: int
    worker_id: WorkerId
    state: ExecutionState
    count: int
    last: str
    """The largest id among them."""
    is_own: bool = True
    """Of the tenant that was asked for."""


class OccurrenceQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which instants of a schedule, newest first; the bounds of `nominal` are exclusive."""

    schedule_id: ScheduleId
    decisions: tuple[OccurrenceDecision, ...] = ()
    after: Instant | None = None
    before: Instant | None = None
    limit: int = 50


class TriggerDecisionQuery(msgspec.Struct, frozen=True, kw_only=True):
    """What a trigger made of events, newest first; `before` is the id of the last already seen."""

    trigger_id: TriggerId
    decisions: tuple[EventDecision, ...] = ()
    before: str | None = None
    limit: int = 50


class EventQuery(msgspec.Struct, frozen=True, kw_only=True):
    """Which events, newest first; `before` is (at, key) of the last already seen."""

    type: str | None = None
    tenant: str | None = None
    before: tuple[Instant, str] | None = None
    limit: int = 50
