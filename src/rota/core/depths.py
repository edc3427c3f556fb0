"""How many jobs live, by state: of each queue and of each tenant, those on the shelf among them."""

from __future__ import annotations

from rota.core.model import JobState, Terms
from rota.core.tenants import Tenants


class Depths:
    """Counts that follow every move of a job."""

    __slots__ = ("_tenants", "of_queue")

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self.of_queue: dict[str, dict[JobState, int]] = {}

    def count(self, terms: Terms, state: JobState, step: int) -> None:
        """So many more jobs like this are in the state, or fewer."""
        self.count_in(terms.queue, terms.tenant, state, step)

    def count_in(self, queue: str, tenant: str, state: JobState, step: int) -> None:
        """The same, without one of them at hand."""
        depth = self.of(queue)
        depth[state] = depth.get(state, 0) + step
        depth = (self._tenants.cells.get(tenant) or self._tenants.cell(tenant)).depth
        depth[state] = depth.get(state, 0) + step

    def of(self, queue: str) -> dict[JobState, int]:
        """How many there are of the queue."""
        depth = self.of_queue.get(queue)
        if depth is None:
            depth = self.of_queue[queue] = {}
        return depth

    def move(self, terms: Terms, before: JobState, after: JobState, count: int = 1) -> None:
        """So many jobs like this, which were counted, went from one state to another."""
        depth = self.of_queue[terms.queue]
        depth[before] -= count
        depth[after] = depth.get(after, 0) + count
        depth = self._tenants.cells[terms.tenant].depth
        depth[before] -= count
        depth[after] = depth.get(after, 0) + count
