"""Explains why a job is not running: asks the checks that decide, and reports what they say.

Covers time, dependencies, queue limits, quotas, concurrency keys, workers, affinity, reservations,
fair share, arrays and gangs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rota.core.entries import NO_CLASS, JobEntry, WorkerEntry
from rota.core.explain.info import entitlement
from rota.core.groups.arrays import is_started_array
from rota.core.groups.placement import copies_in, starts_left
from rota.core.info_model import Cause, Explanation
from rota.core.jobs.wait_states import due_at
from rota.core.limits import EXPLAINED_MAX
from rota.core.model import (
    Affinity,
    Array,
    Gang,
    Instant,
    JobId,
    JobRecord,
    JobState,
    Labels,
    LabelSelector,
    Millis,
    WorkerId,
    WorkerState,
    has_preference,
)
from rota.core.placement.feasibility import infeasible_reasons
from rota.core.placement.fleet import Reservation
from rota.core.policy import BackfillKind
from rota.core.ready_queue.fair_share import FairOrder, dominant_share
from rota.core.ready_queue.limits_and_quotas import exceeded_limits, over_quota
from rota.core.ready_queue.ready_queue import is_spill_marker
from rota.core.resources import (
    Shortfall,
    amount_text,
    amounts,
    plain_amount,
    shortfall_text,
    shortfalls,
)
from rota.core.state import SchedulerState

_UNITS = ((86_400_000, "d"), (3_600_000, "h"), (60_000, "min"), (1_000, "s"))


def duration_text(ms: Millis) -> str:
    """Text of a duration: seconds below a minute, else the two largest units (1 h 30 min)."""
    if ms < 60_000:
        return f"{ms / 1000:g} s"
    parts: list[str] = []
    for size, name in _UNITS:
        count, ms = divmod(ms, size)
        if count:
            parts.append(f"{count} {name}")
        elif parts:
            break
    return " ".join(parts[:2])


def has_members_to_start(t: SchedulerState, job: JobEntry) -> bool:
    """Whether the job is a started array with waiting members."""
    return is_started_array(job) and t.groups.of(job).waiting > 0


def progress_cause(t: SchedulerState, job: JobEntry) -> Cause:
    """Cause for a started group: how many members run and wait."""
    group = t.groups.of(job)
    others = len(group.live) - group.running
    text = f"{group.running} of its {group.size} members run"
    if group.waiting:
        text += f", {group.waiting} wait to start"
    if others:
        text += f", {others} for a retry"
    if group.cause:
        text += "; they are being stopped, because one of them did not succeed"
    return Cause(
        "members" if group.waiting else job.life.state,
        text,
        {
            "count": group.size,
            "running": group.running,
            "waiting": group.waiting,
            "retrying": others,
            "succeeded": group.succeeded,
            "failed": group.failed,
            "cancelled": group.cancelled,
        },
    )


def max_parallel_cause(t: SchedulerState, job: JobEntry) -> Iterator[Cause]:
    """Cause for an array whose max_parallel is reached."""
    array = job.spec.group
    if not isinstance(array, Array) or array.max_parallel is None:
        return
    under_way = len(t.groups.of(job).live)
    if under_way >= array.max_parallel:
        text = f"{under_way} of its members are started, as many as max_parallel allows"
        figures = {"under_way": under_way, "max_parallel": array.max_parallel}
        yield Cause("max_parallel", text, figures)


def gang_shortage(
    t: SchedulerState, job: JobEntry, online: Sequence[WorkerEntry]
) -> Iterator[Cause]:
    """Cause for a gang: how many members do not fit on the workers that could run it."""
    gang = job.spec.group
    if not isinstance(gang, Gang):
        return
    needs, size = job.spec.terms.needs.resources, gang.size
    most = sum(copies_in(needs, worker.worker.capacity) for worker in online)
    free = sum(copies_in(needs, worker.free) for worker in online)
    asking = sum(_asked_for(worker, copies_in(needs, worker.free)) for worker in online)
    job_class = t.ready_queue.class_of(job.spec.terms)
    left = size if job_class is None else max(0, starts_left(t, job_class))
    fitting = next((count for count in (free, left, asking) if count < size), size)
    if fitting == size:
        return
    figures = {
        "size": size,
        "short": size - fitting,
        "room": free,
        "asking": asking,
        "capacity": most,
        "workers": len(online),
    }
    yield Cause("gang", _short_text(figures, left), figures)


def _short_text(figures: dict[str, int], left: int) -> str:
    size, free, most = figures["size"], figures["room"], figures["capacity"]
    head = f"gang short by {_counted(figures['short'], 'member')}"
    where = _counted(figures["workers"], "worker")
    if most < size:
        return f"{head}: {where} could run {most} of its {size} at once, even if they were empty"
    if free < size:
        return f"{head}: free capacity for {free} of its {size} on {where}"
    if left < size:
        return f"{head}: limits allow {left} of its {size} executions"
    return f"{head}: {where} with free capacity, but open polls for only {figures['asking']} jobs"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _asked_for(worker: WorkerEntry, free: int) -> int:
    return 0 if worker.poll is None else min(free, worker.poll.free_slots)


AFFINITY_REASONS = ("label ", "only ")
"""Prefixes of the reasons that `infeasible_reasons` gives for labels and dedicated workers."""


def affinity_shortage(t: SchedulerState, job: JobEntry, reason: str) -> str:
    """Text for such a reason, with how many workers it alone excludes."""
    terms = job.spec.terms
    alone = 0
    for worker in t.fleet.workers.values():
        alone += infeasible_reasons(terms.queue, terms.needs, worker.machine) == (reason,)
    without = f"; without that {_counted(alone, 'worker')} could run it" if alone else ""
    if reason.startswith("label "):
        return f"none has the {reason}{without}"
    kept = reason.removeprefix("only ")
    return f"the workers that could run it take only jobs that ask for {kept}{without}"


def affinity_alternative(
    t: SchedulerState, job: JobEntry
) -> tuple[str, tuple[WorkerId, Affinity]] | None:
    """A change of affinity that would let one worker run the job.

    Returns its text, the worker, and the changed affinity.
    """
    terms = job.spec.terms
    affinity = terms.needs.affinity or Affinity()
    for worker in t.fleet.online_first():
        reasons = infeasible_reasons(terms.queue, terms.needs, worker.machine)
        reason = reasons[0] if len(reasons) == 1 else None
        if not isinstance(reason, str) or not reason.startswith(AFFINITY_REASONS):
            continue
        worker_id = worker.worker.id
        if reason.startswith("label "):
            label = reason.removeprefix("label ").partition("=")[0]
            rest = tuple(one for one in affinity.require if one[0] != label)
            text = f"if it did not require the {reason}: worker {worker_id} lacks nothing else"
            return text, (worker_id, replace(affinity, require=rest))
        kept = worker.worker.only[0]
        text = f"if it asked for {kept}, or tolerated it: worker {worker_id} takes only such jobs"
        tolerant = tuple(sorted((*affinity.tolerate, kept)))
        return text, (worker_id, replace(affinity, tolerate=tolerant))
    return None


def labels_for(affinity: Affinity) -> Labels:
    """Labels of a worker that would meet the requirements."""
    return tuple((label, values[0]) for label, values in affinity.require)


def affinity_wait(t: SchedulerState, job: JobEntry, now: Instant) -> Iterator[Cause]:
    """Cause for a job that fits somewhere and waits for a worker that it prefers."""
    affinity = job.spec.terms.needs.affinity
    if affinity is None or not has_preference(affinity) or job.class_index == NO_CLASS:
        return
    job_class = t.ready_queue.classes[job.class_index]
    until = t.affinity.waits_until(job_class, now)
    instead = [w for w in t.fleet.open.values() if t.fleet.fitting(w) & job_class.bit]
    best = min(instead, key=lambda w: (t.affinity.soft_affinity(job, w), w.rank), default=None)
    if until is None or best is None:
        return
    better = t.affinity.better_worker(job_class, job, t.affinity.soft_affinity(job, best))
    wanted = _preference_text(t, affinity, job)
    yield Cause(
        "affinity",
        f"it waits up to {duration_text(until - now)} more for a worker that it prefers ({wanted});"
        f" otherwise it would start on worker {best.worker.id} now",
        {
            "at": until,
            "wanted": wanted,
            "worker_id": None if better is None else better.worker.id,
            "instead": best.worker.id,
        },
    )


def _preference_text(t: SchedulerState, affinity: Affinity, job: JobEntry) -> str:
    parts = []
    if affinity.near_previous and (previous := t.affinity.previous_worker(job)) is not None:
        parts.append(f"near worker {previous}")
    if affinity.prefer:
        parts.append(_label_pairs(affinity.prefer))
    if affinity.spread:
        parts.append(f"another {affinity.spread}")
    return ", ".join(parts)


def _label_pairs(wanted: LabelSelector) -> str:
    return ", ".join(f"{label}={'|'.join(values)}" for label, values in wanted)


def promised_start(t: SchedulerState, job: JobEntry, now: Instant) -> tuple[Instant, str] | None:
    """When the job's reservation begins, and a text about it."""
    if job.class_index == NO_CLASS:
        return None
    reservation = t.reservations.get(job.class_index)
    if (
        reservation is not None
        and reservation.job_id == job.id
        and t.policy.backfill is BackfillKind.EASY
    ):
        return max(now, reservation.at), f"capacity is reserved on worker {reservation.worker_id}"
    planned = t.conservative_plan.get(job.id)
    if planned is not None and t.policy.backfill is BackfillKind.CONSERVATIVE:
        return max(now, planned[1]), f"it is planned to start on worker {planned[0]}"
    return None


def held_back_by_reservations(
    t: SchedulerState, job: JobEntry, with_capacity: Sequence[WorkerEntry], now: Instant
) -> Iterator[Cause]:
    """Cause for a job that fits, but is kept off those workers by reservations or the plan."""
    planned = t.conservative_plan.get(job.id)
    if t.policy.backfill is BackfillKind.GREEDY:
        return
    if t.policy.backfill is BackfillKind.CONSERVATIVE:
        if planned is not None and with_capacity:
            worker_id, at = planned
            text = f"it would delay jobs before it; it is planned to start on worker {worker_id}"
            yield Cause("planned", text, {"worker_id": worker_id, "until": at})
        return
    by_worker = {
        reservation.worker_id: reservation
        for reservation in t.reservations.values()
        if _is_current(t, reservation)
    }
    reservations = [by_worker[w.worker.id] for w in with_capacity if w.worker.id in by_worker]
    reservations = [reservation for reservation in reservations if reservation.job_id != job.id]
    for reservation in reservations[:1]:
        yield Cause(
            "reserved",
            f"worker {reservation.worker_id} is reserved for job {reservation.job_id},"
            f" which starts in about {max(0, reservation.at - now) / 1000:g} s",
            {
                "job_id": reservation.job_id,
                "worker_id": reservation.worker_id,
                "until": reservation.at,
                "expected_runtime": job.estimate / 1000,
                "places": len(reservations),
            },
        )
    if not reservations and with_capacity:
        yield from _behind_first(t, job)


def _is_current(t: SchedulerState, reservation: Reservation) -> bool:
    job = t.jobs.get(reservation.job_id)
    return job is not None and job.life.state is JobState.QUEUED


def _behind_first(t: SchedulerState, job: JobEntry) -> Iterator[Cause]:
    """Cause for a job behind a first one that does not fit yet."""
    class_queue = t.ready_queue.first(~t.blocked_classes)
    head = None if class_queue is None else t.ready_queue.head(class_queue)
    if head is None or is_spill_marker(head) or head[2] == job.id:
        return
    first = t.jobs[head[2]]
    if not t.fleet.machines_for(t.ready_queue.classes[first.class_index]).indexes:
        return  # no worker there could run it, so it blocks nothing
    yield Cause(
        "behind",
        f"job {head[2]} ({first.spec.terms.name}) is first and does not fit yet;"
        " jobs behind it wait",
        {"job_id": head[2]},
    )


def fair_share(t: SchedulerState, job: JobEntry) -> Iterator[Cause]:
    """Cause for a job whose tenant is behind others by fair share."""
    order, name = t.ready_queue.order, job.spec.terms.tenant
    tenant = t.tenants.entries.get(name)
    if not isinstance(order, FairOrder) or tenant is None:
        return
    ahead = order.ahead_of(name)
    if not ahead:
        return
    share = dominant_share(tenant.holds(), t.fleet.capacity)
    entitled = entitlement(t, tenant)
    who = f"{ahead} tenants go" if ahead > 1 else f"tenant {order.rival(name)} goes"
    yield Cause(
        "fair_share",
        f"tenant {name} holds {share:.0%} of the fleet and is entitled to {entitled:.0%};"
        f" {who} before it",
        {
            "tenant": name,
            "share": round(share, 4),
            "entitlement": round(entitled, 4),
            "tenants_ahead": ahead,
            "first": order.rival(name),
        },
    )


PREFETCHED = "ahead"
"""Code of the cause for a prefetched job. Public, so it keeps an old word."""
_FUNCTION = "capability fn:"
"""Prefix of the reason that `infeasible_reasons` gives for a missing function."""


def explain(
    t: SchedulerState, job_id: JobId, now: Instant, record: JobRecord | None = None
) -> Explanation | None:
    """Explanation with all causes, in the order in which they would have to be lifted.

    `record` is the job as the store has it: a spilled one is explained from that.
    """
    job = t.jobs.get(job_id)
    if job is None and record is not None and record.life.line in t.ready_queue.by_spill_queue:
        job = JobEntry(record.id, record.spec, record.life)
    if job is None:
        return None
    if job.life.state in (JobState.RUNNING, JobState.CANCELLING) and not has_members_to_start(
        t, job
    ):
        return Explanation((_running(t, job),), job.life.started_at, "running", "running")
    causes = [*_time(job, now), *_dependencies(t, job), *_queue(t, job, now)]
    causes += [*_limits(t, job), *_key(t, job), *max_parallel_cause(t, job)]
    causes += _workers(t, job, now)
    if has_members_to_start(t, job):
        causes.append(progress_cause(t, job))
    promised = promised_start(t, job, now)
    if promised is not None:
        return Explanation(tuple(causes), *promised, "reservation")
    known = [at for cause in causes if isinstance(at := cause.figures.get("at"), int)]
    only_time = causes and len(known) == len(causes)
    if only_time:
        return Explanation(tuple(causes), max(known), "known times", "known_times")
    if not causes:
        return Explanation((), now, "free to go", "free")
    return Explanation(tuple(causes), None, "unknown: it depends on how long others run")


def _running(t: SchedulerState, job: JobEntry) -> Cause:
    if job.id in t.groups.entries:
        return progress_cause(t, job)
    figures = {"worker_id": job.life.worker_id, "execution_id": job.life.execution_id}
    execution = t.executions[job.life.execution_id].execution if job.life.execution_id else None
    if execution is not None and t.fleet.workers[execution.worker_id].is_prefetched(execution):
        where = f"worker {execution.worker_id}, behind execution {execution.behind}"
        return Cause(
            PREFETCHED, f"it was prefetched by {where}", {**figures, "behind": execution.behind}
        )
    return Cause(job.life.state, f"it runs on worker {job.life.worker_id}", figures)


def _time(job: JobEntry, now: Instant) -> Iterator[Cause]:
    when = due_at(job)
    if when is None or when <= now:
        return
    wait = f"in {duration_text(when - now)}"
    if job.life.due_at is None:
        yield Cause("run_at", f"it is to run {wait}", {"at": when})
    else:
        figures = {"at": when, "attempt": job.life.attempt}
        yield Cause("retry", f"attempt {job.life.attempt} failed; the next is {wait}", figures)


def _dependencies(t: SchedulerState, job: JobEntry) -> Iterator[Cause]:
    if not job.unmet:
        return
    waited = [d for d in job.spec.dependencies if d.job_id in t.jobs]
    named = [
        {"job_id": d.job_id, "when": d.when, "status": t.jobs[d.job_id].life.state}
        for d in waited[:EXPLAINED_MAX]
    ]
    first = named[0]
    more = f" and {len(waited) - 1} more" if len(waited) > 1 else ""
    yield Cause(
        "dependencies",
        f"it waits for job {first['job_id']} ({first['status']}){more}",
        {"waiting_for": len(waited), "jobs": named},
    )


def _queue(t: SchedulerState, job: JobEntry, now: Instant) -> Iterator[Cause]:
    queue = t.queues.get(job.spec.terms.queue)
    if queue is not None:
        for cause in exceeded_limits(queue, now):
            if cause.code == "rate_limit":
                figures = {**cause.figures, "at": cause.figures["next_at"]}
                yield Cause(cause.code, cause.message, figures)
            else:
                yield cause


def _key(t: SchedulerState, job: JobEntry) -> Iterator[Cause]:
    group = t.concurrency_keys.group_of(job)
    concurrency = job.spec.concurrency
    if group is None or concurrency is None or job.id not in group.waiting:
        return
    own_key = job.order_key()
    ahead = sum(1 for job_id in group.waiting if t.jobs[job_id].order_key() < own_key)
    yield Cause(
        "concurrency",
        f"key {concurrency.key!r} allows {concurrency.limit} at once"
        f" and {len(group.holders)} hold it; {ahead} wait before this one",
        {
            "key": concurrency.key,
            "limit": concurrency.limit,
            "holders": list(group.holders)[:EXPLAINED_MAX],
            "ahead": ahead,
        },
    )


def _limits(t: SchedulerState, job: JobEntry) -> Iterator[Cause]:
    """Quotas of the tenant and the limit of the cell."""
    terms = job.spec.terms
    tenant = t.tenants.entries.get(terms.tenant)
    if tenant is not None:
        yield from over_quota(tenant, terms.needs.resources, terms.needs.copies)
    most = t.policy.max_running
    if most is not None and len(t.executions) >= most:
        figures = {"running": len(t.executions), "max_running": most}
        yield Cause("cell_full", f"the cell runs {most} executions, its limit", figures)


def _workers(t: SchedulerState, job: JobEntry, now: Instant) -> Iterator[Cause]:
    """Cause: no worker, none that ever could, none online, no free capacity, or order."""
    terms = job.spec.terms
    if not t.fleet.workers:
        yield Cause("no_workers", "no worker has registered; start one with: rota worker", {})
        return
    t.fleet.track_labels(terms.needs)
    refusals = {
        m.index: infeasible_reasons(terms.queue, terms.needs, m)
        for m in (w.machine for w in t.fleet.workers.values())
    }
    able = [w for w in t.fleet.workers.values() if not refusals[w.machine.index]]
    if not able:
        yield _impossible(t, job, refusals)
        return
    online = [w for w in able if w.worker.state is WorkerState.ONLINE]
    if not online:
        yield _unavailable(able)
        return
    yield from _capacity(t, job, online, now)


def _unavailable(able: list[WorkerEntry]) -> Cause:
    """Cause: all workers that could run it are drained or offline."""
    states = [w.worker.state for w in able]
    count = {str(state): states.count(state) for state in WorkerState if state in states}
    listed = ", ".join(f"{n} {state}" for state, n in count.items())
    message = f"all workers that could run it are unavailable: {listed}"
    drained = [w.worker.id for w in able if w.worker.state is WorkerState.DRAINING]
    if drained:
        message += f"; resume one with: rota workers resume {drained[0]}"
    return Cause("workers_away", message, count)


def _impossible(
    t: SchedulerState, job: JobEntry, refusals: dict[int, tuple[str | Shortfall, ...]]
) -> Cause:
    """Cause: which requirement excludes how many workers, and what the nearest one lacks."""
    failing: dict[str, int] = {}
    nearest: tuple[int, WorkerEntry] | None = None
    for worker in t.fleet.online_first():
        reasons = refusals[worker.machine.index]
        for reason in reasons:
            name = reason.kind if isinstance(reason, Shortfall) else reason
            failing[name] = failing.get(name, 0) + 1
        if nearest is None or len(reasons) < nearest[0]:
            nearest = (len(reasons), worker)
    assert nearest is not None
    worst = max(failing, key=lambda name: failing[name])
    figures = {
        "failing": failing,
        "workers": len(t.fleet.workers),
        "nearest": nearest[1].worker.id,
        "nearest_lacks": [shortfall_text(r) for r in refusals[nearest[1].machine.index]],
    }
    function = next((name for name in failing if name.startswith(_FUNCTION)), None)
    if function is not None and failing[function] == len(t.fleet.workers):
        return Cause(
            "no_function",
            f"no worker has the function {function.removeprefix(_FUNCTION)};"
            " start one with: rota worker --app PACKAGE.MODULE:APP",
            figures,
        )
    return Cause(
        "impossible", f"no worker could ever run this: {_shortage(t, job, worst)}", figures
    )


def _shortage(t: SchedulerState, job: JobEntry, kind: str) -> str:
    """Text for one requirement: what is requested, and the most that any worker has."""
    if kind == "queue":
        return f"none serves queue {job.spec.terms.queue}"
    if kind.startswith("capability "):
        return f"none has {kind}"
    if kind.startswith(AFFINITY_REASONS):
        return affinity_shortage(t, job, kind)
    asked = dict(amounts(job.spec.terms.needs.resources))[kind]
    machines = (worker.machine for worker in t.fleet.workers.values())
    largest = max(dict(amounts(machine.capacity)).get(kind, 0) for machine in machines)
    return f"asks {amount_text(kind, asked)}, the largest has {amount_text(kind, largest)}"


def _capacity(
    t: SchedulerState, job: JobEntry, online: list[WorkerEntry], now: Instant
) -> Iterator[Cause]:
    needs = job.spec.terms.needs.resources
    yield from gang_shortage(t, job, online)
    with_capacity = [w for w in online if not shortfalls(needs, w.free)]
    if not with_capacity:
        yield _busy(job, online)
    elif not any(w.poll is not None and w.poll.free_slots > 0 for w in with_capacity):
        count = len(with_capacity)
        yield Cause(
            "no_poll",
            f"{_counted(count, 'worker')} with enough free, but none is polling for work right now",
            {"workers": count},
        )
    if job.life.state is JobState.QUEUED:
        yield from affinity_wait(t, job, now)
        yield from held_back_by_reservations(t, job, with_capacity, now)
        yield from fair_share(t, job)
        yield from _queue_order(t, job)


def _busy(job: JobEntry, online: list[WorkerEntry]) -> Cause:
    """Cause: the request against what is free, in sum and on the best worker."""
    needs = job.spec.terms.needs.resources
    kinds = [kind for kind, amount in amounts(needs) if amount]
    free = {k: [max(0, dict(amounts(w.free)).get(k, 0)) for w in online] for k in kinds}
    short = [k for k in kinds if max(free[k]) < dict(amounts(needs))[k]] or kinds
    kind = short[0]
    asked = dict(amounts(needs))[kind]
    fragmented = sum(free[kind]) >= asked
    message = (
        f"resources are busy: asks {amount_text(kind, asked)},"
        f" the most free on one of {_counted(len(online), 'worker')}"
        f" is {amount_text(kind, max(free[kind]))}"
    )
    if fragmented:
        message += f" ({amount_text(kind, sum(free[kind]))} in total, but spread over several)"
    wanted = dict(amounts(needs))
    figures: dict[str, object] = {
        k: {
            "asked": plain_amount(k, wanted[k]),
            "largest_free": plain_amount(k, max(free[k])),
            "free": plain_amount(k, sum(free[k])),
        }
        for k in kinds
    }
    return Cause("resources_busy", message, {**figures, "workers": len(online)})


def _queue_order(t: SchedulerState, job: JobEntry) -> Iterator[Cause]:
    """Cause: jobs of the same class queue before it."""
    class_queue = t.ready_queue.queue_of_job(job)
    fifo_group = t.ready_queue.by_spill_queue.get(job.life.line)
    if class_queue is None and fifo_group is not None:
        class_queue = t.ready_queue.queue_of_group(fifo_group)
    if class_queue is None or t.ready_queue.head(class_queue)[2] == job.id:
        return
    alike = class_queue.waiting + class_queue.spilled - 1
    figures = {"alike": alike, "priority": job.spec.terms.priority}
    message = f"{_counted(alike, 'other job')} like it in queue {job.spec.terms.queue}"
    yield Cause("order", f"{message} wait, some of them before it", figures)
