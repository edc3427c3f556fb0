"""Asks a server for what ran in its cell, as lines of recorded history."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from typing import Any

import msgspec

from rota.cli.options import now, search_of
from rota.sdk import Client, NotFoundError
from rota.sdk.methods import admin_calls
from rota.simulate.history import (
    VERSION,
    JobLine,
    Opening,
    QueueLine,
    QuotaLine,
    RateLine,
    TenantLine,
    WorkerLine,
)
from rota.wire.jobs import JobView
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.queues import QueueView
from rota.wire.tenants import TenantView
from rota.wire.workers import WorkerView

RAN = ("succeeded", "failed", "cancelled")
"""The ends of a job that may have run."""
_PLAIN_KINDS = ("cpu", "memory", "storage", "gpu")


def opening_of(client: Client) -> Opening:
    """The cell as it is now: those of its workers that are there, and its queues."""
    workers = client.workers(status=("online", "draining", "unhealthy"))
    return Opening(
        VERSION,
        exported_at=now(),
        workers=[worker_line(worker) for worker in workers],
        queues=[queue_line(queue) for queue in client.queues()],
        tenants=_tenants(client),
    )


def _tenants(client: Client) -> list[TenantLine]:
    found: list[TenantLine] = []
    cursor: str | None = None
    while True:
        try:
            page = client.call(admin_calls.list_tenants(limit=PAGE_ITEMS_MAX, cursor=cursor))
        except NotFoundError:  # a server of before there were any
            return found
        found += [tenant_line(tenant) for tenant in page.items]
        cursor = page.next_cursor
        if cursor is None:
            return found


def tenant_line(tenant: TenantView) -> TenantLine:
    """A tenant as the record has it."""
    quota = tenant.quota
    return TenantLine(tenant.name, tenant.weight, QuotaLine(quota.running, quota.cpu, quota.memory))


def lines_of(client: Client, given: Mapping[str, Any]) -> Iterator[JobLine]:
    """The jobs that ran, newest first."""
    everything = {"status": RAN, "priority": None, "name": None, "label": ()}
    for job in client.jobs(search_of({**everything, **given}, limit=PAGE_ITEMS_MAX)):
        # Of an array or gang it is the members that ran, and they are jobs themselves.
        is_band = job.array is not None or job.gang is not None
        if job.started_at is not None and job.finished_at is not None and not is_band:
            yield job_line(job)


def job_line(job: JobView) -> JobLine:
    """A job that ran, as the record has it."""
    needs = msgspec.structs.asdict(job.requirements)
    return msgspec.convert(
        {
            "job_id": job.job_id,
            "name": job.name,
            # A run of a backfill is for an instant of long ago, and came when it was made.
            "submitted_at": max(job.scheduled_at, job.created_at),
            "started_at": job.started_at,
            "finished_at": job.finished_at,
            "queue": job.queue,
            "tenant": job.tenant,
            "priority": job.priority,
            "capabilities": needs.pop("capabilities"),
            "requirements": needs,
            "expected_runtime": job.expected_runtime,
            "timeout": job.timeout,
            "preemptible": job.preemptible,
            "dependencies": [one.job_id for one in job.dependencies],
            "affinity": None if job.affinity is None else msgspec.structs.asdict(job.affinity),
        },
        JobLine,
    )


def worker_line(worker: WorkerView) -> WorkerLine:
    """A worker as the record has it."""
    kinds = worker.resources
    return msgspec.convert(
        {
            "resources": {
                **{name: getattr(kinds, name).capacity for name in _PLAIN_KINDS},
                "custom": {name: amount.capacity for name, amount in kinds.custom.items()},
            },
            "capabilities": worker.capabilities,
            "queues": worker.queues,
            "labels": worker.labels,
            "only": worker.only,
        },
        WorkerLine,
    )


def queue_line(queue: QueueView) -> QueueLine:
    """A queue as the record has it."""
    rate = queue.rate_limit
    return QueueLine(
        queue.name,
        queue.priority,
        queue.weight,
        queue.max_workers,
        None if rate is None else RateLine(rate.count, rate.per),
    )
