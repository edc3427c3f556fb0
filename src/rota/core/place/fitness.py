"""Whether a worker could run a job at all, and how well a job fits into what one has left."""

from __future__ import annotations

from rota.core.memory.cells import MachineClass
from rota.core.model import Needs, Resources
from rota.core.place.labels import missing_labels, refusals_of_worker
from rota.core.resources import Shortfall, shortfalls


def infeasible_reasons(
    job_class_queue: str, needs: Needs, machine: MachineClass
) -> tuple[str | Shortfall, ...]:
    """All that keeps such a worker from ever running such a job; empty: it could."""
    reasons: list[str | Shortfall] = []
    if machine.queues is not None and job_class_queue not in machine.queues:
        reasons.append("queue")
    reasons.extend(f"capability {c}" for c in needs.capabilities if c not in machine.capabilities)
    reasons.extend(shortfalls(needs.resources, machine.capacity))
    if needs.affinity is not None:
        reasons.extend(missing_labels(needs.affinity, machine.labels))
    reasons.extend(refusals_of_worker(needs, machine.only))
    return tuple(reasons)


def score(needs: Resources, machine: MachineClass, free: Resources) -> tuple[int, int]:
    """Smaller is better: no special machine for plain work, then the tightest fit."""
    capacity = machine.capacity
    wasted = machine.special
    if wasted:
        wasted -= 1 if needs.gpu_milli else 0
        wasted -= sum(1 for _, amount in needs.custom if amount)
    left = 0
    for kind_free, kind_need, kind_all in (
        (free.cpu_milli, needs.cpu_milli, capacity.cpu_milli),
        (free.memory, needs.memory, capacity.memory),
        (free.gpu_milli, needs.gpu_milli, capacity.gpu_milli),
    ):
        if kind_all:
            left += (kind_free - kind_need) * 1000 // kind_all
    return wasted, left
