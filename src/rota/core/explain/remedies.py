"""Remedies for a job that waits: for each cause, the one change that would lift it.

Each remedy comes with the commands that would make the change. Whether it is enough is not decided
here: the commands can be tried on a copy of the scheduler.
"""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from itertools import islice
from typing import Any, TypeAlias

import msgspec
from msgspec.structs import replace

from rota.core.commands import (
    AnyInput,
    Cancel,
    Complete,
    Completion,
    PutQueueSettings,
    PutTenantSettings,
    Register,
    Resume,
    SetPolicy,
    Update,
)
from rota.core.entries import JobEntry, WorkerEntry
from rota.core.explain.why import affinity_alternative, duration_text, labels_for
from rota.core.info_model import Cause
from rota.core.limits import EXPLAINED_MAX
from rota.core.model import (
    Affinity,
    ExecutionId,
    ExecutionState,
    Instant,
    JobId,
    Needs,
    Quota,
    Resources,
    Spec,
    WorkerId,
    WorkerState,
)
from rota.core.placement.feasibility import infeasible_reasons
from rota.core.reservations.reserve import earliest_fit
from rota.core.resources import Shortfall, amount_text, amounts, plain_amount, shortfalls
from rota.core.state import SchedulerState

NEW_WORKER = WorkerId("new")
"""Worker that a remedy would add."""
MOMENTARY = "no_poll"
"""Code of a cause that goes away by itself: a worker with free capacity will poll."""


class Remedy(msgspec.Struct, frozen=True):
    """Remedy: a change that would lift one cause."""

    code: str
    """Code of the cause that it lifts."""
    message: str
    figures: Mapping[str, Any]
    change: tuple[AnyInput, ...] = ()
    """Commands that make the change; none: it cannot be tried."""
    is_enough: bool | None = None
    """Whether the job would then start as soon as the workers poll; None: not tried."""


FindRemedies: TypeAlias = Callable[[SchedulerState, JobEntry, Cause, Instant], Iterator[Remedy]]


def remedies(
    t: SchedulerState, job_id: JobId, causes: Sequence[Cause], now: Instant
) -> tuple[Remedy, ...]:
    """Remedies for each cause that a person, or time, could lift."""
    job = t.jobs.get(job_id)
    if job is None:
        return ()
    found: list[Remedy] = []
    for cause in causes:
        find = _FINDERS.get(cause.code)
        if find is not None:
            found.extend(find(t, job, cause, now))
    return tuple(found)


def _with_spec(job: JobEntry, spec: Spec) -> tuple[AnyInput, ...]:
    return (Update(job_id=job.id, spec=spec),)


def _with_resources(job: JobEntry, resources: Resources) -> tuple[AnyInput, ...]:
    needs = replace(job.spec.terms.needs, resources=resources)
    return _with_spec(job, replace(job.spec, terms=replace(job.spec.terms, needs=needs)))


def _completions(t: SchedulerState, executions: Sequence[ExecutionId]) -> tuple[AnyInput, ...]:
    return tuple(
        Complete(
            completion=Completion(
                execution_id=one,
                fence=t.executions[one].execution.fence,
                state=ExecutionState.SUCCEEDED,
            )
        )
        for one in executions
    )


# Times, dependencies and limits


def _start_now(t: SchedulerState, job: JobEntry, cause: Cause, now: Instant) -> Iterator[Remedy]:
    change = _with_spec(job, replace(job.spec, run_at=now))
    text = "if its start time were now"
    yield Remedy(cause.code, text, {"until": cause.figures["at"]}, change)


def _without_dependencies(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    jobs = [one["job_id"] for one in cause.figures["jobs"]]
    count = cause.figures["waiting_for"]
    who = f"job {jobs[0]}" if count == 1 else f"these {count} jobs"
    change = _with_spec(job, replace(job.spec, dependencies=()))
    yield Remedy(cause.code, f"if {who} ended as required", {"jobs": jobs}, change)


def _resumed_queue(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    name = cause.figures["queue"]
    change = (PutQueueSettings(name=name, paused=False),)
    yield Remedy(cause.code, f"if queue {name} were resumed", {"queue": name}, change)


def _higher_queue_limit(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    queue = t.queues[job.spec.terms.queue]
    name, most = queue.queue.name, cause.figures["max_workers"] + 1
    first = islice(queue.runs, EXPLAINED_MAX)
    holders = [t.executions[execution_id].execution.job_id for execution_id in first]
    text = f"if one of the {queue.running} running jobs of queue {name} ended,"
    change = (PutQueueSettings(name=name, max_workers=most),)
    figures = {"max_workers": most, "jobs": holders}
    yield Remedy(cause.code, f"{text} or if it might run {most} at once", figures, change)


def _without_rate_limit(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    name = cause.figures["queue"]
    change = (PutQueueSettings(name=name, cleared=("rate_limit",)),)
    text = f"if queue {name} had no rate limit, or when it allows the next start"
    yield Remedy(cause.code, text, {"until": cause.figures["at"]}, change)


def _freed_key(t: SchedulerState, job: JobEntry, cause: Cause, now: Instant) -> Iterator[Remedy]:
    holders, key = cause.figures["holders"], cause.figures["key"]
    one = "the holder" if len(holders) == 1 else f"one of these {len(holders)} holders"
    execution = t.jobs[holders[0]].life.execution_id
    change: tuple[AnyInput, ...] = (Cancel(job_id=holders[0]),)
    if execution in t.executions:  # it may wait for a retry
        change = _completions(t, [execution])
    yield Remedy(cause.code, f"if {one} of key {key!r} ended", {"jobs": holders}, change)


def _higher_quota(t: SchedulerState, job: JobEntry, cause: Cause, now: Instant) -> Iterator[Remedy]:
    figures = cause.figures
    tenant = t.tenants.entries[figures["tenant"]]
    needed = figures["running"] + 1 if "running" in figures else figures["used"] + figures["asked"]
    jobs = [t.executions[one].execution.job_id for one in list(tenant.held)[:EXPLAINED_MAX]]
    text = f"if tenant {figures['tenant']} might use {needed:g}, or enough of its jobs ended"
    kind = {"quota_running": "running", "quota_cpu": "cpu_milli"}.get(cause.code, "memory")
    amount = round(needed * 1000) if kind == "cpu_milli" else round(needed)
    quota = replace(tenant.tenant.quota or Quota(), **{kind: amount})
    name, weight = tenant.tenant.name, tenant.tenant.weight
    change = (PutTenantSettings(name=name, weight=weight, quota=quota),)
    yield Remedy(cause.code, text, {"quota": needed, "jobs": jobs}, change)


def _higher_cell_limit(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    most = cause.figures["max_running"] + 1
    change = (SetPolicy(policy=replace(t.policy, max_running=most)),)
    text = f"if the cell might run {most} at once, or one ended"
    yield Remedy(cause.code, text, {"max_running": most}, change)


def _new_worker(t: SchedulerState, job: JobEntry, cause: Cause, now: Instant) -> Iterator[Remedy]:
    terms = job.spec.terms
    new = _worker_for(terms.needs)
    asked = [amount_text(kind, amount) for kind, amount in amounts(new.capacity) if amount]
    asked += [f"capability {one}" for one in new.capabilities]
    asked += [f"label {label}={value}" for label, value in new.labels]
    text = (
        f"if a worker with {', '.join(asked) or 'free capacity'} registered for queue {terms.queue}"
    )
    yield Remedy(cause.code, text, {}, (new,))


def _worker_for(needs: Needs) -> Register:
    return Register(
        worker_id=NEW_WORKER,
        session="new",
        name="new",
        capacity=needs.resources,
        capabilities=needs.capabilities,
        labels=() if needs.affinity is None else labels_for(needs.affinity),
    )


def _returned_worker(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    terms = job.spec.terms
    able = [
        one.worker
        for one in t.fleet.workers.values()
        if not infeasible_reasons(terms.queue, terms.needs, one.machine)
    ]
    drained = [one.id for one in able if one.state is WorkerState.DRAINING]
    if drained:
        text = f"if worker {drained[0]} were resumed"
        change = (Resume(worker_id=drained[0]),)
        yield Remedy(cause.code, text, {"workers": drained[:EXPLAINED_MAX]}, change)
    gone = [one.id for one in able if one.state is not WorkerState.DRAINING]
    if gone:
        text = "if one of the offline workers came back"
        yield Remedy(
            cause.code, text, {"workers": gone[:EXPLAINED_MAX]}, (_worker_for(terms.needs),)
        )


# Capacity


def _smaller_request(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    """The nearest worker that would do if the job requested less of one resource."""
    terms = job.spec.terms
    best: tuple[float, Shortfall, WorkerEntry] | None = None
    for worker in t.fleet.online_first():
        reasons = infeasible_reasons(terms.queue, terms.needs, worker.machine)
        shortfall = reasons[0] if len(reasons) == 1 else None
        if isinstance(shortfall, Shortfall) and shortfall.there > 0:
            ratio = shortfall.asked / shortfall.there
            if best is None or ratio < best[0]:
                best = (ratio, shortfall, worker)
    if best is not None:
        _, shortfall, worker = best
        text = f"if it requested no more than {amount_text(shortfall.kind, shortfall.there)}"
        figures = {
            "kind": shortfall.kind,
            "at_most": plain_amount(shortfall.kind, shortfall.there),
            "worker_id": worker.worker.id,
        }
        less = _reduced(terms.needs.resources, shortfall.kind, shortfall.asked - shortfall.there)
        yield Remedy(cause.code, text, figures, _with_resources(job, less))
    alternative = affinity_alternative(t, job)
    if alternative is not None:
        text, other = alternative
        yield Remedy(cause.code, text, {"worker_id": other[0]}, _with_affinity(job, other[1]))
    yield from _new_worker(t, job, cause, now)


def _with_affinity(job: JobEntry, affinity: Affinity) -> tuple[AnyInput, ...]:
    needs = replace(job.spec.terms.needs, affinity=affinity)
    return _with_spec(job, replace(job.spec, terms=replace(job.spec.terms, needs=needs)))


def _without_preference(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    affinity, worker_id = job.spec.terms.needs.affinity, cause.figures["instead"]
    text = f"if it did not wait for a preferred worker: worker {worker_id} has enough free"
    figures = {"worker_id": worker_id, "until": cause.figures["at"]}
    without_wait = replace(affinity or Affinity(), wait_ms=0)
    yield Remedy(cause.code, text, figures, _with_affinity(job, without_wait))


def _reduced(resources: Resources, kind: str, by: int) -> Resources:
    fixed = {"cpu": "cpu_milli", "gpu": "gpu_milli", "memory": "memory", "storage": "storage"}
    if kind in fixed:
        return replace(resources, **{fixed[kind]: getattr(resources, fixed[kind]) - by})
    custom = tuple((name, n - by if name == kind else n) for name, n in resources.custom)
    return replace(resources, custom=custom)


def _free_capacity(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    """A smaller request, or the next ends that free enough capacity."""
    terms = job.spec.terms
    needs = terms.needs.resources
    able = [
        worker
        for worker in t.fleet.workers.values()
        if worker.worker.state is WorkerState.ONLINE
        and not infeasible_reasons(terms.queue, terms.needs, worker.machine)
    ]
    smaller = _nearest_fit(able, needs)
    if smaller is not None:
        shortfall, worker = smaller
        short = shortfall.asked - shortfall.there
        text = f"with {amount_text(shortfall.kind, short)} less it would fit on worker"
        figures = {
            "kind": shortfall.kind,
            "less": plain_amount(shortfall.kind, short),
            "worker_id": worker.worker.id,
        }
        change = _with_resources(job, _reduced(needs, shortfall.kind, short))
        yield Remedy(cause.code, f"{text} {worker.worker.id}", figures, change)
    soonest = min(
        ((earliest_fit(one, needs, now)[0], one) for one in able),
        key=lambda found: found[0],
        default=None,
    )
    if soonest is not None:
        yield _after_ends(t, cause.code, *soonest)


def _nearest_fit(
    able: Sequence[WorkerEntry], needs: Resources
) -> tuple[Shortfall, WorkerEntry] | None:
    """The worker that is short of only one resource, and least of it."""
    best: tuple[float, Shortfall, WorkerEntry] | None = None
    for worker in able:
        short = shortfalls(needs, worker.free)
        if len(short) == 1 and short[0].there > 0:
            part = short[0].there / short[0].asked
            if best is None or part > best[0]:
                best = (part, short[0], worker)
    return None if best is None else best[1:]


def _after_ends(t: SchedulerState, code: str, at: Instant, worker: WorkerEntry) -> Remedy:
    ending = [one for end, one in worker.ends if end <= at]
    jobs = [t.executions[one].execution.job_id for one in ending]
    who = f"job {jobs[0]} ends" if len(jobs) == 1 else f"{len(jobs)} jobs end"
    text = f"when {who} on worker {worker.worker.id}, enough will be free"
    figures = {"worker_id": worker.worker.id, "jobs": jobs[:EXPLAINED_MAX], "at": at}
    return Remedy(code, text, figures, _completions(t, ending))


# Order


def _shorter_estimate(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    time = max(0, cause.figures["until"] - now)
    if time:
        text = f"if it were expected to run no longer than {duration_text(time)} (the estimate is"
        terms = replace(job.spec.terms, expected_runtime_ms=time)
        yield Remedy(
            cause.code,
            f"{text} {duration_text(job.estimate)})",
            {"expected_runtime": time / 1000},
            _with_spec(job, replace(job.spec, terms=terms)),
        )


def _higher_priority(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    class_queue = t.ready_queue.queue_of_job(job)
    head = None if class_queue is None else t.jobs.get(t.ready_queue.head(class_queue)[2])
    if head is not None and head.id != job.id:
        priority = max(head.spec.terms.priority, job.spec.terms.priority) + 1
        terms = replace(job.spec.terms, priority=priority)
        text = f"with priority {priority} it would start sooner"
        change = _with_spec(job, replace(job.spec, terms=terms))
        yield Remedy(cause.code, text, {"priority": priority, "first": head.id}, change)


def _larger_weight(
    t: SchedulerState, job: JobEntry, cause: Cause, now: Instant
) -> Iterator[Remedy]:
    name = job.spec.terms.tenant
    weight = t.tenants.weight_of(name)
    text = f"if tenant {name} had a larger weight than {weight:g}"
    yield Remedy(cause.code, text, {"tenant": name, "weight": weight})


_FINDERS: Mapping[str, FindRemedies] = {
    "run_at": _start_now,
    "retry": _start_now,
    "dependencies": _without_dependencies,
    "queue_paused": _resumed_queue,
    "queue_full": _higher_queue_limit,
    "rate_limit": _without_rate_limit,
    "concurrency": _freed_key,
    "quota_running": _higher_quota,
    "quota_cpu": _higher_quota,
    "quota_memory": _higher_quota,
    "cell_full": _higher_cell_limit,
    "no_workers": _new_worker,
    "no_function": _new_worker,
    "workers_away": _returned_worker,
    "impossible": _smaller_request,
    "resources_busy": _free_capacity,
    "affinity": _without_preference,
    "reserved": _shorter_estimate,
    "order": _higher_priority,
    "fair_share": _larger_weight,
}
