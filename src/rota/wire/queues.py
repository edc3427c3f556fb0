"""Queues and tenants: priorities, weights, rate limits, limits of jobs, quotas, and the number of
jobs by state.
"""

from __future__ import annotations

from typing import Annotated

import msgspec
from msgspec import UNSET, Meta, UnsetType

from rota.wire.formats import ByteSize, SomeTime
from rota.wire.jobs import Time
from rota.wire.limits import (
    JOB_FILE_BYTES,
    JOB_LOG_BYTES,
    JOB_OPEN_FILES,
    JOB_OPEN_FILES_MAX,
    JOB_OPEN_FILES_MIN,
    JOB_PROCESSES,
    JOB_PROCESSES_MAX,
    LOG_BYTES_PER_EXECUTION_MAX,
    PRIORITY_MAX,
    RESULT_BYTES_MAX,
)


class RateLimitSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Rate limit: at most `count` starts in each `per`."""

    count: Annotated[int, Meta(ge=1, le=1_000_000)]
    per: SomeTime

    def __post_init__(self) -> None:
        if self.per.ms == 0:
            raise ValueError("per must be more than 0")


class LimitsSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Limits of each job of the queue; a field that is left out stays, null restores
    its default.
    """

    processes: Annotated[int, Meta(ge=1, le=JOB_PROCESSES_MAX)] | UnsetType | None = UNSET
    open_files: (
        Annotated[int, Meta(ge=JOB_OPEN_FILES_MIN, le=JOB_OPEN_FILES_MAX)] | UnsetType | None
    ) = UNSET
    file_size: ByteSize | UnsetType | None = UNSET
    log_size: ByteSize | UnsetType | None = UNSET
    result_size: ByteSize | UnsetType | None = UNSET

    def __post_init__(self) -> None:
        most = {"log_size": LOG_BYTES_PER_EXECUTION_MAX, "result_size": RESULT_BYTES_MAX}
        for name, limit in most.items():
            given = getattr(self, name)
            if isinstance(given, ByteSize) and given.bytes > limit:
                raise ValueError(f"{name} is at most {limit} bytes: the server keeps no more")


class LimitsView(msgspec.Struct):
    """Limits of each job of the queue, which its worker enforces; sizes in bytes."""

    processes: int = JOB_PROCESSES
    open_files: int = JOB_OPEN_FILES
    file_size: int = JOB_FILE_BYTES
    log_size: int = JOB_LOG_BYTES
    result_size: int = RESULT_BYTES_MAX


class QueueSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of a queue. PUT resets fields that are left out, PATCH keeps them; null restores a
    default.
    """

    priority: Annotated[int, Meta(ge=-PRIORITY_MAX, le=PRIORITY_MAX)] | UnsetType | None = UNSET
    weight: Annotated[float, Meta(gt=0, le=1000000)] | UnsetType | None = UNSET
    max_workers: Annotated[int, Meta(ge=0, le=1000000)] | UnsetType | None = UNSET
    rate_limit: RateLimitSpec | UnsetType | None = UNSET
    paused: bool | UnsetType | None = UNSET
    limits: LimitsSpec | UnsetType | None = UNSET


class RateLimitView(msgspec.Struct):
    """Rate limit in force; `per` in seconds."""

    count: int
    per: float | int


class DepthView(msgspec.Struct):
    """Jobs of the queue by state."""

    pending: int
    queued: int
    running: int
    cancelling: int


class QueueView(msgspec.Struct):
    """Settings and depth of a queue."""

    name: str
    priority: int
    weight: float
    max_workers: int | None
    rate_limit: RateLimitView | None
    paused: bool
    depth: DepthView
    created_at: Time
    limits: LimitsView = msgspec.field(default_factory=LimitsView)
    rate: float | None = None
    """Jobs that ended per second in the last minute; null: not known yet, or not asked for."""


class QueuePage(msgspec.Struct):
    """A page of queues, by name."""

    items: list[QueueView]
    next_cursor: str | None


class CountAnswer(msgspec.Struct):
    """How many jobs were changed."""

    count: int


COUNT_MAX = 1_000_000_000


class QuotaSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Quota: the most that a tenant may have at once; left out or null: no limit."""

    running: Annotated[int, Meta(ge=0, le=COUNT_MAX)] | None = None
    queued: Annotated[int, Meta(ge=0, le=COUNT_MAX)] | None = None
    cpu: Annotated[float, Meta(ge=0, le=COUNT_MAX)] | None = None
    memory: ByteSize | None = None


class TenantSpec(msgspec.Struct, forbid_unknown_fields=True):
    """Settings of a tenant; a field that is left out returns to its default."""

    weight: Annotated[float, Meta(gt=0, le=1_000_000)] = 1.0
    quota: QuotaSpec | None = None


class QuotaView(msgspec.Struct):
    """Quota in force; memory in bytes."""

    running: int | None
    queued: int | None
    cpu: float | None
    memory: int | None


class TenantView(msgspec.Struct):
    """A tenant's settings, its jobs, and its share."""

    name: str
    weight: float
    quota: QuotaView
    depth: DepthView
    cpu: float
    """Cores that its executions use."""
    memory: int
    share: float
    """Share of the fleet that it uses now, of its dominant resource."""
    entitlement: float
    """Share that its weight gives it among the tenants with live jobs."""
    usage: float
    """Past use in hours of the whole fleet; older use counts less."""


class TenantPage(msgspec.Struct):
    """A page of the tenants with jobs or settings, by name."""

    items: list[TenantView]
    next_cursor: str | None
