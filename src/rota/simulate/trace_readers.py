"""Reads workload traces: Standard Workload Format (SWF), WfCommons workflows, and history exported
by Rota.

Every SWF log is cleaned by the same rule, so that results compare: processors are those allocated,
else those requested; a job without processors, with more than the machine has, or without a run
time is left out; the estimate is the requested time, but at least the run time; the first job
arrives at 0. Exported history is one JSON object a line: first the cell, then each job with its
last execution.
"""

from __future__ import annotations

import gzip
import io
import math
import re
import zlib
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from datetime import UTC, datetime
from typing import IO, Annotated, Any, Literal, NamedTuple, Protocol

import msgspec
from msgspec import Meta

from rota.core.commands import AnyInput, PutQueueSettings, PutTenantSettings
from rota.core.model import Affinity, Millis, Needs, Quota, RateLimit, Resources, Terms
from rota.simulate.fleet import FleetPlan, MachineGroup
from rota.simulate.limits import (
    DOCUMENT_BYTES_MAX,
    LINE_BYTES_MAX,
    PROCESSORS_MAX,
    SPAN_MS_MAX,
    TRACE_JOBS_MAX,
)
from rota.simulate.workload import ONCE, GraphError, Trace, Work, arranged, cpu_needs

_GZIP = b"\x1f\x8b"


class Source(Protocol):
    """Source of a trace: a path, or an upload. Errors name it by its text."""

    @property
    def name(self) -> str: ...

    def open(self, mode: Literal["rb"], /) -> io.BufferedReader: ...


class Upload(msgspec.Struct, frozen=True):
    """Trace that a user uploaded: a name and content."""

    name: str
    content: bytes

    def open(self, mode: Literal["rb"], /) -> io.BufferedReader:
        return io.BufferedReader(io.BytesIO(self.content))

    def __str__(self) -> str:
        return self.name


class TraceError(Exception):
    """A trace cannot be used; the text says where and why."""

    def __init__(self, source: Source, problem: str, line: int | None = None) -> None:
        place = f"{source}, line {line}" if line is not None else str(source)
        super().__init__(f"{place}: {problem}")


def read_lines(source: Source) -> Iterator[tuple[int, str]]:
    """Yields the lines of a text file with their numbers, without line ends."""
    number = 0
    try:
        with _opened(source) as file:
            while raw := file.readline(LINE_BYTES_MAX + 1):
                number += 1
                if len(raw) > LINE_BYTES_MAX:
                    raise TraceError(source, f"longer than {LINE_BYTES_MAX:,} bytes", number)
                yield number, raw.decode("utf-8", errors="replace").rstrip("\r\n")
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(source, _described(error), number + 1 if number else None) from error


def read_document(source: Source) -> bytes:
    """Reads a whole file."""
    data = read_beginning(source, DOCUMENT_BYTES_MAX + 1)
    if len(data) > DOCUMENT_BYTES_MAX:
        raise TraceError(source, f"more than {DOCUMENT_BYTES_MAX:,} bytes")
    return data


def read_beginning(source: Source, size: int) -> bytes:
    """Reads so many bytes, or all if there are fewer."""
    try:
        with _opened(source) as file:
            return file.read(size)
    except (OSError, EOFError, zlib.error) as error:
        raise TraceError(source, _described(error)) from error


@contextmanager
def _opened(source: Source) -> Iterator[IO[bytes]]:
    # By its content, not by its name: users rename files.
    with source.open("rb") as file:
        if file.peek(len(_GZIP))[: len(_GZIP)] != _GZIP:
            yield file
            return
        with gzip.GzipFile(fileobj=file) as unpacked:
            yield unpacked  # type: ignore[misc]  # reads like any file


def _described(error: Exception) -> str:
    match error:
        case EOFError():
            return "the packed file ends too soon: it was cut off"
        case OSError(strerror=str(reason)):
            return reason
        case _:
            return f"not a valid gzip file ({error})"


SWF_FIELDS = 18
SWF_TENANTS = {"user": 12, "group": 13, "queue": 15}
"""Fields that can be used as the tenant."""
_SWF_MACHINE = re.compile(r";\s*Max(Procs|Nodes):\s*(\d{1,12})\s*$")


class SwfJob(NamedTuple):
    """Used fields of a job; -1: unknown."""

    number: str
    submit_s: float
    wait_s: float
    run_s: float
    allocated: int
    requested: int
    requested_s: float
    user: int
    application: int
    tenant: int


def read_swf(source: Source, *, cpus: int | None = None, tenants: str | None = None) -> Trace:
    """Reads a log for a machine of `cpus` processors, or for the recorded one.

    All jobs are of one tenant, or of the field that `tenants` names: user, group or queue.
    """
    header: dict[str, int] = {}
    found: list[SwfJob] = []
    for number, text in read_lines(source):
        stripped = text.strip()
        if stripped.startswith(";"):
            if (match := _SWF_MACHINE.match(stripped)) is not None:
                header[match[1]] = int(match[2])
        elif stripped:
            found.append(_parse_swf_job(source, number, stripped.split(), tenants))
            if len(found) > TRACE_JOBS_MAX:
                raise TraceError(source, f"more than {TRACE_JOBS_MAX:,} jobs", number)
    machine = header.get("Procs") or header.get("Nodes")
    kept = _usable_swf_jobs(found, cpus or machine)
    if not kept:
        raise TraceError(source, "it has no job that ran and fits the machine")
    first = min(job.submit_s for job in kept)
    works = [_swf_work(job, first, has_tenants=tenants is not None) for job in kept]
    works.sort(key=lambda work: work.submit_ms)  # stable: equal ones stay in the file's order
    return Trace(source.name, works, dropped=len(found) - len(kept), processors=machine)


def _parse_swf_job(
    source: Source, number: int, fields: Sequence[str], tenants: str | None
) -> SwfJob:
    if len(fields) < SWF_FIELDS:
        raise TraceError(source, f"{len(fields)} fields, a job has {SWF_FIELDS}", number)

    def value(field: int, most: float) -> float:
        text = fields[field - 1]
        try:
            found = float(text)
        except ValueError:
            found = math.nan
        if not abs(found) <= most:  # false for NaN, too
            raise TraceError(
                source, f"field {field} is {text[:40]!r}: not a number up to {most:g}", number
            )
        return found

    seconds = SPAN_MS_MAX / 1000
    return SwfJob(
        number=fields[0][:40],
        submit_s=value(2, seconds),
        wait_s=value(3, seconds),
        run_s=value(4, seconds),
        allocated=int(value(5, PROCESSORS_MAX)),
        requested=int(value(8, PROCESSORS_MAX)),
        requested_s=value(9, seconds),
        user=int(value(12, PROCESSORS_MAX)),
        application=int(value(14, PROCESSORS_MAX)),
        tenant=int(value(SWF_TENANTS[tenants], PROCESSORS_MAX)) if tenants else -1,
    )


def _swf_processors(job: SwfJob) -> int:
    return job.allocated if job.allocated > 0 else job.requested


def _usable_swf_jobs(found: Sequence[SwfJob], machine: int | None) -> list[SwfJob]:
    most = machine if machine is not None else PROCESSORS_MAX
    return [job for job in found if 0 < _swf_processors(job) <= most and job.run_s > 0]


def _swf_work(job: SwfJob, first_s: float, *, has_tenants: bool) -> Work:
    run_ms = max(1, _swf_ms(job.run_s))
    estimate_ms = max(run_ms, _swf_ms(job.requested_s)) if job.requested_s > 0 else run_ms
    terms = Terms(
        # A log says of a job's kind only its user and its application.
        name=f"u{job.user}.a{job.application}",
        queue="default",
        tenant=f"t{job.tenant}" if has_tenants else "default",
        priority=0,
        needs=cpu_needs(1000 * _swf_processors(job)),
        retry=ONCE,
        expected_runtime_ms=estimate_ms,
    )
    submit_ms = _swf_ms(job.submit_s - first_s)
    started_ms = submit_ms + _swf_ms(job.wait_s) if job.wait_s >= 0 else None
    return Work(job.number, submit_ms, run_ms, terms, started_ms=started_ms)


def _swf_ms(seconds: float) -> Millis:
    return max(0, round(seconds * 1000))


_Seconds = Annotated[float, Meta(ge=0, le=SPAN_MS_MAX / 1000)]


class _TaskRun(msgspec.Struct):
    id: str = ""
    name: str = ""
    runtime_s: _Seconds | None = msgspec.field(default=None, name="runtimeInSeconds")
    cores: Annotated[float, Meta(ge=0, le=PROCESSORS_MAX)] | None = msgspec.field(
        default=None, name="coreCount"
    )
    memory: Annotated[float, Meta(ge=0, le=2.0**60)] | None = msgspec.field(
        default=None, name="memoryInBytes"
    )


class _Task(_TaskRun):
    """Task of a workflow; in format 1.4 with its run."""

    parents: list[str] = []


class _Specification(msgspec.Struct):
    tasks: list[_Task]


class _Execution(msgspec.Struct):
    tasks: list[_TaskRun] = []


class _Workflow(msgspec.Struct):
    specification: _Specification | None = None
    execution: _Execution | None = None
    tasks: list[_Task] | None = None


class _Document(msgspec.Struct):
    workflow: _Workflow
    name: str = ""


_workflow_decoder = msgspec.json.Decoder(_Document)


def read_workflow(source: Source, *, with_memory: bool = False) -> Trace:
    """Reads a workflow; all tasks arrive at the beginning, with exact estimates."""
    data = read_document(source)
    try:
        workflow = _workflow_decoder.decode(data).workflow
    except (msgspec.DecodeError, UnicodeDecodeError, RecursionError) as error:
        raise TraceError(source, f"not a WfCommons workflow: {error}") from error
    tasks = workflow.tasks or (workflow.specification.tasks if workflow.specification else [])
    if not tasks:
        raise TraceError(source, "not a WfCommons workflow: it has no tasks")
    if len(tasks) > TRACE_JOBS_MAX:
        raise TraceError(source, f"more than {TRACE_JOBS_MAX:,} tasks")
    ran = {one.id: one for one in (workflow.execution.tasks if workflow.execution else [])}
    works = [
        _task_work(source, task, ran.get(task.id, task), with_memory=with_memory) for task in tasks
    ]
    try:
        return Trace(source.name, arranged(works, _task_parents(source, tasks)))
    except GraphError as error:
        raise TraceError(source, str(error)) from error


def _task_work(source: Source, task: _Task, ran: _TaskRun, *, with_memory: bool) -> Work:
    if ran.runtime_s is None:
        raise TraceError(
            source, f"task {_task_key(task)!r} has no runtimeInSeconds: it was never run"
        )
    run_ms = max(1, round(ran.runtime_s * 1000))
    memory = math.ceil(ran.memory or 0) if with_memory else 0
    terms = Terms(
        name=task.name or task.id,
        queue="default",
        tenant="default",
        priority=0,
        needs=cpu_needs(1000 * max(1, math.ceil(ran.cores or 1)), memory),
        retry=ONCE,
        expected_runtime_ms=run_ms,
    )
    return Work(_task_key(task), 0, run_ms, terms)


def _task_key(task: _TaskRun) -> str:
    return task.id or task.name


def _task_parents(source: Source, tasks: Sequence[_Task]) -> dict[int, list[int]]:
    places: dict[str, int] = {}
    for place, task in enumerate(tasks):
        if not _task_key(task) or places.setdefault(_task_key(task), place) != place:
            raise TraceError(source, f"two tasks are named {_task_key(task)!r}")
    found: dict[int, list[int]] = {}
    for place, task in enumerate(tasks):
        for parent in dict.fromkeys(task.parents):
            if parent not in places:
                raise TraceError(
                    source, f"task {_task_key(task)!r} depends on {parent!r}, which does not exist"
                )
            found.setdefault(place, []).append(places[parent])
    return found


class AffinityLine(msgspec.Struct, omit_defaults=True):
    """Affinity of a recorded job."""

    require: dict[str, list[str]] = {}
    prefer: dict[str, list[str]] = {}
    spread: str | None = None
    near: Literal["previous"] | None = None
    wait: Annotated[float, Meta(ge=0, le=SPAN_MS_MAX / 1000)] = 3.0
    tolerate: list[str] = []

    def affinity(self) -> Affinity:
        """Converts it to the scheduler's affinity."""
        require, prefer = (
            tuple((label, tuple(sorted(values))) for label, values in sorted(labels.items()))
            for labels in (self.require, self.prefer)
        )
        return Affinity(
            require,
            prefer,
            self.spread or "",
            self.near is not None,
            round(self.wait * 1000),
            tuple(sorted(self.tolerate)),
        )


HISTORY_VERSION = 1

Moment = Annotated[datetime, Meta(tz=True)]
Cpus = Annotated[float, Meta(ge=0, le=PROCESSORS_MAX)]
Bytes = Annotated[int, Meta(ge=0, le=1 << 60)]
Seconds = Annotated[float, Meta(ge=0, le=SPAN_MS_MAX / 1000)]


class Amounts(msgspec.Struct, omit_defaults=True):
    """Resources of a recorded job or worker."""

    cpu: Cpus = 0.0
    memory: Bytes = 0
    storage: Bytes = 0
    gpu: Cpus = 0.0
    custom: dict[str, Cpus] = {}

    def resources(self) -> Resources:
        """Converts them to the scheduler's units."""
        return Resources(
            cpu_milli=round(self.cpu * 1000),
            memory=self.memory,
            storage=self.storage,
            gpu_milli=round(self.gpu * 1000),
            custom=tuple((name, round(n * 1000)) for name, n in sorted(self.custom.items())),
        )


class WorkerLine(msgspec.Struct, omit_defaults=True):
    """Recorded worker."""

    resources: Amounts
    capabilities: list[str] = []
    queues: list[str] | None = None
    labels: dict[str, str] = {}
    only: list[str] = []


class RateLine(msgspec.Struct):
    """Rate limit: so many starts in so many seconds."""

    count: Annotated[int, Meta(ge=1)]
    per: Annotated[float, Meta(gt=0, le=SPAN_MS_MAX / 1000)]


class QueueLine(msgspec.Struct, omit_defaults=True):
    """Recorded queue with its settings."""

    name: str
    priority: int = 0
    weight: Annotated[float, Meta(gt=0)] = 1.0
    max_workers: Annotated[int, Meta(ge=0)] | None = None
    rate_limit: RateLine | None = None


class QuotaLine(msgspec.Struct, omit_defaults=True):
    """Quota of a tenant: what it may use at once."""

    running: Annotated[int, Meta(ge=0)] | None = None
    cpu: Cpus | None = None
    memory: Bytes | None = None


class TenantLine(msgspec.Struct, omit_defaults=True):
    """Recorded tenant with its settings."""

    name: str
    weight: Annotated[float, Meta(gt=0)] = 1.0
    quota: QuotaLine | None = None


class HistoryHeader(msgspec.Struct, omit_defaults=True):
    """First line of exported history: the cell."""

    rota_history: int
    exported_at: Moment | None = None
    workers: list[WorkerLine] = []
    queues: list[QueueLine] = []
    tenants: list[TenantLine] = []


class JobLine(msgspec.Struct, omit_defaults=True):
    """Recorded job that ran."""

    job_id: str
    name: str
    submitted_at: Moment
    """When it was to run: its arrival, or its `run_at`."""
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
    """Recorded workload, with the cell in which it was recorded.

    Jobs may be in any order; raises GraphError if they depend on each other in a cycle.
    """

    def __init__(self, title: str, jobs: Sequence[JobLine], header: HistoryHeader) -> None:
        ran = [job for job in jobs if job.finished_at >= job.started_at]
        first = min((_instant(job.submitted_at) for job in ran), default=0)
        super().__init__(title, arranged(*_history_works(ran, first)), dropped=len(jobs) - len(ran))
        self.start_ms = first
        """Arrival of the first job, since 1970."""
        self._header = header

    def fleet(self) -> FleetPlan | None:
        """Returns the recorded workers, if there are any."""
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
        """Returns inputs that set the recorded queues and tenants."""
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
    """Makes a quota without the limit of waiting jobs: those that were accepted must not fail."""
    if quota is None:
        return None
    cpu_milli = None if quota.cpu is None else round(quota.cpu * 1000)
    return Quota(quota.running, None, cpu_milli, quota.memory)


_header_decoder = msgspec.json.Decoder(HistoryHeader)
_job_decoder = msgspec.json.Decoder(JobLine)


def read_history(source: Source) -> RecordedHistory:
    """Reads history that `rota history export` wrote."""
    rows = ((number, text) for number, text in read_lines(source) if text.strip())
    first = next(rows, None)
    if first is None:
        raise TraceError(source, "the file is empty")
    header = _decoded_line(source, first, _header_decoder)
    if header.rota_history != HISTORY_VERSION:
        version = f"history version {header.rota_history}"
        raise TraceError(source, f"{version} is not supported, only {HISTORY_VERSION} is", 1)
    try:
        return RecordedHistory(source.name, _history_jobs(source, rows), header)
    except GraphError as error:
        raise TraceError(source, str(error)) from error


def _history_jobs(source: Source, rows: Iterator[tuple[int, str]]) -> list[JobLine]:
    jobs: list[JobLine] = []
    seen: dict[str, int] = {}
    for number, text in rows:
        job = _decoded_line(source, (number, text), _job_decoder)
        if seen.setdefault(job.job_id, number) != number:
            raise TraceError(source, f"job {job.job_id} is also in line {seen[job.job_id]}", number)
        if len(seen) > TRACE_JOBS_MAX:
            raise TraceError(source, f"more than {TRACE_JOBS_MAX:,} jobs", number)
        jobs.append(job)
    return jobs


def _decoded_line(source: Source, row: tuple[int, str], decoder: msgspec.json.Decoder[Any]) -> Any:
    number, text = row
    try:
        return decoder.decode(text)
    except (msgspec.DecodeError, RecursionError) as error:
        raise TraceError(source, f"not a line of exported history: {error}", number) from error


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
    affinity = None if job.affinity is None else job.affinity.affinity()
    needs = Needs(job.requirements.resources(), tuple(sorted(job.capabilities)), affinity)
    run_ms = max(1, _instant(job.finished_at) - _instant(job.started_at))
    terms = Terms(
        job.name,
        job.queue,
        job.tenant,
        job.priority,
        needs,
        ONCE,
        # A job that was close to its timeout must not reach it in the replay.
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


TRACE_FORMATS = (
    "a log in Standard Workload Format, a workflow of WfCommons (JSON),"
    " or what `rota history export` wrote; packed with gzip or not"
)
"""Text for errors about other files."""
_HISTORY_FIELD = b'"rota_history"'


def read_trace(source: Source, *, cpus: int | None = None) -> Trace:
    """Reads a trace of any format; a log for a machine of `cpus` processors, or its own."""
    first, _, _ = read_beginning(source, LINE_BYTES_MAX).lstrip().partition(b"\n")
    if not first.startswith(b"{"):
        return read_swf(source, cpus=cpus)
    return read_history(source) if _HISTORY_FIELD in first else read_workflow(source)
