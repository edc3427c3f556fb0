"""Submits and updates jobs: checks, dependencies, and ranks of a graph by its critical path.

Jobs that are submitted together and depend on each other are one graph. All of them have the place
of a job that is as long as the whole graph, so that graphs of different size compare as jobs do;
inside the graph they are ordered by upward rank: the longest chain that begins with them. Ranks of
different graphs never meet: that would let large graphs starve small ones.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from typing import NamedTuple

from msgspec.structs import replace

from rota.core.commands import NewJob, Reject, Submit, Update
from rota.core.dependency_graph import accepts, find_cycle, upstream_first
from rota.core.entries import JobEntry
from rota.core.errors import Conflict, DependencyCycle, OverQuota, StalePreload, UnknownDependency
from rota.core.groups.arrays import apply_update, checked_update
from rota.core.jobs import deadline_watch
from rota.core.jobs.finish import describe_end, error_json, expire_job, finish_job
from rota.core.jobs.spill import (
    JobLookup,
    enqueue_or_spill,
    enqueue_or_spill_together,
    waits_for_worker_only,
)
from rota.core.jobs.wait_states import add_ready_job, dequeue, enter_wait_state
from rota.core.lifecycle import JobVerb, move_job
from rota.core.model import (
    Array,
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
    """Where one job of a batch stands."""

    turn: int
    """Its place among the jobs of the batch."""
    graph_ms: Millis | None
    """How long the fleet will probably work on its graph; None: it is not part of one."""


MeasureTerms = Callable[[Terms], tuple[Millis, float]]
"""(how long a job will probably run, the part of the fleet that it takes)."""


def rank_jobs(jobs: Sequence[NewJob], measure: MeasureTerms) -> list[GraphRank]:
    """The jobs of a batch, in the order given; its graphs have no circles."""
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
    """The longest chain that begins with each job, itself included."""
    ranks = list(lengths)
    ids = [new.id for new in jobs]
    position = {job_id: index for index, job_id in enumerate(ids)}
    order = upstream_first({ids[i]: [ids[up] for up in above] for i, above in enumerate(upstream)})
    for job_id in reversed(order):
        index = position[job_id]
        for above in upstream[index]:
            ranks[above] = max(ranks[above], lengths[above] + ranks[index])
    return ranks


def _graphs(upstream: Sequence[Sequence[int]]) -> list[int]:
    """For each job the first one of its graph."""
    root = list(range(len(upstream)))

    def find(index: int) -> int:
        while root[index] != index:
            root[index] = root[root[index]]
            index = root[index]
        return index

    for index, above in enumerate(upstream):
        for other in above:
            one, two = find(index), find(other)
            root[max(one, two)] = min(one, two)
    return [find(index) for index in range(len(upstream))]


INVALID = "invalid"
"""The reason of a job that could never have run."""
DUPLICATE = "duplicate"
"""The reason of a job that is another one's second name."""


def submit(t: SchedulerState, event: Submit, now: Instant) -> JobsAccepted:
    """All or none: everything is checked before anything changes."""
    if len(event.jobs) == 1 and not event.jobs[0].spec.dependencies:
        return _submit_one(t, event.jobs, now)
    ended = check_submit(t, event, JobLookup(t, event.preloaded, now))
    for new in event.jobs:
        if new.spec.terms.queue not in t.queues:
            t.queue(new.spec.terms.queue, now)
    named = {d.job_id: None for new in event.jobs for d in new.spec.dependencies}
    specs = _ranked_specs(t, event.jobs, linked=bool(named))
    if named:
        cells = [
            _accept(t, new.id, spec, now, named=new.id in named)
            for new, spec in zip(event.jobs, specs, strict=True)
        ]
    else:
        cells = _accept_all(t, event.jobs, specs, now)
    entangled = [cell for cell in cells if cell.life is NEW_LIFE]
    for cell in entangled:
        count_unmet(t, cell)
    for cell in entangled:
        _enter_first_state(t, cell, ended, now)
    t.changeset.submitted += len(cells)
    ids = tuple([cell.id for cell in cells])
    return JobsAccepted(ids, cells[0].record() if len(cells) == 1 else None)


def _submit_one(t: SchedulerState, jobs: Sequence[NewJob], now: Instant) -> JobsAccepted:
    """The same for a job that comes alone and depends on nobody, as most do."""
    _refuse_known_ids(t, jobs, {jobs[0].id: jobs[0]})
    _refuse_too_many(t, jobs)
    cell = submit_independent(t, jobs[0], now)
    return JobsAccepted((cell.id,), cell.record())


def check_submit(t: SchedulerState, event: Submit, memory: JobLookup) -> dict[JobId, JobState]:
    """The states of the jobs that these wait for; raises what they would be refused for."""
    batch = {new.id: new for new in event.jobs}
    _refuse_known_ids(t, event.jobs, batch)
    ended = _check_dependencies(event.jobs, batch, memory)
    _refuse_too_many(t, event.jobs)
    return ended


def _refuse_too_many(t: SchedulerState, jobs: Sequence[NewJob]) -> None:
    """What a tenant's quota, or the cell's, leaves room for."""
    most = t.policy.max_queued
    if most is not None:
        live = len(t.jobs) + t.ready_queue.spilled + t.groups.waiting
        came = sum(copies_of(new.spec.group) for new in jobs)
        if live + came > most:
            raise OverQuota(f"the cell has {live} live jobs of at most {most}; {came} more came")
    if not t.tenants.capped_count:
        return
    asked: dict[str, int] = {}
    for new in jobs:
        tenant = new.spec.terms.tenant
        asked[tenant] = asked.get(tenant, 0) + copies_of(new.spec.group)
    for name, count in asked.items():
        cell = t.tenants.entries.get(name)
        quota = None if cell is None else cell.tenant.quota
        if cell is None or quota is None or quota.queued is None:
            continue
        if cell.waiting + count > quota.queued:
            raise OverQuota(
                f"tenant {name} has {cell.waiting} waiting jobs of at most {quota.queued};"
                f" {count} more came"
            )


def reject(t: SchedulerState, event: Reject, now: Instant) -> JobsAccepted:
    """Keeps what cannot run, as failed jobs that say why: somebody holds their ids."""
    _refuse_known_ids(t, event.jobs, {new.id: new for new in event.jobs})
    for new in event.jobs:
        t.queue(new.spec.terms.queue, now)
        # As one that others depend on: it must not be in any line, for it ends here.
        (spec,) = _ranked_specs(t, [new], linked=False)
        cell = _accept(t, new.id, spec, now, named=True)
        verb, reason = JobVerb.REJECT, INVALID
        if event.duplicate:
            verb, reason = JobVerb.SKIP, DUPLICATE
        life = replace(cell.life, reason=reason, error=error_json(event.why))
        finish_job(t, cell, verb, life, now)
    t.changeset.submitted += len(event.jobs)
    return JobsAccepted(tuple(new.id for new in event.jobs))


def submit_independent(t: SchedulerState, new: NewJob, now: Instant) -> JobEntry:
    """A job that comes alone, or that a schedule or a trigger makes; it depends on nobody."""
    terms = new.spec.terms
    if terms.queue not in t.queues:
        t.queue(terms.queue, now)
    spec = replace(new.spec, terms=t.interned_terms(terms), arrival_number=t.next_arrival_number)
    t.next_arrival_number += 1
    cell = _accept(t, new.id, spec, now, named=False)
    if cell.life is NEW_LIFE:
        _enter_first_state(t, cell, {}, now)
    t.changeset.submitted += 1
    return cell


def _refuse_known_ids(
    t: SchedulerState, jobs: Sequence[NewJob], batch: dict[JobId, NewJob]
) -> None:
    if len(batch) != len(jobs):
        raise Conflict("two jobs of the batch have the same id")
    # Most ids have just been made, and come after all that have left memory: none is looked for.
    if not batch or (
        t.jobs.keys().isdisjoint(batch) and min(batch) > t.recently_finished.latest_id
    ):
        return
    for job_id in batch:
        if job_id in t.jobs or t.recently_finished.departed_at(job_id) is not None:
            raise Conflict(f"there is a job {job_id} already")


def _check_dependencies(
    jobs: Sequence[NewJob], batch: dict[JobId, NewJob], memory: JobLookup
) -> dict[JobId, JobState]:
    """The states of all upstream jobs outside the batch; refuses unknown ones and circles."""
    states: dict[JobId, JobState] = {}
    inside: dict[JobId, list[JobId]] = {}
    for index, new in enumerate(jobs):
        for dependency in new.spec.dependencies:
            if dependency.job_id in batch:
                inside.setdefault(new.id, []).append(dependency.job_id)
            elif dependency.job_id not in states:
                states[dependency.job_id] = _state_of_upstream(
                    memory, dependency.job_id, index, len(jobs)
                )
    if inside and (path := find_cycle(inside)) is not None:
        raise DependencyCycle([batch[job_id].ref or job_id for job_id in path])
    return states


def _state_of_upstream(memory: JobLookup, job_id: JobId, index: int, count: int) -> JobState:
    state = memory.state(job_id)
    if state is None:
        field = "dependencies" if count == 1 else f"jobs[{index}].dependencies"
        raise UnknownDependency(f"there is no job {job_id} to depend on", field)
    return state


def _ranked_specs(t: SchedulerState, jobs: Sequence[NewJob], *, linked: bool) -> list[Spec]:
    """What each asks for, and its place in line: as they came, or as their graph wants it."""
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
            arrival_number=first + task.turn,
            graph_ms=task.graph_ms,
        )
        for new, task in zip(jobs, rank_jobs(jobs, measure), strict=True)
    ]


def _accept(t: SchedulerState, job_id: JobId, spec: Spec, now: Instant, *, named: bool) -> JobEntry:
    """The job is known; one that only waits for a worker has begun to."""
    if not named and waits_for_worker_only(spec, now):
        return enqueue_or_spill(t, job_id, spec, now)
    cell = t.add_job(job_id, spec, NEW_LIFE)
    t.put_job(cell)
    return cell


def _accept_all(
    t: SchedulerState, jobs: Sequence[NewJob], specs: Sequence[Spec], now: Instant
) -> list[JobEntry]:
    """The same for a batch in which nobody waits for another."""
    cells: list[JobEntry] = []
    first, count = 0, len(jobs)
    # Nobody is put on the shelf: not every one of them has to ask.
    is_room = not t.ready_queue.spilled_groups and len(t.jobs) + count <= t.timing.window.jobs
    while first < count:
        spec, after = specs[first], first + 1
        if not waits_for_worker_only(spec, now):
            cells.append(_accept(t, jobs[first].id, spec, now, named=True))
            first = after
            continue
        while after < count and specs[after].terms is spec.terms and _is_alike(specs, after, now):
            after += 1
        if after - first > 1:
            ids = [new.id for new in jobs[first:after]]
            cells += enqueue_or_spill_together(t, ids, specs[first:after], now)
        elif is_room:
            cells.append(add_ready_job(t, jobs[first].id, spec, now))
        else:
            cells.append(enqueue_or_spill(t, jobs[first].id, spec, now))
        first = after
    return cells


def _is_alike(specs: Sequence[Spec], index: int, now: Instant) -> bool:
    """Whether nothing but the task tells one from that before it, which has the same terms."""
    spec, before = specs[index], specs[index - 1]
    return (
        spec.created_at == before.created_at
        and spec.run_at == before.run_at
        and spec.graph_ms == before.graph_ms
        and waits_for_worker_only(spec, now)
    )


def count_unmet(t: SchedulerState, cell: JobEntry) -> None:
    """Counts the upstream jobs that have yet to end."""
    for dependency in cell.spec.dependencies:
        upstream = t.jobs.get(dependency.job_id)
        if upstream is not None:
            if upstream.life.line:
                t.set_life(upstream, upstream.life)  # off the shelf: a load must find it
            cell.unmet += 1
            t.dependencies.add(dependency.job_id, cell.id, cell.life.lives, dependency.when)


def _enter_first_state(
    t: SchedulerState, cell: JobEntry, ended: dict[JobId, JobState], now: Instant
) -> None:
    """The job is skipped, expired, or waits where it has to."""
    if cell.id not in t.jobs:
        return  # an earlier one of the batch was skipped, and this with it
    refused = _skipped_by(cell.spec.dependencies, ended, t)
    if refused is not None:
        skip_because(t, cell, refused, ended[refused], now)
        return
    expires = cell.spec.expires_at
    if expires is not None:
        if expires <= now:
            expire_job(t, cell, now)
            return
        t.timers.set(expires, TimerKind.JOB, cell.id)
    deadline_watch.watch_deadline(t, cell, now)
    enter_wait_state(t, cell, now)


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
    t: SchedulerState, cell: JobEntry, upstream: JobId, state: JobState, now: Instant
) -> None:
    """The job cannot run any more, because of how an upstream job ended."""
    if cell.life.state is JobState.QUEUED:
        held = move_job(cell.id, cell.life.state, JobVerb.HOLD)
        t.set_life(cell, replace(cell.life, state=held))
    error = error_json(f"job {upstream}, which it depends on, {describe_end(state)}")
    finish_job(t, cell, JobVerb.SKIP, replace(cell.life, reason="upstream", error=error), now)


def update(t: SchedulerState, event: Update, now: Instant) -> JobAnswer:
    """Another spec for a job that waits; it goes to the place it would have had with it."""
    memory = JobLookup(t, event.preloaded, now)
    cell = memory.live(event.job_id)
    if cell is None:
        record = memory.require_ended(event.job_id)
        move_job(event.job_id, record.life.state, JobVerb.UPDATE)
        raise AssertionError("an ended job has no update")
    before, is_begun = cell.spec, _is_begun_array(cell)
    if not is_begun:
        move_job(cell.id, cell.life.state, JobVerb.UPDATE)
    if event.spec.revision != before.revision:
        raise StalePreload(f"job {cell.id} was updated meanwhile")
    spec = replace(
        event.spec,
        arrival_number=before.arrival_number,
        created_at=before.created_at,
        revision=before.revision + 1,
    )
    if before.group is not None or spec.group is not None:
        spec = checked_update(cell, spec)
    if is_begun:
        t.queue(spec.terms.queue, now)
        apply_update(t, cell, spec, now)
        return JobAnswer(cell.record())
    ended: dict[JobId, JobState] = {}
    if spec.dependencies != before.dependencies:
        ended = _check_new_dependencies(t, cell, spec.dependencies, memory)
    t.queue(spec.terms.queue, now)
    dequeue(t, cell, now)
    t.set_spec(cell, spec)
    if spec.run_at != before.run_at and cell.life.due_at is not None:
        t.set_life(cell, replace(cell.life, due_at=None))
    deadline_watch.reset_deadline(t, cell, before.finish_by)
    if spec.dependencies != before.dependencies:
        _replace_dependencies(t, cell, before.dependencies)
    _enter_first_state(t, cell, ended, now)
    return JobAnswer(cell.record())


def _is_begun_array(cell: JobEntry) -> bool:
    return isinstance(cell.spec.group, Array) and cell.life.state is JobState.RUNNING


def _check_new_dependencies(
    t: SchedulerState, cell: JobEntry, dependencies: Sequence[Dependency], memory: JobLookup
) -> dict[JobId, JobState]:
    states = {d.job_id: _state_of_upstream(memory, d.job_id, 0, 1) for d in dependencies}
    upstreams: dict[JobId, list[JobId]] = {cell.id: [d.job_id for d in dependencies]}
    to_visit = list(upstreams[cell.id])
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


def _replace_dependencies(t: SchedulerState, cell: JobEntry, before: Sequence[Dependency]) -> None:
    for dependency in before:
        t.dependencies.remove(dependency.job_id, cell.id)
    cell.unmet = 0
    count_unmet(t, cell)
