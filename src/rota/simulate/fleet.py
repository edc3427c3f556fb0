"""The simulated fleet: machines that need not exist."""

from __future__ import annotations

from collections.abc import Iterator

import msgspec
from msgspec.structs import replace

from rota.core.commands import Register
from rota.core.model import Labels, Needs, Resources, WorkerId
from rota.core.placement.feasibility import missing_labels, refusals_of_worker
from rota.core.resources import fits

SESSION = "simulated"


class MachineGroup(msgspec.Struct, frozen=True):
    """So many machines that are alike."""

    count: int
    capacity: Resources
    capabilities: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    labels: Labels = ()
    only: tuple[str, ...] = ()

    def could_run(self, queue: str, needs: Needs) -> bool:
        """Whether one of them could run such a job if it had nothing else to do."""
        wish = needs.affinity
        return (
            (self.queues is None or queue in self.queues)
            and all(one in self.capabilities for one in needs.capabilities)
            and fits(needs.resources, self.capacity)
            and (wish is None or not any(missing_labels(wish, dict(self.labels))))
            and not any(refusals_of_worker(needs, self.only))
        )


class FleetPlan(msgspec.Struct, frozen=True):
    """All machines."""

    machines: tuple[MachineGroup, ...]

    @property
    def cpu_milli(self) -> int:
        """Processors of all of them."""
        return sum(alike.count * alike.capacity.cpu_milli for alike in self.machines)

    @property
    def workers(self) -> int:
        """How many there are."""
        return sum(alike.count for alike in self.machines)

    def can_run(self, queue: str, needs: Needs) -> bool:
        """Whether any machine could run such a job if it had nothing else to do."""
        return any(alike.could_run(queue, needs) for alike in self.machines)

    def resized(self, workers: int) -> FleetPlan:
        """So many machines, each like one of these, in turn."""
        each = [replace(alike, count=1) for alike in self.machines for _ in range(alike.count)]
        return FleetPlan(tuple(each[number % len(each)] for number in range(workers)))

    def registrations(self) -> Iterator[Register]:
        """What the machines say of themselves when they come."""
        number = 0
        for alike in self.machines:
            for _ in range(alike.count):
                number += 1
                yield Register(
                    worker_id=WorkerId(f"w{number}"),
                    session=SESSION,
                    name=f"w{number}",
                    capacity=alike.capacity,
                    capabilities=alike.capabilities,
                    queues=alike.queues,
                    labels=alike.labels,
                    only=alike.only,
                )


def single_machine_fleet(cpus: int, memory: int = 0) -> FleetPlan:
    """One machine of so many processors: what logs of rigid parallel jobs are about."""
    return uniform_fleet(1, 1000 * cpus, memory)


def uniform_fleet(workers: int, cpu_milli: int, memory: int = 0) -> FleetPlan:
    """Machines that are all alike."""
    return FleetPlan((MachineGroup(workers, Resources(cpu_milli=cpu_milli, memory=memory)),))
