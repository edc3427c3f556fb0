"""Why a job waits though others would start where it could: labels, workers kept apart, liking."""

from __future__ import annotations

from collections.abc import Iterator

from msgspec.structs import replace

from rota.core.affinity import Affinity, LabelSelector, has_preference
from rota.core.memory.cells import NO_CLASS, JobEntry
from rota.core.model import Instant, Labels, WorkerId
from rota.core.place.fitness import infeasible_reasons
from rota.core.records.glance import Cause
from rota.core.tables import SchedulerState
from rota.core.times.spans import duration_text

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
