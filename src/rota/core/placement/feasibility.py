"""Feasibility: whether a worker could run a job (queue, capabilities, labels), how well it fits."""

from __future__ import annotations

from collections.abc import Iterable, Iterator

from rota.core.entries import MachineClass
from rota.core.limits import LABELS_TRACKED
from rota.core.model import Affinity, Labels, Needs, Resources, Worker, WorkerId
from rota.core.resources import Shortfall, amounts, shortfalls

HOST = "host"
"""The label of the machine that a worker is on; a worker that does not say is one of its own."""


def value_of(worker: Worker, label: str) -> str:
    """The worker's value of a label; empty: it has none."""
    for name, value in worker.labels:
        if name == label:
            return value
    return worker.id if label == HOST else ""


def asks_for(needs: Needs, what: str) -> bool:
    """Whether a job asks for what a worker is kept for, or says that it does not mind."""
    if what in needs.capabilities or any(
        kind == what for kind, amount in amounts(needs.resources) if amount
    ):
        return True
    return needs.affinity is not None and what in needs.affinity.tolerate


def refusals_of_worker(needs: Needs, only: tuple[str, ...]) -> Iterator[str]:
    """Why a worker that is kept for some jobs does not take one like this."""
    if only and not any(asks_for(needs, what) for what in only):
        yield f"only {' or '.join(only)}"


def missing_labels(affinity: Affinity, labels: dict[str, str]) -> Iterator[str]:
    """The labels that such a worker lacks."""
    for label, values in affinity.require:
        if labels.get(label) not in values:
            yield f"label {label}={'|'.join(values)}"


class LabelIndex:
    """Workers by their labels, and the labels that jobs ask for."""

    def __init__(self) -> None:
        self._by_label: dict[str, dict[str, dict[WorkerId, None]]] = {}
        self._tracked: dict[str, None] = {}
        """Labels that some job requires: workers that differ in them are not alike."""

    def add(self, worker: Worker) -> None:
        """A worker is there, with these labels."""
        for label, value in self._all_of(worker):
            self._by_label.setdefault(label, {}).setdefault(value, {})[worker.id] = None

    def remove(self, worker: Worker) -> None:
        """It is not, or has others from now on."""
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
        """The workers that have each value."""
        return self._by_label.get(label, {})

    def track(self, affinity: Affinity, others: Iterable[Needs]) -> bool:
        """Jobs require these labels. True: workers that were alike may not be any more.

        `others` are the needs of all classes: who requires a label that nobody has is soon
        forgotten, or else names that are made up would fill memory.
        """
        fresh = [label for label, _ in affinity.require if label not in self._tracked]
        if not fresh:
            return False
        if len(self._tracked) >= LABELS_TRACKED:
            known = (one.affinity for one in others if one.affinity is not None)
            self._tracked = {label: None for one in known for label, _ in one.require}
        self._tracked.update(dict.fromkeys(fresh))
        return any(label in self._by_label for label in fresh)

    def traits(self, worker: Worker) -> Labels:
        """The labels of the worker that matter to any job."""
        if not self._tracked:
            return ()
        found = ((label, value_of(worker, label)) for label in self._tracked)
        return tuple(sorted((label, value) for label, value in found if value))


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
