"""Simulated fleet: groups of equal machines, which need not exist."""

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
    """Group of equal machines."""

    count: int
    capacity: Resources
    capabilities: tuple[str, ...] = ()
    queues: tuple[str, ...] | None = None
    labels: Labels = ()
    only: tuple[str, ...] = ()

    def could_run(self, queue: str, needs: Needs) -> bool:
        """Whether one of them could run such a job if it were empty."""
        affinity = needs.affinity
        return (
            (self.queues is None or queue in self.queues)
            and all(one in self.capabilities for one in needs.capabilities)
            and fits(needs.resources, self.capacity)
            and (affinity is None or not any(missing_labels(affinity, dict(self.labels))))
            and not any(refusals_of_worker(needs, self.only))
        )


class FleetPlan(msgspec.Struct, frozen=True):
    """Fleet: groups of machines."""

    machines: tuple[MachineGroup, ...]

    @property
    def cpu_milli(self) -> int:
        """Processors of all machines, in thousandths."""
        return sum(group.count * group.capacity.cpu_milli for group in self.machines)

    @property
    def workers(self) -> int:
        """Number of machines."""
        return sum(group.count for group in self.machines)

    def can_run(self, queue: str, needs: Needs) -> bool:
        """Whether any machine could run such a job if it were empty."""
        return any(group.could_run(queue, needs) for group in self.machines)

    def resized(self, workers: int) -> FleetPlan:
        """Returns a fleet of so many machines, copied from these in turn."""
        each = [replace(group, count=1) for group in self.machines for _ in range(group.count)]
        return FleetPlan(tuple(each[number % len(each)] for number in range(workers)))

    def registrations(self) -> Iterator[Register]:
        """Yields the registration of every machine."""
        number = 0
        for group in self.machines:
            for _ in range(group.count):
                number += 1
                yield Register(
                    worker_id=WorkerId(f"w{number}"),
                    session=SESSION,
                    name=f"w{number}",
                    capacity=group.capacity,
                    capabilities=group.capabilities,
                    queues=group.queues,
                    labels=group.labels,
                    only=group.only,
                )


def single_machine_fleet(cpus: int, memory: int = 0) -> FleetPlan:
    """Makes a fleet of one machine, as logs of rigid parallel jobs assume it."""
    return uniform_fleet(1, 1000 * cpus, memory)


def uniform_fleet(workers: int, cpu_milli: int, memory: int = 0) -> FleetPlan:
    """Makes a fleet of equal machines."""
    return FleetPlan((MachineGroup(workers, Resources(cpu_milli=cpu_milli, memory=memory)),))
