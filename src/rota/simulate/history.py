"""Reads and writes recorded history: what ran in a cell, one JSON object a line.

The first line says what the cell was: its workers and queues. Every other line is a job that ran.
A job that was tried more than once is told by its last try.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from datetime import UTC, datetime
from typing import Annotated, Any

import msgspec
from msgspec import Meta

from rota.core.commands import AnyInput, PutQueueSettings, PutTenantSettings
from rota.core.model import Millis, Needs, Quota, RateLimit, Resources, Terms
from rota.simulate.fleet import FleetPlan, MachineGroup
from rota.simulate.limits import PROCESSORS_MAX, SPAN_MS_MAX, TRACE_JOBS_MAX
from rota.simulate.reading import Source, TraceError, read_lines
from rota.simulate.wishes import AffinityLine
from rota.simulate.workload import ONCE, GraphError, Trace, Work, arranged

HISTORY_VERSION = 1

Moment = Annotated[datetime, Meta(tz=True)]
Cpus = Annotated[float, Meta(ge=0, le=PROCESSORS_MAX)]
Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]
Seconds = Annotated[float, Meta(ge=0, le=SPAN_MS_MAX / 1000)]


class Amounts(msgspec.Struct, omit_defaults=True):
    """What a job asked for, or a worker has."""

    cpu: Cpus = 0.0
    memory: Bytes = 0
    storage: Bytes = 0
    gpu: Cpus = 0.0
    custom: dict[str, Cpus] = {}

    def resources(self) -> Resources:
        """As the scheduler counts them."""
        return Resources(
            cpu_milli=round(self.cpu * 1000),
            memory=self.memory,
            storage=self.storage,
            gpu_milli=round(self.gpu * 1000),
            custom=tuple((name, round(n * 1000)) for name, n in sorted(self.custom.items())),
        )


class WorkerLine(msgspec.Struct, omit_defaults=True):
    """A worker that was there."""

    resources: Amounts
    capabilities: list[str] = []
    queues: list[str] | None = None
    labels: dict[str, str] = {}
    only: list[str] = []


class RateLine(msgspec.Struct):
    """So many starts in so many seconds."""

    count: Annotated[int, Meta(ge=1)]
    per: Annotated[float, Meta(gt=0, le=SPAN_MS_MAX / 1000)]


class QueueLine(msgspec.Struct, omit_defaults=True):
    """A queue whose settings matter."""

    name: str
    priority: int = 0
    weight: Annotated[float, Meta(gt=0)] = 1.0
    max_workers: Annotated[int, Meta(ge=0)] | None = None
    rate_limit: RateLine | None = None


class QuotaLine(msgspec.Struct, omit_defaults=True):
    """How much a tenant may have at once."""

    running: Annotated[int, Meta(ge=0)] | None = None
    cpu: Cpus | None = None
    memory: Bytes | None = None


class TenantLine(msgspec.Struct, omit_defaults=True):
    """A tenant whose settings matter."""

    name: str
    weight: Annotated[float, Meta(gt=0)] = 1.0
    quota: QuotaLine | None = None


class HistoryHeader(msgspec.Struct, omit_defaults=True):
    """The first line."""

    rota_history: int
    exported_at: Moment | None = None
    workers: list[WorkerLine] = []
    queues: list[QueueLine] = []
    tenants: list[TenantLine] = []


class JobLine(msgspec.Struct, omit_defaults=True):
    """A job that ran."""

    job_id: str
    name: str
    submitted_at: Moment
    """When it was to run: on arrival, or the time that was asked for."""
    started_at: Moment
    finished_at: Moment
    queue: str = "default"
    tenant: str = "default"
    priority: int = 0
    requirements: Amounts = msgspec.field(default_factory=lambda: Amounts(cpu=1.0))
    capabilities: list[str] = []
    expected_runtime: Seconds | None = None
    timeout: Seconds | None = None
    preemptible: bool = False
    dependencies: list[str] = []
    affinity: AffinityLine | None = None


class RecordedHistory(Trace):
    """A recorded workload, and the cell it was recorded in.

    Of lines in whatever order; raises GraphError if jobs make a circle.
    """

    def __init__(self, title: str, jobs: Sequence[JobLine], opening: HistoryHeader) -> None:
        ran = [job for job in jobs if job.finished_at >= job.started_at]
        first = min((_instant(job.submitted_at) for job in ran), default=0)
        super().__init__(title, arranged(*_history_works(ran, first)), dropped=len(jobs) - len(ran))
        self.start_ms = first
        """When the first of them came, since 1970."""
        self._header = opening

    def fleet(self) -> FleetPlan | None:
        """The workers that were there, if the record has them."""
        workers = self._header.workers
        if not workers:
            return None
        return FleetPlan(
            tuple(
                MachineGroup(
                    1,
                    worker.resources.resources(),
                    tuple(sorted(worker.capabilities)),
                    None if worker.queues is None else tuple(sorted(worker.queues)),
                    tuple(sorted(worker.labels.items())),
                    tuple(sorted(worker.only)),
                )
                for worker in workers
            )
        )

    def settings(self) -> list[AnyInput]:
        """Queues and tenants as they were."""
        queues = [
            PutQueueSettings(
                name=queue.name,
                priority=queue.priority,
                weight=queue.weight,
                max_workers=queue.max_workers,
                rate_limit=_rate(queue.rate_limit),
            )
            for queue in self._header.queues
        ]
        tenants = [
            PutTenantSettings(name=tenant.name, weight=tenant.weight, quota=_quota(tenant.quota))
            for tenant in self._header.tenants
        ]
        return [*queues, *tenants]


def _rate(rate: RateLine | None) -> RateLimit | None:
    return None if rate is None else RateLimit(rate.count, max(1, round(rate.per * 1000)))


def _quota(quota: QuotaLine | None) -> Quota | None:
    """Without the limit on what waits: what was accepted then is not refused now."""
    if quota is None:
        return None
    cpu_milli = None if quota.cpu is None else round(quota.cpu * 1000)
    return Quota(quota.running, None, cpu_milli, quota.memory)


_header_decoder = msgspec.json.Decoder(HistoryHeader)
_job_decoder = msgspec.json.Decoder(JobLine)


def read_history(source: Source) -> RecordedHistory:
    """What `rota history export` wrote."""
    rows = ((number, text) for number, text in read_lines(source) if text.strip())
    first = next(rows, None)
    if first is None:
        raise TraceError(source, "empty: no recorded history")
    opening = _decoded_line(source, first, _header_decoder)
    if opening.rota_history != HISTORY_VERSION:
        raise TraceError(source, f"history of version {opening.rota_history}: not known here", 1)
    try:
        return RecordedHistory(source.name, _history_jobs(source, rows), opening)
    except GraphError as error:
        raise TraceError(source, str(error)) from error


def _history_jobs(source: Source, rows: Iterator[tuple[int, str]]) -> list[JobLine]:
    jobs: list[JobLine] = []
    seen: dict[str, int] = {}
    for number, text in rows:
        job = _decoded_line(source, (number, text), _job_decoder)
        if seen.setdefault(job.job_id, number) != number:
            raise TraceError(
                source, f"job {job.job_id} is there twice, see line {seen[job.job_id]}", number
            )
        if len(seen) > TRACE_JOBS_MAX:
            raise TraceError(source, f"more than {TRACE_JOBS_MAX:,} jobs", number)
        jobs.append(job)
    return jobs


def _decoded_line(source: Source, row: tuple[int, str], decoder: msgspec.json.Decoder[Any]) -> Any:
    number, text = row
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(source, f"no line of recorded history: {error}", number) from error


def _history_works(
    jobs: Sequence[JobLine], first: Millis
) -> tuple[list[Work], Mapping[int, Sequence[int]]]:
    places = {job.job_id: place for place, job in enumerate(jobs)}
    parents = {
        place: [places[up] for up in dict.fromkeys(job.dependencies) if up in places]
        for place, job in enumerate(jobs)
        if job.dependencies
    }
    return [_history_work(job, first) for job in jobs], parents


def _history_work(job: JobLine, first: Millis) -> Work:
    wish = None if job.affinity is None else job.affinity.affinity()
    needs = Needs(job.requirements.resources(), tuple(sorted(job.capabilities)), wish)
    run_ms = max(1, _instant(job.finished_at) - _instant(job.started_at))
    terms = Terms(
        job.name,
        job.queue,
        job.tenant,
        job.priority,
        needs,
        ONCE,
        # A time-out that a job came near to in truth must not end it in the replay.
        timeout_ms=None,
        expected_runtime_ms=_optional_ms(job.expected_runtime) or _optional_ms(job.timeout),
        preemptible=job.preemptible,
    )
    submit_ms, started_ms = _instant(job.submitted_at) - first, _instant(job.started_at) - first
    return Work(job.job_id, submit_ms, run_ms, terms, started_ms=max(submit_ms, started_ms))


def _optional_ms(seconds: float | None) -> Millis | None:
    return None if seconds is None else round(seconds * 1000)


def _instant(moment: datetime) -> Millis:
    return round((moment - datetime(1970, 1, 1, tzinfo=UTC)).total_seconds() * 1000)
