"""Kinds: jobs of the same terms, and what is theirs together, looked up once for all of them.

Alike jobs share their terms, so a kind is found by the identity of its terms: comparing them costs
more than all that is kept here.
"""

from __future__ import annotations

from collections.abc import Mapping

from rota.core.learned import JobName
from rota.core.limits import TERMS_POOL_MAX
from rota.core.memory.cells import QueueEntry
from rota.core.memory.runtimes import RuntimeEstimates
from rota.core.model import Millis, Terms
from rota.core.order.depths import Depths
from rota.core.order.gates import has_limits
from rota.core.order.orders import OrderPolicy
from rota.core.order.party import Account, QueueHandle
from rota.core.order.tenants import TenantEntry, Tenants
from rota.core.records.depth import Depth


class TermsEntry:
    """Jobs of the same terms, waiting and running."""

    __slots__ = (
        "_length",
        "_length_as_of",
        "_of_queue",
        "_of_tenant",
        "handle",
        "is_plain",
        "name",
        "queue",
        "resources",
        "tenant",
        "terms",
    )

    def __init__(self, terms: Terms, queue: QueueEntry, tenant: TenantEntry, depth: Depth) -> None:
        self.terms = terms
        """Kept, so that no other terms can have their identity."""
        self.name: JobName = (terms.tenant, terms.name)
        """By which what they take is learned (runtimes.py)."""
        self.resources = terms.needs.resources
        self.queue = queue
        self.tenant = tenant
        self.handle: QueueHandle | None = None
        """Where they last stood in line; ordering.py sees to it."""
        self._of_queue, self._of_tenant = depth, tenant.depth
        """How many jobs there are by state: of the queue, and of the tenant (depths.py)."""
        self.is_plain = (
            not terms.preemptible
            and terms.needs.affinity is None
            and not has_limits(queue)
            and tenant.tenant.quota is None
        )
        """Whether nobody waits for what such jobs hold but whoever comes next."""

        self._length: Millis = 0
        """How long one of them will probably run, and as of which change of what is known."""
        self._length_as_of = -1

    def estimate(self, runtimes: RuntimeEstimates) -> Millis:
        """How long one of them will probably run: most of what is learned changes nothing."""
        if self._length_as_of != runtimes.changes:
            self._length, self._length_as_of = runtimes.estimate(self.terms), runtimes.changes
        return self._length

    def account(self, order: OrderPolicy) -> Account:
        """Whom the order charges for them."""
        stand = self.handle
        # A party in which nobody waits may have been forgotten since.
        if stand is not None and stand.account.class_queues:
            return stand.account
        return order.account(self.terms.tenant, self.queue)

    def count_queued(self, count: int = 1) -> None:
        """So many more of them are queued."""
        self._of_queue.queued += count
        self._of_tenant.queued += count

    def count_started(self, count: int = 1) -> None:
        """So many of those that were queued are running."""
        depth = self._of_queue
        depth.queued -= count
        depth.running += count
        depth = self._of_tenant
        depth.queued -= count
        depth.running += count

    def count_ended(self, count: int = 1) -> None:
        """So many of those that were running are gone."""
        self._of_queue.running -= count
        self._of_tenant.running -= count


class TermsCache:
    """All kinds that were seen lately."""

    __slots__ = ("_depths", "_most", "_queues", "_tenants", "entries")

    def __init__(
        self,
        queues: Mapping[str, QueueEntry],
        tenants: Tenants,
        depths: Depths,
        most: int = TERMS_POOL_MAX,
    ) -> None:
        self._most = most
        self._queues = queues
        self._tenants = tenants
        self._depths = depths
        self.entries: dict[int, TermsEntry] = {}
        """By the identity of their terms."""

    def of(self, terms: Terms) -> TermsEntry:
        """The kind of jobs with these terms, whose queue there is."""
        kind = self.entries.get(id(terms))
        return self._make(terms) if kind is None or kind.tenant.is_forgotten else kind

    def forget(self) -> None:
        """What was looked up may be out of date: a queue or tenant has other limits, or all stand
        in line anew."""
        self.entries.clear()

    def _make(self, terms: Terms) -> TermsEntry:
        if len(self.entries) >= self._most:
            self.forget()
        tenant = self._tenants.entries.get(terms.tenant) or self._tenants.entry(terms.tenant)
        kind = TermsEntry(terms, self._queues[terms.queue], tenant, self._depths.of(terms.queue))
        self.entries[id(terms)] = kind
        return kind
