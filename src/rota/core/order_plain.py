"""The orders that know no tenants: strictly by priority, or by arrival alone.

A tenant with a quota is a party of its own, since its jobs may be held back where others go on;
all others are one.
"""

from __future__ import annotations

from rota.core.cells import LineKey, QueueCell
from rota.core.model import Instant, Millis, Spec
from rota.core.orders import Head, Seated
from rota.core.party import EVERY_CLASS, Line, Party
from rota.core.policy import OrderKind, Policy


class PlainOrder:
    """By the queue's priority, the job's, and arrival; or by arrival."""

    def __init__(self, policy: Policy, apart: dict[str, int]) -> None:
        self._by_priority = policy.order is OrderKind.PRIORITY
        self._everyone = Party()
        self._apart: dict[str, Party] = {}
        for tenant, allowed in apart.items():
            party = self._apart[tenant] = Party()
            party.allowed = allowed

    def place(self, spec: Spec) -> int:
        """Nothing but arrival counts, or priority before it."""
        return -spec.terms.priority if self._by_priority else 0

    def party(self, tenant: str, queue: QueueCell) -> Party:
        """Everyone's, or the tenant's own."""
        return self._apart.get(tenant, self._everyone)

    def waits(self, party: Party, bit: int, now: Instant) -> None:
        """Notes the class."""
        party.waiting |= bit
        party.ready = party.waiting & party.allowed

    def rests(self, party: Party, bit: int) -> None:
        """Forgets the class."""
        party.waiting &= ~bit
        party.ready = party.waiting & party.allowed

    def allow(self, tenant: str, bits: int, now: Instant) -> None:
        """Only a tenant that is a party of its own has a quota."""
        party = self._apart.get(tenant)
        if party is None:
            assert bits == EVERY_CLASS, f"tenant {tenant} has a quota and is not apart"
            return
        party.allowed = bits
        party.ready = party.waiting & bits

    def first(self, mask: int, head: Head) -> Line | None:
        """The first of everyone's, unless one of those apart comes before it."""
        best = self._best(self._everyone, mask, head)
        for party in self._apart.values():
            other = self._best(party, mask, head)
            if other is None:
                continue
            if best is None or self._key(other, head) < self._key(best, head):
                best = other
        return best

    def _best(self, party: Party, mask: int, head: Head) -> Line | None:
        mask &= party.ready
        if not mask:
            return None
        lines = party.lines
        best = lines[mask.bit_length() - 1]
        mask ^= best.job_class.bit
        best_head, best_rank = best.first or head(best), self._rank(best)
        while mask:
            bit = mask & -mask
            mask ^= bit
            other = lines[bit.bit_length() - 1]
            other_head, rank = other.first or head(other), self._rank(other)
            if rank > best_rank or (rank == best_rank and other_head < best_head):
                best, best_head, best_rank = other, other_head, rank
        return best

    def _rank(self, line: Line) -> int:
        return line.job_class.queue.queue.priority if self._by_priority else 0

    def _key(self, line: Line, head: Head) -> tuple[int, LineKey]:
        return (-self._rank(line), line.first or head(line))

    def begin(self, line_of: Seated, share: float, now: Instant, ends_at: Instant) -> float:
        """Nobody is charged."""
        return 0.0

    def extend(self, line_of: Seated, rate: float, by: int) -> None:
        """Nobody is charged."""

    def end(self, line_of: Seated, rate: float, ends_at: Instant, now: Instant) -> None:
        """Nobody is charged."""

    def reseat(self, queue: QueueCell) -> None:
        """Queues are asked for their priority each time."""

    def follow_clock(self, by: Millis) -> None:
        """It has no times."""

    def is_worn(self, now: Instant) -> bool:
        """There are no figures."""
        return False
