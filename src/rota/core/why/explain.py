"""Why a job is not running: asks the gates and filters that decide, and names what they say."""

from __future__ import annotations

from collections.abc import Iterator

from rota.core.life.waiting import due_at
from rota.core.limits import EXPLAINED_MAX
from rota.core.memory.cells import JobEntry, WorkerEntry
from rota.core.model import Instant, JobId, JobRecord, JobState, WorkerState
from rota.core.order.gates import exceeded_limits
from rota.core.order.tenants import over_quota
from rota.core.place.fitness import infeasible_reasons
from rota.core.records.glance import Cause, Explanation
from rota.core.resources import (
    Shortfall,
    amount_text,
    amounts,
    plain_amount,
    shortfall_text,
    shortfalls,
)
from rota.core.tables import SchedulerState
from rota.core.times.spans import duration_text
from rota.core.why.affinity import AFFINITY_REASONS, affinity_shortage, affinity_wait
from rota.core.why.bands import (
    gang_shortage,
    has_members_to_start,
    max_parallel_cause,
    progress_cause,
)
from rota.core.why.order import fair_share, held_back_by_reservations, promised_start

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
