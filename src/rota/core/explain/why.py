"""Explains why a job is not running: asks the checks that decide, and names what they say.

Covers time, dependencies, queue limits, quotas, concurrency keys, workers, affinity, reservations,
fair share, arrays and gangs.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from msgspec.structs import replace

from rota.core.entries import NO_CLASS, JobEntry, WorkerEntry
from rota.core.explain.info import entitlement
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
    """Seconds below a minute, else the two largest units: 1 h 30 min."""
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


def has_members_to_start(t: SchedulerState, cell: JobEntry) -> bool:
    """Whether it is an array that has begun and has members that wait."""
    is_array = isinstance(cell.spec.group, Array) and cell.life.state is JobState.RUNNING
    return is_array and t.groups.of(cell).waiting > 0


def progress_cause(t: SchedulerState, cell: JobEntry) -> Cause:
    """How many members run, of a band that has begun."""
    mine = t.groups.of(cell)
    others = len(mine.live) - mine.running
    text = f"{mine.running} of its {mine.size} members run"
    if mine.waiting:
        text += f", {mine.waiting} wait to start"
    if others:
        text += f", {others} for another try"
    if mine.cause:
        text += "; they are being stopped, because one of them did not end well"
    return Cause(
        "members" if mine.waiting else cell.life.state,
        text,
        {
            "count": mine.size,
            "running": mine.running,
            "waiting": mine.waiting,
            "retrying": others,
            "succeeded": mine.succeeded,
            "failed": mine.failed,
            "cancelled": mine.cancelled,
        },
    )


def max_parallel_cause(t: SchedulerState, cell: JobEntry) -> Iterator[Cause]:
    """As many members of an array are under way as may."""
    band = cell.spec.group
    if not isinstance(band, Array) or band.max_parallel is None:
        return
    under_way = len(t.groups.of(cell).live)
    if under_way >= band.max_parallel:
        text = f"{under_way} of its members are under way, and at most {band.max_parallel} may be"
        figures = {"under_way": under_way, "max_parallel": band.max_parallel}
        yield Cause("max_parallel", text, figures)


def gang_shortage(
    t: SchedulerState, cell: JobEntry, online: Sequence[WorkerEntry]
) -> Iterator[Cause]:
    """How many members of a gang find no room, on the workers that could run it."""
    band = cell.spec.group
    if not isinstance(band, Gang):
        return
    needs, size = cell.spec.terms.needs.resources, band.size
    most = sum(copies_in(needs, worker.worker.capacity) for worker in online)
    room = sum(copies_in(needs, worker.free) for worker in online)
    asking = sum(_asked_for(worker, copies_in(needs, worker.free)) for worker in online)
    job_class = t.ready_queue.class_of(cell.spec.terms)
    left = size if job_class is None else max(0, starts_left(t, job_class))
    fitting = next((count for count in (room, left, asking) if count < size), size)
    if fitting == size:
        return
    figures = {
        "size": size,
        "short": size - fitting,
        "room": room,
        "asking": asking,
        "capacity": most,
        "workers": len(online),
    }
    yield Cause("gang", _short_text(figures, left), figures)


def _short_text(figures: dict[str, int], left: int) -> str:
    size, room, most = figures["size"], figures["room"], figures["capacity"]
    head = f"gang short by {_counted(figures['short'], 'member')}"
    where = _counted(figures["workers"], "worker")
    if most < size:
        return f"{head}: {where} could run {most} of its {size} at once, even if they were empty"
    if room < size:
        return f"{head}: there is room for {room} of its {size} on {where}"
    if left < size:
        return f"{head}: limits leave {left} of its {size} executions"
    return f"{head}: there is room on {where}, but they ask for {figures['asking']} jobs now"


def _counted(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _asked_for(worker: WorkerEntry, room: int) -> int:
    return 0 if worker.poll is None else min(room, worker.poll.free_slots)


AFFINITY_REASONS = ("label ", "only ")
"""How the filter begins what it says of labels and of workers that are kept for others."""


def affinity_shortage(t: SchedulerState, cell: JobEntry, reason: str) -> str:
    """One such reason in words, and what would be without it."""
    terms = cell.spec.terms
    alone = 0
    for worker in t.fleet.workers.values():
        alone += infeasible_reasons(terms.queue, terms.needs, worker.machine) == (reason,)
    count = f"{alone} worker{'' if alone == 1 else 's'}"
    without = f"; without that {count} could" if alone else ""
    if reason.startswith("label "):
        return f"none has the {reason}{without}"
    kept = reason.removeprefix("only ")
    return f"the workers that could are kept for jobs that ask for {kept}{without}"


def affinity_alternative(
    t: SchedulerState, cell: JobEntry
) -> tuple[str, tuple[WorkerId, Affinity]] | None:
    """What to ask otherwise so that a worker could run it which nothing else keeps from it.

    In words, the worker, and the affinity that it would take.
    """
    terms = cell.spec.terms
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
        text = f"if it asked for {kept}, or tolerated it: worker {worker_id} is kept for that"
        tolerant = tuple(sorted((*affinity.tolerate, kept)))
        return text, (worker_id, replace(affinity, tolerate=tolerant))
    return None


def labels_for(affinity: Affinity) -> Labels:
    """What a worker would have to have that could run such a job."""
    return tuple((label, values[0]) for label, values in affinity.require)


def affinity_wait(t: SchedulerState, cell: JobEntry, now: Instant) -> Iterator[Cause]:
    """It has room somewhere and waits for a place that it likes better."""
    affinity = cell.spec.terms.needs.affinity
    if affinity is None or not has_preference(affinity) or cell.class_index == NO_CLASS:
        return
    job_class = t.ready_queue.classes[cell.class_index]
    until = t.affinity.waits_until(job_class, now)
    instead = [w for w in t.fleet.open.values() if t.fleet.fitting(w) & job_class.bit]
    best = min(instead, key=lambda w: (t.affinity.soft_affinity(cell, w), w.rank), default=None)
    if until is None or best is None:
        return
    better = t.affinity.better_worker(job_class, cell, t.affinity.soft_affinity(cell, best))
    wanted = _preference_text(t, affinity, cell)
    yield Cause(
        "affinity",
        f"it waits up to {duration_text(until - now)} more for a worker that it prefers ({wanted});"
        f" without that it would start on worker {best.worker.id} now",
        {
            "at": until,
            "wanted": wanted,
            "worker_id": None if better is None else better.worker.id,
            "instead": best.worker.id,
        },
    )


def _preference_text(t: SchedulerState, affinity: Affinity, cell: JobEntry) -> str:
    parts = []
    if affinity.near_previous and (home := t.affinity.previous_worker(cell)) is not None:
        parts.append(f"near worker {home}")
    if affinity.prefer:
        parts.append(_label_pairs(affinity.prefer))
    if affinity.spread:
        parts.append(f"another {affinity.spread}")
    return ", ".join(parts)


def _label_pairs(wanted: LabelSelector) -> str:
    return ", ".join(f"{label}={'|'.join(values)}" for label, values in wanted)


def promised_start(t: SchedulerState, cell: JobEntry, now: Instant) -> tuple[Instant, str] | None:
    """When a place that is kept for the job comes free, and how that is known."""
    if cell.class_index == NO_CLASS:
        return None
    place = t.reservations.get(cell.class_index)
    if place is not None and place.job_id == cell.id and t.policy.backfill is BackfillKind.EASY:
        return max(now, place.at), f"a place is kept on worker {place.worker_id}"
    planned = t.conservative_plan.get(cell.id)
    if planned is not None and t.policy.backfill is BackfillKind.CONSERVATIVE:
        return max(now, planned[1]), f"the plan has it start on worker {planned[0]}"
    return None


def held_back_by_reservations(
    t: SchedulerState, cell: JobEntry, with_room: Sequence[WorkerEntry], now: Instant
) -> Iterator[Cause]:
    """Whose places keep it off the workers that have room for it."""
    planned = t.conservative_plan.get(cell.id)
    if t.policy.backfill is BackfillKind.GREEDY:
        return
    if t.policy.backfill is BackfillKind.CONSERVATIVE:
        if planned is not None and with_room:
            worker_id, at = planned
            text = f"it would delay jobs before it; the plan has it start on worker {worker_id}"
            yield Cause("planned", text, {"worker_id": worker_id, "until": at})
        return
    by_worker = {
        place.worker_id: place for place in t.reservations.values() if _is_current(t, place)
    }
    kept = [by_worker[w.worker.id] for w in with_room if w.worker.id in by_worker]
    kept = [place for place in kept if place.job_id != cell.id]
    for place in kept[:1]:
        yield Cause(
            "reserved",
            f"worker {place.worker_id} keeps a place for job {place.job_id},"
            f" which starts in about {max(0, place.at - now) / 1000:g} s",
            {
                "job_id": place.job_id,
                "worker_id": place.worker_id,
                "until": place.at,
                "expected_runtime": cell.estimate / 1000,
                "places": len(kept),
            },
        )
    if not kept and with_room:
        yield from _behind_first(t, cell)


def _is_current(t: SchedulerState, place: Reservation) -> bool:
    job = t.jobs.get(place.job_id)
    return job is not None and job.life.state is JobState.QUEUED


def _behind_first(t: SchedulerState, cell: JobEntry) -> Iterator[Cause]:
    """Who comes first and holds up those behind it."""
    line = t.ready_queue.first(~t.blocked_classes)
    head = None if line is None else t.ready_queue.head(line)
    if head is None or is_spill_marker(head) or head[2] == cell.id:
        return
    first = t.jobs[head[2]]
    if not t.fleet.machines_for(t.ready_queue.classes[first.class_index]).indexes:
        return  # no worker there could run it, so nobody waits for it
    yield Cause(
        "behind",
        f"job {head[2]} ({first.spec.terms.name}) goes first and does not fit yet;"
        " it is not passed",
        {"job_id": head[2]},
    )


def fair_share(t: SchedulerState, cell: JobEntry) -> Iterator[Cause]:
    """How the tenant stands with the others, if any of them goes before it."""
    order, name = t.ready_queue.order, cell.spec.terms.tenant
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
        f"tenant {name} holds {share:.0%} of the fleet, its part is {entitled:.0%};"
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
"""Public: the code of its cause."""
"""The code of a job that is on its worker already and waits for a place there."""
_FUNCTION = "capability fn:"
"""How the filter names a function that a worker does not have."""


def explain(
    t: SchedulerState, job_id: JobId, now: Instant, record: JobRecord | None = None
) -> Explanation | None:
    """All causes, in the order in which they would have to be lifted.

    `record` is the job as the store has it: one that is on the shelf is explained from that.
    """
    cell = t.jobs.get(job_id)
    if cell is None and record is not None and record.life.line in t.ready_queue.by_spill_queue:
        cell = JobEntry(record.id, record.spec, record.life)
    if cell is None:
        return None
    if cell.life.state in (JobState.RUNNING, JobState.CANCELLING) and not has_members_to_start(
        t, cell
    ):
        return Explanation((_running(t, cell),), cell.life.started_at, "running", "running")
    causes = [*_time(cell, now), *_dependencies(t, cell), *_queue(t, cell, now)]
    causes += [*_limits(t, cell), *_key(t, cell), *max_parallel_cause(t, cell)]
    causes += _workers(t, cell, now)
    if has_members_to_start(t, cell):
        causes.append(progress_cause(t, cell))
    promised = promised_start(t, cell, now)
    if promised is not None:
        return Explanation(tuple(causes), *promised, "reservation")
    known = [at for cause in causes if isinstance(at := cause.figures.get("at"), int)]
    only_time = causes and len(known) == len(causes)
    if only_time:
        return Explanation(tuple(causes), max(known), "known times", "known_times")
    if not causes:
        return Explanation((), now, "free to go", "free")
    return Explanation(tuple(causes), None, "unknown: it depends on how long others run")


def _running(t: SchedulerState, cell: JobEntry) -> Cause:
    if cell.id in t.groups.entries:
        return progress_cause(t, cell)
    figures = {"worker_id": cell.life.worker_id, "execution_id": cell.life.execution_id}
    execution = t.executions[cell.life.execution_id].execution if cell.life.execution_id else None
    if execution is not None and t.fleet.workers[execution.worker_id].is_prefetched(execution):
        where = f"worker {execution.worker_id}, behind execution {execution.behind}"
        return Cause(
            PREFETCHED, f"it was prefetched by {where}", {**figures, "behind": execution.behind}
        )
    return Cause(cell.life.state, f"it runs on worker {cell.life.worker_id}", figures)


def _time(cell: JobEntry, now: Instant) -> Iterator[Cause]:
    when = due_at(cell)
    if when is None or when <= now:
        return
    wait = f"in {duration_text(when - now)}"
    if cell.life.due_at is None:
        yield Cause("run_at", f"it is to run {wait}", {"at": when})
    else:
        figures = {"at": when, "attempt": cell.life.attempt}
        yield Cause("retry", f"try {cell.life.attempt} failed; the next is {wait}", figures)


def _dependencies(t: SchedulerState, cell: JobEntry) -> Iterator[Cause]:
    if not cell.unmet:
        return
    waited = [d for d in cell.spec.dependencies if d.job_id in t.jobs]
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


def _queue(t: SchedulerState, cell: JobEntry, now: Instant) -> Iterator[Cause]:
    queue = t.queues.get(cell.spec.terms.queue)
    if queue is not None:
        for cause in exceeded_limits(queue, now):
            if cause.code == "rate_limit":
                figures = {**cause.figures, "at": cause.figures["next_at"]}
                yield Cause(cause.code, cause.message, figures)
            else:
                yield cause


def _key(t: SchedulerState, cell: JobEntry) -> Iterator[Cause]:
    group = t.concurrency_keys.group_of(cell)
    concurrency = cell.spec.concurrency
    if group is None or concurrency is None or cell.id not in group.waiting:
        return
    mine = cell.order_key()
    ahead = sum(1 for job_id in group.waiting if t.jobs[job_id].order_key() < mine)
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


def _limits(t: SchedulerState, cell: JobEntry) -> Iterator[Cause]:
    """What the tenant may have, and the cell as a whole."""
    terms = cell.spec.terms
    tenant = t.tenants.entries.get(terms.tenant)
    if tenant is not None:
        yield from over_quota(tenant, terms.needs.resources, terms.needs.copies)
    most = t.policy.max_running
    if most is not None and len(t.executions) >= most:
        figures = {"running": len(t.executions), "max_running": most}
        yield Cause("cell_full", f"the cell runs {most} executions, as many as it may", figures)


def _workers(t: SchedulerState, cell: JobEntry, now: Instant) -> Iterator[Cause]:
    """No worker at all; none that ever could; none that may; none with room; or just the line."""
    terms = cell.spec.terms
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
        yield _never(t, cell, refusals)
        return
    online = [w for w in able if w.worker.state is WorkerState.ONLINE]
    if not online:
        yield _away(able)
        return
    yield from _capacity(t, cell, online, now)


def _away(able: list[WorkerEntry]) -> Cause:
    """How many of those that could are in which state; a drained one needs but a word."""
    states = [w.worker.state for w in able]
    count = {str(state): states.count(state) for state in WorkerState if state in states}
    listed = ", ".join(f"{n} {state}" for state, n in count.items())
    message = f"all workers that could run it are away: {listed}"
    drained = [w.worker.id for w in able if w.worker.state is WorkerState.DRAINING]
    if drained:
        message += f"; give one work again with: rota workers resume {drained[0]}"
    return Cause("workers_away", message, count)


def _never(
    t: SchedulerState, cell: JobEntry, refusals: dict[int, tuple[str | Shortfall, ...]]
) -> Cause:
    """Which requirement fails how many workers, and what the nearest worker lacks."""
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
        "impossible", f"no worker could ever run this: {_shortage(t, cell, worst)}", figures
    )


def _shortage(t: SchedulerState, cell: JobEntry, kind: str) -> str:
    """One requirement in words: what is asked, and the most that any worker has."""
    if kind == "queue":
        return f"none serves queue {cell.spec.terms.queue}"
    if kind.startswith("capability "):
        return f"none has {kind}"
    if kind.startswith(AFFINITY_REASONS):
        return affinity_shortage(t, cell, kind)
    asked = dict(amounts(cell.spec.terms.needs.resources))[kind]
    machines = (worker.machine for worker in t.fleet.workers.values())
    largest = max(dict(amounts(machine.capacity)).get(kind, 0) for machine in machines)
    return f"asks {amount_text(kind, asked)}, the largest has {amount_text(kind, largest)}"


def _capacity(
    t: SchedulerState, cell: JobEntry, online: list[WorkerEntry], now: Instant
) -> Iterator[Cause]:
    needs = cell.spec.terms.needs.resources
    yield from gang_shortage(t, cell, online)
    with_room = [w for w in online if not shortfalls(needs, w.free)]
    if not with_room:
        yield _busy(cell, online)
    elif not any(w.poll is not None and w.poll.free_slots > 0 for w in with_room):
        count = len(with_room)
        yield Cause(
            "no_poll",
            f"{_many(count, 'worker')} with room, but none is asking for work right now",
            {"workers": count},
        )
    if cell.life.state is JobState.QUEUED:
        yield from affinity_wait(t, cell, now)
        yield from held_back_by_reservations(t, cell, with_room, now)
        yield from fair_share(t, cell)
        yield from _queue_order(t, cell)


def _many(count: int, noun: str) -> str:
    return f"{count} {noun}" if count == 1 else f"{count} {noun}s"


def _busy(cell: JobEntry, online: list[WorkerEntry]) -> Cause:
    """What is asked against what is free, in sum and in the largest piece."""
    needs = cell.spec.terms.needs.resources
    kinds = [kind for kind, amount in amounts(needs) if amount]
    free = {k: [max(0, dict(amounts(w.free)).get(k, 0)) for w in online] for k in kinds}
    short = [k for k in kinds if max(free[k]) < dict(amounts(needs))[k]] or kinds
    kind = short[0]
    asked = dict(amounts(needs))[kind]
    fragmented = sum(free[kind]) >= asked
    message = (
        f"resources are busy: asks {amount_text(kind, asked)},"
        f" the most free on one of {_many(len(online), 'worker')}"
        f" is {amount_text(kind, max(free[kind]))}"
    )
    if fragmented:
        message += f" ({amount_text(kind, sum(free[kind]))} in all, but in pieces)"
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


def _queue_order(t: SchedulerState, cell: JobEntry) -> Iterator[Cause]:
    """Who goes before it: the line of its own class, as far as one explanation counts."""
    line = t.ready_queue.queue_of_job(cell)
    shelf = t.ready_queue.by_spill_queue.get(cell.life.line)
    if line is None and shelf is not None:
        line = t.ready_queue.queue_of_group(shelf)
    if line is None or t.ready_queue.head(line)[2] == cell.id:
        return
    alike = line.waiting + line.spilled - 1
    figures = {"alike": alike, "priority": cell.spec.terms.priority}
    message = f"{_many(alike, 'other job')} like it in queue {cell.spec.terms.queue}"
    yield Cause("order", f"{message}, some of them before it", figures)
