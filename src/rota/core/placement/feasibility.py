"""Feasibility: whether a worker could run a job (queue, capabilities, labels), how well it fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rota.core.entries import MachineClass
from rota.core.limits import LABELS_TRACKED
from rota.core.model import Affinity, Labels, Needs, Resources, Worker, WorkerId
from rota.core.resources import Shortfall, amounts, shortfalls

HOST = "host"
"""Label of the machine that a worker is on; a worker without it counts as one machine."""


def value_of(worker: Worker, label: str) -> str:
    """Worker's value of a label; empty: it has none."""
    for name, value in worker.labels:
        if name == label:
            return value
    return worker.id if label == HOST else ""


def asks_for(needs: Needs, what: str) -> bool:
    """Whether a job asks for something that a worker is reserved for, or tolerates it."""
    if what in needs.capabilities or any(
        kind == what for kind, amount in amounts(needs.resources) if amount
    ):
        return True
    return needs.affinity is not None and what in needs.affinity.tolerate


def refusals_of_worker(needs: Needs, only: tuple[str, ...]) -> Iterator[str]:
    """Reasons why a worker that is reserved for some jobs does not take this one."""
    if only and not any(asks_for(needs, what) for what in only):
        yield f"only {' or '.join(only)}"


def missing_labels(affinity: Affinity, labels: dict[str, str]) -> Iterator[str]:
    """Required labels that the worker lacks."""
    for label, values in affinity.require:
        if labels.get(label) not in values:
            yield f"label {label}={'|'.join(values)}"


class LabelIndex:
    """Label index: workers by label and value, and the labels that jobs require."""

    def __init__(self) -> None:
        self._by_label: dict[str, dict[str, dict[WorkerId, None]]] = {}
        self._tracked: dict[str, None] = {}
        """Labels that some job requires: workers that differ in them are of different machine
        classes."""

    def add(self, worker: Worker) -> None:
        for label, value in self._all_of(worker):
            self._by_label.setdefault(label, {}).setdefault(value, {})[worker.id] = None

    def remove(self, worker: Worker) -> None:
        for label, value in self._all_of(worker):
            values = self._by_label[label]
            values[value].pop(worker.id)
            if not values[value]:
                del values[value]
            if not values:
                del self._by_label[label]

    def _all_of(self, worker: Worker) -> Labels:
        if any(label == HOST for label, _ in worker.labels):
            return worker.labels
        return (*worker.labels, (HOST, worker.id))

    def values(self, label: str) -> dict[str, dict[WorkerId, None]]:
        """Workers by their value of a label."""
        return self._by_label.get(label, {})

    def track(self, affinity: Affinity, others: Iterable[Needs]) -> bool:
        """Tracks the labels that a job requires. True: machine classes may have to be split.

        `others` are the needs of all classes: when there are too many labels, those that no class
        requires are forgotten, or made-up names would fill memory.
        """
        fresh = [label for label, _ in affinity.require if label not in self._tracked]
        if not fresh:
            return False
        if len(self._tracked) >= LABELS_TRACKED:
            known = (one.affinity for one in others if one.affinity is not None)
            self._tracked = {label: None for one in known for label, _ in one.require}
        self._tracked.update(dict.fromkeys(fresh))
        return any(label in self._by_label for label in fresh)

    def required_labels(self, worker: Worker) -> Labels:
        """Labels of the worker that some job requires."""
        if not self._tracked:
            return ()
        found = ((label, value_of(worker, label)) for label in self._tracked)
        return tuple(sorted((label, value) for label, value in found if value))


def infeasible_reasons(
    queue: str, needs: Needs, machine: MachineClass
) -> tuple[str | Shortfall, ...]:
    """Reasons why such a worker could never run such a job; empty: it could."""
    reasons: list[str | Shortfall] = []
    if machine.queues is not None and queue not in machine.queues:
        reasons.append("queue")
    reasons.extend(f"capability {c}" for c in needs.capabilities if c not in machine.capabilities)
    reasons.extend(shortfalls(needs.resources, machine.capacity))
    if needs.affinity is not None:
        reasons.extend(missing_labels(needs.affinity, machine.labels))
    reasons.extend(refusals_of_worker(needs, machine.only))
    return tuple(reasons)


def score(needs: Resources, machine: MachineClass, free: Resources) -> tuple[int, int]:
    """Placement score, the smallest is best: no special machine for plain jobs, then the fit."""
    capacity = machine.capacity
    wasted = machine.special
    if wasted:
        wasted -= 1 if needs.gpu_milli else 0
        wasted -= sum(1 for _, amount in needs.custom if amount)
    left = 0
    for free_amount, need, total in (
        (free.cpu_milli, needs.cpu_milli, capacity.cpu_milli),
        (free.memory, needs.memory, capacity.memory),
        (free.gpu_milli, needs.gpu_milli, capacity.gpu_milli),
    ):
        if total:
            left += (free_amount - need) * 1000 // total
    return wasted, left
