"""Kinds: jobs of the same terms, and what is theirs together, looked up once for all of them.

Alike jobs share their terms, so a kind is found by the identity of its terms: comparing them costs
more than all that is kept here.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.cells import QueueCell
from rota.core.depths import Depths
from rota.core.gates import is_limited
from rota.core.limits import TERMS_POOL_MAX
from rota.core.model import JobState, Terms
from rota.core.orders import Order
from rota.core.party import Party, Stand
from rota.core.tenants import TenantCell, Tenants


class Kind:
    """Jobs of the same terms, waiting and running."""

    __slots__ = (
        "_of_queue",
        "_of_tenant",
        "is_plain",
        "queue",
        "resources",
        "stand",
        "tenant",
        "terms",
    )

    def __init__(
        self, terms: Terms, queue: QueueCell, tenant: TenantCell, depth: dict[JobState, int]
    ) -> None:
        self.terms = terms
        """Kept, so that no other terms can have their identity."""
        self.resources = terms.needs.resources
        self.queue = queue
        self.tenant = tenant
        self.stand: Stand | None = None
        """Where they last stood in line; ordering.py sees to it."""
        self._of_queue, self._of_tenant = depth, tenant.depth
        """How many jobs there are by state: of the queue, and of the tenant (depths.py)."""
        self.is_plain = (
            not terms.preemptible
            and terms.needs.affinity is None
            and not is_limited(queue)
            and tenant.tenant.quota is None
        )
        """Whether nobody waits for what such jobs hold but whoever comes next."""

    def payer(self, order: Order) -> Party:
        """Whom the order charges for them."""
        stand = self.stand
        # A party in which nobody waits may have been forgotten since.
        if stand is not None and stand.party.lines:
            return stand.party
        return order.party(self.terms.tenant, self.queue)

    def came(self, state: JobState, count: int = 1) -> None:
        """So many more of them are in the state."""
        depth = self._of_queue
        depth[state] = depth.get(state, 0) + count
        depth = self._of_tenant
        depth[state] = depth.get(state, 0) + count

    def left(self, state: JobState, count: int = 1) -> None:
        """So many of those that were counted are gone from the state."""
        self._of_queue[state] -= count
        self._of_tenant[state] -= count

    def moved(self, before: JobState, after: JobState, count: int = 1) -> None:
        """So many of those that were counted went from one state to another."""
        depth = self._of_queue
        depth[before] -= count
        depth[after] = depth.get(after, 0) + count
        depth = self._of_tenant
        depth[before] -= count
        depth[after] = depth.get(after, 0) + count


class Kinds:
    """All kinds that were seen lately."""

    __slots__ = ("_depths", "_queues", "_tenants", "known")

    def __init__(self, queues: Mapping[str, QueueCell], tenants: Tenants, depths: Depths) -> None:
        self._queues = queues
        self._tenants = tenants
        self._depths = depths
        self.known: dict[int, Kind] = {}
        """By the identity of their terms."""

    def of(self, terms: Terms) -> Kind:
        """The kind of jobs with these terms, whose queue there is."""
        kind = self.known.get(id(terms))
        return self._make(terms) if kind is None or kind.tenant.is_forgotten else kind

    def forget(self) -> None:
        """What was looked up may be out of date: a queue or tenant has other limits, or all stand
        in line anew."""
        self.known.clear()

    def _make(self, terms: Terms) -> Kind:
        if len(self.known) >= TERMS_POOL_MAX:
            self.forget()
        tenant = self._tenants.cells.get(terms.tenant) or self._tenants.cell(terms.tenant)
        kind = Kind(terms, self._queues[terms.queue], tenant, self._depths.of(terms.queue))
        self.known[id(terms)] = kind
        return kind
