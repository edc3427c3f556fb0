"""Writes down what ran in a cell, or replays it at once under other policies."""

from __future__ import annotations

import gzip
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import ExitStack
from pathlib import Path
from typing import Any, Protocol, TypeVar

import click
import msgspec

from rota.cli.connect import connected, every_item
from rota.cli.options import combined, json_option, now, past, search_of
from rota.cli.problems import Failure
from rota.cli.render import plain, plural, print_object
from rota.cli.simulate import (
    Case,
    Names,
    draw_trials,
    policies_option,
    trials_document,
    try_policies,
)
from rota.engine.clock import SystemClock
from rota.sdk import Client
from rota.sdk.methods import admin_calls
from rota.simulate.study import StudySetup
from rota.simulate.trace_readers import (
    HISTORY_VERSION,
    HistoryHeader,
    JobLine,
    QueueLine,
    QuotaLine,
    RateLine,
    RecordedHistory,
    TenantLine,
    WorkerLine,
)
from rota.simulate.workload import GraphError, fitting
from rota.wire.jobs import JobView
from rota.wire.limits import PAGE_ITEMS_MAX
from rota.wire.queues import QueueView, TenantView
from rota.wire.workers import WorkerView

RAN = ("succeeded", "failed", "cancelled")
"""The ends of a job that may have run."""
_PLAIN_KINDS = ("cpu", "memory", "storage", "gpu")


def opening_of(client: Client) -> HistoryHeader:
    """Records the cell as it is now: its workers that are not offline, its queues and tenants."""
    workers = client.workers(status=("online", "draining", "unhealthy"))
    return HistoryHeader(
        HISTORY_VERSION,
        exported_at=now(),
        workers=[worker_line(worker) for worker in workers],
        queues=[queue_line(queue) for queue in client.queues()],
        tenants=[tenant_line(one) for one in every_item(client, admin_calls.list_tenants)],
    )


def tenant_line(tenant: TenantView) -> TenantLine:
    """Records a tenant."""
    quota = tenant.quota
    return TenantLine(tenant.name, tenant.weight, QuotaLine(quota.running, quota.cpu, quota.memory))


def lines_of(client: Client, given: Mapping[str, Any]) -> Iterator[JobLine]:
    """Records the jobs that ran, newest first."""
    everything = {"status": RAN, "priority": None, "name": None, "label": ()}
    for job in client.jobs(search_of({**everything, **given}, limit=PAGE_ITEMS_MAX)):
        # Of an array or gang it is the members that ran, and they are jobs themselves.
        is_group = job.array is not None or job.gang is not None
        if job.started_at is not None and job.finished_at is not None and not is_group:
            yield job_line(job)


def job_line(job: JobView) -> JobLine:
    """Records a job that ran."""
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
    """Records a worker."""
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
    """Records a queue."""
    rate = queue.rate_limit
    return QueueLine(
        queue.name,
        queue.priority,
        queue.weight,
        queue.max_workers,
        None if rate is None else RateLine(rate.count, rate.per),
    )


def past_case(client: Client, given: Mapping[str, Any]) -> Case:
    """Builds a case of the jobs that ran and the workers of now."""
    try:
        history = RecordedHistory("the past", list(lines_of(client, given)), opening_of(client))
    except GraphError as error:
        raise Failure(str(error)) from error
    fleet = history.fleet()
    if fleet is None:
        raise Failure("no worker is there, so nothing could run: start one, or use rota simulate")
    works = fitting(history, fleet.can_run)
    if not len(works):
        raise Failure("no job ran then that the workers of now could run")
    return Case(works, fleet, history.settings())


def setting_of(case: Case) -> StudySetup:
    """Returns what is the same for all policies."""
    return StudySetup(case.workload, case.fleet, SystemClock(), case.setup)


def replay(case: Case, names: Names, *, as_json: bool) -> None:
    """Shows the figures of each policy, also by tenant."""
    trials = try_policies(names, setting_of(case))
    if as_json:
        print_object(trials_document(case, trials, by_tenant=True))
    else:
        draw_trials(case, trials, by_tenant=True)


F = TypeVar("F", bound=Callable[..., Any])

STDOUT = Path("-")


class HistoryOutput(Protocol):
    """File, packed or not, or stdout."""

    def write(self, data: bytes, /) -> int: ...


@click.group()
def history() -> None:
    """Export past jobs, or replay them under other policies."""


_past_options = combined(
    click.option("--after", type=past, help="Created after this time, or this long ago (7d)."),
    click.option("--before", type=past, help="Created before this time."),
    click.option("--queue", "-q", help="Only of this queue."),
    click.option("--tenant", help="Only of this tenant."),
)
"""Filter the jobs of the past."""


@history.command()
@_past_options
@click.option(
    "--out", "-o", type=click.Path(dir_okay=False, allow_dash=True, path_type=Path),
    default=STDOUT, metavar="FILE", help="File to write; compressed if its name ends in .gz.",
)  # fmt: skip
@json_option
def export(*, out: Path, as_json: bool, **given: Any) -> None:
    """Export past jobs as JSON lines, after the cell's workers and queues."""
    if as_json and out == STDOUT:
        raise click.UsageError("the export itself is JSON: --json tells of one into a file, --out")
    with connected() as client:
        try:
            jobs = _write(client, out, given)
        except OSError as error:
            raise Failure(f"cannot write {out}: {error.strerror}") from error
    if as_json:
        print_object({"file": str(out), "jobs": jobs})
    else:
        where = "" if out == STDOUT else f" to {plain(str(out))}"
        click.echo(f"wrote {plural(jobs, 'job')}{where}", err=True)


def _write(client: Client, out: Path, given: dict[str, Any]) -> int:
    encoder = msgspec.json.Encoder()
    jobs = 0
    with ExitStack() as stack:
        file = _open_output(out, stack)
        file.write(encoder.encode(opening_of(client)) + b"\n")
        for line in lines_of(client, given):
            file.write(encoder.encode(line) + b"\n")
            jobs += 1
    return jobs


def _open_output(out: Path, stack: ExitStack) -> HistoryOutput:
    if out == STDOUT:
        return sys.stdout.buffer
    if out.suffix == ".gz":
        return stack.enter_context(gzip.open(out, "wb"))
    return stack.enter_context(out.open("wb"))


@history.command("replay")
@_past_options
@policies_option
@json_option
def replay_past(*, names: Names, as_json: bool, **given: Any) -> None:
    """Replay past jobs in virtual time, under other policies, on the present workers."""
    with connected() as client:
        case = past_case(client, given)
    replay(case, names, as_json=as_json)
