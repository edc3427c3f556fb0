"""Submits and updates jobs: checks, dependencies, and ranks of a graph by its critical path.

Jobs that are submitted together and depend on each other are one graph. Each of them is sorted as
one job as long as the whole graph would be, so that graphs of different sizes compare as jobs do.
Inside a graph jobs are ordered by upward rank: the longest chain that begins with the job. Ranks of
different graphs are never compared, because large graphs would starve small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from rota.core.commands import NewJob, Reject, Submit, Update
from rota.core.dependency_graph import accepts, find_cycle, upstream_first
from rota.core.entries import JobEntry
from rota.core.errors import Conflict, DependencyCycle, OverQuota, StalePreload, UnknownDependency
from rota.core.groups.arrays import apply_update, checked_update, is_started_array
from rota.core.jobs import deadline_watch
from rota.core.jobs.finish import error_json, expire_job, finish_job, upstream_error
from rota.core.jobs.spill import (
    JobLookup,
    enqueue_or_spill,
    enqueue_or_spill_together,
    waits_for_worker_only,
)
from rota.core.jobs.wait_states import add_ready_job, dequeue, enter_wait_state
from rota.core.lifecycle import JobVerb, move_job
from rota.core.model import (
    Dependency,
    Instant,
    JobId,
    JobState,
    Millis,
    Spec,
    Terms,
    copies_of,
)
from rota.core.outcome import JobAnswer, JobsAccepted
from rota.core.ready_queue.fair_share import FairOrder
from rota.core.state import NEW_LIFE, SchedulerState
from rota.core.timers import TimerKind


class GraphRank(NamedTuple):
    """Rank of one job within its batch and its graph."""

    turn: int
    """Position among the jobs of the batch."""
    graph_ms: Millis | None
    """How long the fleet will probably work on the job's graph; None: it is not part of a graph."""


MeasureTerms = Callable[[Terms], tuple[Millis, float]]
"""Measures terms: (how long a job will probably run, the share of the fleet that it takes)."""


def rank_jobs(jobs: Sequence[NewJob], measure: MeasureTerms) -> list[GraphRank]:
    """Ranks the jobs of a batch, in the order given; the graphs must have no cycles."""
    position = {new.id: index for index, new in enumerate(jobs)}
    upstream = [
        [position[d.job_id] for d in new.spec.dependencies if d.job_id in position] for new in jobs
    ]
    if not any(upstream):
        return [GraphRank(index, None) for index in range(len(jobs))]
    graph = _graphs(upstream)
    lengths = [measure(new.spec.terms) for new in jobs]
    ranks = _upward_ranks(upstream, [length for length, _ in lengths], jobs)
    chain: dict[int, Millis] = {}
    work: dict[int, float] = {}
    size: dict[int, int] = {}
    for index, (length, share) in enumerate(lengths):
        root = graph[index]
        chain[root] = max(chain.get(root, 0), ranks[index])
        copies = copies_of(jobs[index].spec.group)
        work[root] = work.get(root, 0.0) + length * share * copies
        size[root] = size.get(root, 0) + 1
    in_turn = sorted(range(len(jobs)), key=lambda index: (graph[index], -ranks[index], index))
    order = {index: turn for turn, index in enumerate(in_turn)}
    return [
        GraphRank(order[index], max(chain[root], round(work[root])) if size[root] > 1 else None)
        for index, root in enumerate(graph)
    ]


def _upward_ranks(
    upstream: Sequence[Sequence[int]], lengths: Sequence[Millis], jobs: Sequence[NewJob]
) -> list[Millis]:
    """Length of the longest chain that begins with each job, the job itself included."""
    ranks = list(lengths)
    ids = [new.id for new in jobs]
    position = {job_id: index for index, job_id in enumerate(ids)}
    order = upstream_first(
        {
            ids[i]: [ids[up] for up in upstream_indexes]
            for i, upstream_indexes in enumerate(upstream)
        }
    )
    for job_id in reversed(order):
        index = position[job_id]
        for upstream_indexes in upstream[index]:
            ranks[upstream_indexes] = max(
                ranks[upstream_indexes], lengths[upstream_indexes] + ranks[index]
            )
    return ranks


def _graphs(upstream: Sequence[Sequence[int]]) -> list[int]:
    """Index of the first job of its graph, for each job (union-find)."""
    root = list(range(len(upstream)))

    def find(index: int) -> int:
        while root[index] != index:
            root[index] = root[root[index]]
            index = root[index]
        return index

    for index, upstream_indexes in enumerate(upstream):
        for other in upstream_indexes:
            one, two = find(index), find(other)
            root[max(one, two)] = min(one, two)
    return [find(index) for index in range(len(upstream))]


INVALID = "invalid"
"""Reason of a job that failed at submission because it was invalid."""
DUPLICATE = "duplicate"
"""Reason of a job that was skipped at submission because another id stands for the same job."""


def submit(t: SchedulerState, event: Submit, now: Instant) -> JobsAccepted:
    """Submits all jobs or none: everything is checked before anything changes."""
    if len(event.jobs) == 1 and not event.jobs[0].spec.dependencies:
        return _submit_one(t, event.jobs, now)
    ended = check_submit(t, event, JobLookup(t, event.preloaded, now))
    for new in event.jobs:
        if new.spec.terms.queue not in t.queues:
            t.queue(new.spec.terms.queue, now)
    upstream_ids = {d.job_id: None for new in event.jobs for d in new.spec.dependencies}
    specs = _ranked_specs(t, event.jobs, linked=bool(upstream_ids))
    if upstream_ids:
        entries = [
            _accept(t, new.id, spec, now, decide_later=new.id in upstream_ids)
            for new, spec in zip(event.jobs, specs, strict=True)
        ]
    else:
        entries = _accept_all(t, event.jobs, specs, now)
    waiting = [job for job in entries if job.life is NEW_LIFE]
    for job in waiting:
        count_unmet(t, job)
    for job in waiting:
        _enter_first_state(t, job, ended, now)
    t.changeset.submitted += len(entries)
    ids = tuple([job.id for job in entries])
    return JobsAccepted(ids, entries[0].record() if len(entries) == 1 else None)


def _submit_one(t: SchedulerState, jobs: Sequence[NewJob], now: Instant) -> JobsAccepted:
    """Submits a job that comes alone and depends on nothing, as most do."""
    _refuse_known_ids(t, jobs, {jobs[0].id: jobs[0]})
    _refuse_too_many(t, jobs)
    job = submit_independent(t, jobs[0], now)
    return JobsAccepted((job.id,), job.record())


def check_submit(t: SchedulerState, event: Submit, lookup: JobLookup) -> dict[JobId, JobState]:
    """Checks a submission; returns the states of upstream jobs outside the batch."""
    batch = {new.id: new for new in event.jobs}
    _refuse_known_ids(t, event.jobs, batch)
    ended = _check_dependencies(event.jobs, batch, lookup)
    _refuse_too_many(t, event.jobs)
    return ended


def _refuse_too_many(t: SchedulerState, jobs: Sequence[NewJob]) -> None:
    """Refuses jobs beyond the queued quota of a tenant or of the cell."""
    most = t.policy.max_queued
    if most is not None:
        live = len(t.jobs) + t.ready_queue.spilled + t.groups.waiting
        submitted = sum(copies_of(new.spec.group) for new in jobs)
        if live + submitted > most:
            raise OverQuota(
                f"the cell has {live} live jobs of at most {most}; {submitted} more were submitted"
            )
    if not t.tenants.capped_count:
        return
    asked: dict[str, int] = {}
    for new in jobs:
        tenant = new.spec.terms.tenant
        asked[tenant] = asked.get(tenant, 0) + copies_of(new.spec.group)
    for name, count in asked.items():
        entry = t.tenants.entries.get(name)
        quota = None if entry is None else entry.tenant.quota
        if entry is None or quota is None or quota.queued is None:
            continue
        if entry.waiting + count > quota.queued:
            raise OverQuota(
                f"tenant {name} has {entry.waiting} waiting jobs of at most {quota.queued};"
                f" {count} more were submitted"
            )


def reject(t: SchedulerState, event: Reject, now: Instant) -> JobsAccepted:
    """Stores jobs that cannot run as failed or skipped, because callers hold their ids."""
    _refuse_known_ids(t, event.jobs, {new.id: new for new in event.jobs})
    for new in event.jobs:
        t.queue(new.spec.terms.queue, now)
        # It ends here, so it must not enter a queue.
        (spec,) = _ranked_specs(t, [new], linked=False)
        job = _accept(t, new.id, spec, now, decide_later=True)
        verb, reason = JobVerb.REJECT, INVALID
        if event.duplicate:
            verb, reason = JobVerb.SKIP, DUPLICATE
        life = replace(job.life, reason=reason, error=error_json(event.why))
        finish_job(t, job, verb, life, now)
    t.changeset.submitted += len(event.jobs)
    return JobsAccepted(tuple(new.id for new in event.jobs))


def submit_independent(t: SchedulerState, new: NewJob, now: Instant) -> JobEntry:
    """Submits a job without dependencies: one alone, or one of a schedule or a trigger."""
    terms = new.spec.terms
    if terms.queue not in t.queues:
        t.queue(terms.queue, now)
    spec = replace(new.spec, terms=t.interned_terms(terms), arrival_number=t.next_arrival_number)
    t.next_arrival_number += 1
    job = _accept(t, new.id, spec, now, decide_later=False)
    if job.life is NEW_LIFE:
        _enter_first_state(t, job, {}, now)
    t.changeset.submitted += 1
    return job


def _refuse_known_ids(
    t: SchedulerState, jobs: Sequence[NewJob], batch: dict[JobId, NewJob]
) -> None:
    if len(batch) != len(jobs):
        raise Conflict("two jobs of the batch have the same id")
    # Most ids were just made and are later than all that have left memory: no lookup is needed.
    if not batch or (
        t.jobs.keys().isdisjoint(batch) and min(batch) > t.recently_finished.latest_id
    ):
        return
    for job_id in batch:
        if job_id in t.jobs or t.recently_finished.departed_at(job_id) is not None:
            raise Conflict(f"there is a job {job_id} already")


def _check_dependencies(
    jobs: Sequence[NewJob], batch: dict[JobId, NewJob], lookup: JobLookup
) -> dict[JobId, JobState]:
    """Returns the states of all upstream jobs outside the batch; refuses unknown ids and cycles."""
    states: dict[JobId, JobState] = {}
    inside: dict[JobId, list[JobId]] = {}
    for index, new in enumerate(jobs):
        for dependency in new.spec.dependencies:
            if dependency.job_id in batch:
                inside.setdefault(new.id, []).append(dependency.job_id)
            elif dependency.job_id not in states:
                states[dependency.job_id] = _state_of_upstream(
                    lookup, dependency.job_id, index, len(jobs)
                )
    if inside and (path := find_cycle(inside)) is not None:
        raise DependencyCycle([batch[job_id].ref or job_id for job_id in path])
    return states


def _state_of_upstream(lookup: JobLookup, job_id: JobId, index: int, count: int) -> JobState:
    state = lookup.state(job_id)
    if state is None:
        field = "dependencies" if count == 1 else f"jobs[{index}].dependencies"
        raise UnknownDependency(f"there is no job {job_id} to depend on", field)
    return state


def _ranked_specs(t: SchedulerState, jobs: Sequence[NewJob], *, linked: bool) -> list[Spec]:
    """Gives each job its arrival number: as submitted, or by rank within its graph."""
    first = t.next_arrival_number
    t.next_arrival_number += len(jobs)
    if not linked or not isinstance(t.ready_queue.order, FairOrder):
        return [
            replace(new.spec, terms=t.interned_terms(new.spec.terms), arrival_number=order)
            for order, new in enumerate(jobs, first)
        ]

    def measure(terms: Terms) -> tuple[Millis, float]:
        return t.runtime_estimates.estimate(terms), t.dominant_share_of(terms)

    return [
        replace(
            new.spec,
            terms=t.interned_terms(new.spec.terms),
            arrival_number=first + rank.turn,
            graph_ms=rank.graph_ms,
        )
        for new, rank in zip(jobs, rank_jobs(jobs, measure), strict=True)
    ]


def _accept(
    t: SchedulerState, job_id: JobId, spec: Spec, now: Instant, *, decide_later: bool
) -> JobEntry:
    """Adds the job to memory; queues or spills it at once if that can be decided now."""
    if not decide_later and waits_for_worker_only(spec, now):
        return enqueue_or_spill(t, job_id, spec, now)
    job = t.add_job(job_id, spec, NEW_LIFE)
    t.put_job(job)
    return job


def _accept_all(
    t: SchedulerState, jobs: Sequence[NewJob], specs: Sequence[Spec], now: Instant
) -> list[JobEntry]:
    """Adds a batch in which no job depends on another; alike jobs are queued together."""
    entries: list[JobEntry] = []
    first, count = 0, len(jobs)
    # Nothing can be spilled then, so the check is made once and not for each job.
    has_capacity = not t.ready_queue.spilled_groups and len(t.jobs) + count <= t.timing.window.jobs
    while first < count:
        spec, after = specs[first], first + 1
        if not waits_for_worker_only(spec, now):
            entries.append(_accept(t, jobs[first].id, spec, now, decide_later=True))
            first = after
            continue
        while after < count and specs[after].terms is spec.terms and _is_alike(specs, after, now):
            after += 1
        if after - first > 1:
            ids = [new.id for new in jobs[first:after]]
            entries += enqueue_or_spill_together(t, ids, specs[first:after], now)
        elif has_capacity:
            entries.append(add_ready_job(t, jobs[first].id, spec, now))
        else:
            entries.append(enqueue_or_spill(t, jobs[first].id, spec, now))
        first = after
    return entries


def _is_alike(specs: Sequence[Spec], index: int, now: Instant) -> bool:
    """Whether the job differs from the one before it only in its task; both have the same terms."""
    spec, before = specs[index], specs[index - 1]
    return (
        spec.created_at == before.created_at
        and spec.run_at == before.run_at
        and spec.graph_ms == before.graph_ms
        and waits_for_worker_only(spec, now)
    )


def count_unmet(t: SchedulerState, job: JobEntry) -> None:
    """Counts the upstream jobs that have not ended yet."""
    for dependency in job.spec.dependencies:
        upstream = t.jobs.get(dependency.job_id)
        if upstream is not None:
            if upstream.life.line:
                t.set_life(
                    upstream, upstream.life
                )  # leaves its spill queue: a restore must find it in memory
            job.unmet += 1
            t.dependencies.add(dependency.job_id, job.id, job.life.lives, dependency.when)


def _enter_first_state(
    t: SchedulerState, job: JobEntry, ended: dict[JobId, JobState], now: Instant
) -> None:
    """Skips or expires the job, or puts it where it has to wait."""
    if job.id not in t.jobs:
        return  # an earlier job of the batch was skipped, and this one with it
    refused = _skipped_by(job.spec.dependencies, ended, t)
    if refused is not None:
        skip_because(t, job, refused, ended[refused], now)
        return
    expires = job.spec.expires_at
    if expires is not None:
        if expires <= now:
            expire_job(t, job, now)
            return
        t.timers.set(expires, TimerKind.JOB, job.id)
    deadline_watch.watch_deadline(t, job, now)
    enter_wait_state(t, job, now)


def _skipped_by(
    dependencies: Sequence[Dependency], ended: dict[JobId, JobState], t: SchedulerState
) -> JobId | None:
    for dependency in dependencies:
        state = ended.get(dependency.job_id)
        if state is None or dependency.job_id in t.jobs:
            continue
        if not accepts(dependency.when, state):
            return dependency.job_id
    return None


def skip_because(
    t: SchedulerState, job: JobEntry, upstream: JobId, state: JobState, now: Instant
) -> None:
    """Skips the job because an upstream job ended otherwise than it requires."""
    if job.life.state is JobState.QUEUED:
        state_held = move_job(job.id, job.life.state, JobVerb.HOLD)
        t.set_life(job, replace(job.life, state=state_held))
    error = upstream_error(upstream, state)
    finish_job(t, job, JobVerb.SKIP, replace(job.life, reason="upstream", error=error), now)


def update(t: SchedulerState, event: Update, now: Instant) -> JobAnswer:
    """Changes the spec of a waiting job, which moves to its new place in the queue."""
    lookup = JobLookup(t, event.preloaded, now)
    job = lookup.live(event.job_id)
    if job is None:
        record = lookup.require_ended(event.job_id)
        move_job(event.job_id, record.life.state, JobVerb.UPDATE)
        raise AssertionError("an ended job has no update")
    before, is_begun = job.spec, is_started_array(job)
    if not is_begun:
        move_job(job.id, job.life.state, JobVerb.UPDATE)
    if event.spec.revision != before.revision:
        raise StalePreload(f"job {job.id} was changed since it was read")
    spec = replace(
        event.spec,
        arrival_number=before.arrival_number,
        created_at=before.created_at,
        revision=before.revision + 1,
    )
    if before.group is not None or spec.group is not None:
        spec = checked_update(job, spec)
    if is_begun:
        t.queue(spec.terms.queue, now)
        apply_update(t, job, spec, now)
        return JobAnswer(job.record())
    ended: dict[JobId, JobState] = {}
    if spec.dependencies != before.dependencies:
        ended = _check_new_dependencies(t, job, spec.dependencies, lookup)
    t.queue(spec.terms.queue, now)
    dequeue(t, job, now)
    t.set_spec(job, spec)
    if spec.run_at != before.run_at and job.life.due_at is not None:
        t.set_life(job, replace(job.life, due_at=None))
    deadline_watch.reset_deadline(t, job, before.finish_by)
    if spec.dependencies != before.dependencies:
        _replace_dependencies(t, job, before.dependencies)
    _enter_first_state(t, job, ended, now)
    return JobAnswer(job.record())


def _check_new_dependencies(
    t: SchedulerState, job: JobEntry, dependencies: Sequence[Dependency], lookup: JobLookup
) -> dict[JobId, JobState]:
    states = {d.job_id: _state_of_upstream(lookup, d.job_id, 0, 1) for d in dependencies}
    upstreams: dict[JobId, list[JobId]] = {job.id: [d.job_id for d in dependencies]}
    to_visit = list(upstreams[job.id])
    while to_visit:
        job_id = to_visit.pop()
        upstream = t.jobs.get(job_id)
        if upstream is not None and job_id not in upstreams:
            upstreams[job_id] = [d.job_id for d in upstream.spec.dependencies]
            to_visit.extend(upstreams[job_id])
    path = find_cycle(upstreams)
    if path is not None:
        raise DependencyCycle(path)
    return states


def _replace_dependencies(t: SchedulerState, job: JobEntry, before: Sequence[Dependency]) -> None:
    for dependency in before:
        t.dependencies.remove(dependency.job_id, job.id)
    job.unmet = 0
    count_unmet(t, job)
