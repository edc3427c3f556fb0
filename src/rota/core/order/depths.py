"""How many jobs live, by state: of each queue and of each tenant, those on the shelf among them."""

from __future__ import annotations

from rota.core.model import JobState, Terms
from rota.core.order.tenants import Tenants
from rota.core.records.depth import Depth


class Depths:
    """Counts that follow every move of a job."""

    __slots__ = ("_tenants", "of_queue")

    def __init__(self, tenants: Tenants) -> None:
        self._tenants = tenants
        self.of_queue: dict[str, Depth] = {}

    def count(self, terms: Terms, state: JobState, step: int) -> None:
        """So many more jobs like this are in the state, or fewer."""
        self.count_in(terms.queue, terms.tenant, state, step)

    def count_in(self, queue: str, tenant: str, state: JobState, step: int) -> None:
        """The same, without one of them at hand."""
        self.of(queue).count(state, step)
        (self._tenants.entries.get(tenant) or self._tenants.entry(tenant)).depth.count(state, step)

    def of(self, queue: str) -> Depth:
        """How many there are of the queue."""
        depth = self.of_queue.get(queue)
        if depth is None:
            depth = self.of_queue[queue] = Depth()
        return depth

    def move(self, terms: Terms, before: JobState, after: JobState) -> None:
        """A job like this, which was counted, went from one state to another."""
        for depth in (self.of_queue[terms.queue], self._tenants.entries[terms.tenant].depth):
            depth.count(before, -1)
            depth.count(after, 1)
