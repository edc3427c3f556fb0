"""Records about the quarantine: jobs whose writes the tables refuse, and their repair."""

from __future__ import annotations

from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.wire.jobs import JobIdText, Time
from rota.wire.limits import REPAIR_JOBS_MAX


class QuarantinedWriteView(msgspec.Struct):
    """A write that could not be projected into the tables."""

    seq: int
    """Its record in the journal."""
    size: int
    """Bytes as it is stored."""
    kind: str
    """What it does, such as `PutJob`; empty if it is too large to be shown."""
    fields: dict[str, Any]
    """Its fields by name; long texts are cut."""


class QuarantinedJobView(msgspec.Struct):
    """A job in quarantine: it runs, but lists do not have it as it is."""

    job_id: str
    seq: int
    """The journal record from which on its writes are set aside."""
    at: Time
    """The time of that record."""
    reason: str
    """The database's message."""
    count: int
    """How many writes are set aside."""
    writes: list[QuarantinedWriteView]
    """The first of them."""


class QuarantinePage(msgspec.Struct):
    """A page of jobs in quarantine, by job id."""

    items: list[QuarantinedJobView]
    next_cursor: str | None


class RepairSpec(msgspec.Struct, kw_only=True, forbid_unknown_fields=True):
    """Jobs whose writes are to be projected again."""

    job_ids: Annotated[list[JobIdText], Meta(max_length=REPAIR_JOBS_MAX)] = []
    """Left out or empty: all jobs in quarantine."""


class RepairFailure(msgspec.Struct):
    """A job that stays in quarantine, and why."""

    job_id: str
    reason: str


class RepairView(msgspec.Struct):
    """Result of a repair."""

    repaired: list[str]
    """Ids of jobs that are in the tables again."""
    failed: list[RepairFailure]
