"""Jobs that wait: for time, for other jobs, for a slot of their key, for a worker."""

from __future__ import annotations

from collections.abc import Sequence

from msgspec.structs import replace

from rota.core.lifecycle import JobVerb, move_job
from rota.core.memory.cells import JobCell
from rota.core.model import Instant, JobId, JobState, Spec
from rota.core.order.kinds import Kind
from rota.core.order.party import JobClass
from rota.core.tables import FRESH, Tables
from rota.core.times.timers import TimerKind

_QUEUED = JobState.QUEUED
WAITS_FOR_JOBS = "dependencies"
"""Why a job is pending that waits for others; a load takes it at its word."""


def due_at(cell: JobCell) -> Instant | None:
    """Not before this: the end of a retry's delay, or the time that was asked for."""
    return cell.life.due_at if cell.life.due_at is not None else cell.spec.run_at


def enter_wait_state(t: Tables, cell: JobCell, now: Instant) -> None:
    """Puts a job that is in no line where it has to wait."""
    when = due_at(cell)
    if cell.unmet:
        _make_pending(t, cell, WAITS_FOR_JOBS)
    elif when is not None and when > now:
        t.timers.set(when, TimerKind.JOB, cell.id)
        _make_pending(t, cell, "run_at" if cell.life.due_at is None else "retry")
    else:
        if cell.life.state is JobState.PENDING:
            move_job(cell.id, cell.life.state, JobVerb.RELEASE)
            t.set_life(cell, t.released(cell.life, now))
        enqueue(t, cell, now)


def _make_pending(t: Tables, cell: JobCell, reason: str) -> None:
    life = cell.life
    if life.state is JobState.QUEUED:
        state = move_job(cell.id, life.state, JobVerb.HOLD)
        t.set_life(cell, replace(life, state=state, reason=reason, ready_at=None))
    elif life.reason != reason:
        t.set_life(cell, replace(life, reason=reason))


def enqueue(t: Tables, cell: JobCell, now: Instant) -> None:
    """A ready job joins the line of its class, or the line of its concurrency key before it."""
    has_slot, weaker = t.keys.admit(cell)
    if weaker is not None:
        t.lines.leave(weaker)
    if has_slot:
        t.queue(cell.spec.terms.queue, now)
        _join_class_queue(t, cell, t.kinds.of(cell.spec.terms), now)


def add_ready_job(t: Tables, job_id: JobId, spec: Spec, now: Instant) -> JobCell:
    """A new job for which nothing but a worker is missing: accepted and released in one step.

    It shares its terms with others already, and its queue is there.
    """
    lines, terms = t.lines, spec.terms
    kind = t.kinds.of(terms)
    estimate = kind.estimate(t.runtimes)
    life, place = t.released(FRESH, now), lines.order.place(spec)
    cell = JobCell(job_id, spec, life, place=place, estimate=estimate)
    t.jobs[job_id] = t.draft.put[job_id] = cell
    kind.came()
    job_class = lines.join(cell, kind, now)
    job_class.arrived += 1
    job_class.arrived_work += estimate
    if job_class.waiting == 1:
        _prepare_class(t, job_class, kind, now)
    return cell


def add_ready_jobs(
    t: Tables, ids: Sequence[JobId], specs: Sequence[Spec], now: Instant
) -> list[JobCell]:
    """The same for alike jobs, each behind the one before."""
    first = add_ready_job(t, ids[0], specs[0], now)
    rest = {
        job_id: JobCell(job_id, spec, first.life, place=first.place)
        for job_id, spec in zip(ids[1:], specs[1:], strict=True)
    }
    t.jobs.update(rest)
    t.draft.put.update(rest)
    t.kinds.of(first.spec.terms).came(len(rest))
    cells = list(rest.values())
    t.lines.join_behind(first, cells, now)
    job_class = t.lines.classes[first.class_index]
    job_class.arrived += len(rest)
    job_class.arrived_work += len(rest) * first.estimate
    return [first, *cells]


def _join_class_queue(t: Tables, cell: JobCell, kind: Kind, now: Instant) -> None:
    cell.estimate = estimate = t.runtimes.estimate(kind.terms)
    job_class = t.lines.join(cell, kind, now)
    if not cell.life.line:  # what was on the shelf came long ago
        job_class.arrived += 1
        job_class.arrived_work += estimate
    if job_class.waiting == 1:
        _prepare_class(t, job_class, kind, now)


def _prepare_class(t: Tables, job_class: JobClass, kind: Kind, now: Instant) -> None:
    """The first job of a class stands in line: what holds for all of them is asked once."""
    if job_class.bit & t.lines.fresh:  # once, not for each of a load
        t.fleet.mind_labels(job_class.needs)
        t.check_gates(kind.queue, now)
        for tenant in t.tenants.limited():
            t.check_quota(tenant, now)


def dequeue(t: Tables, cell: JobCell, now: Instant) -> None:
    """The job neither waits for a worker nor holds a slot of its key any more."""
    t.lines.leave(cell)
    if cell.spec.concurrency is not None:
        for admitted in t.keys.release(cell):
            _join_class_queue(t, admitted, t.kinds.of(admitted.spec.terms), now)


def timer_fired(t: Tables, cell: JobCell, now: Instant) -> bool:
    """A job's timer rang: releases it if its time has come. True: it has expired instead."""
    expires = cell.spec.expires_at
    if cell.life.state not in (JobState.PENDING, JobState.QUEUED):
        return False
    if expires is not None and expires <= now:
        return True
    when = due_at(cell)
    is_due = when is None or when <= now
    if cell.life.state is JobState.PENDING and not cell.unmet and is_due:
        enter_wait_state(t, cell, now)
    return False
