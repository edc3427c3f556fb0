"""Strict order: by priority, or by arrival alone (FIFO), without a share of each tenant.

A tenant with a quota has an account of its own, since its jobs may be held back where others go
on; all others share one.
"""

from __future__ import annotations

from collections.abc import Iterator, Sequence

from rota.core.deadlines import strict_sort_key
from rota.core.entries import InternPool, QueueEntry
from rota.core.limits import SORT_KEYS_POOL_MAX
from rota.core.model import Instant, Millis, Spec
from rota.core.policy import OrderKind, Policy
from rota.core.ready_queue.classes import (
    EVERY_CLASS,
    Account,
    ChargedTime,
    ClassQueue,
    FindHead,
    QueueHead,
)


class StrictOrder:
    """By the queue's priority, the job's, and arrival; or by arrival."""

    def __init__(self, policy: Policy, apart: dict[str, int]) -> None:
        self._by_priority = policy.order is OrderKind.PRIORITY
        self._sort_keys: InternPool[int] = InternPool(SORT_KEYS_POOL_MAX)
        self._everyone = Account()
        self._apart: dict[str, Account] = {}
        for tenant, allowed in apart.items():
            account = self._apart[tenant] = Account()
            account.allowed = allowed

    def sort_key(self, spec: Spec) -> int:
        """Nothing but arrival counts, or priority before it, and a deadline's slack within one."""
        return self._sort_keys.same(strict_sort_key(spec)) if self._by_priority else 0

    def rank(self, queue: QueueEntry) -> int:
        """The queue's priority comes before everything, or does not count."""
        return -queue.queue.priority if self._by_priority else 0

    def coarse_length(self, length: Millis) -> Millis:
        """Every bit of it counts."""
        return length

    def account(self, tenant: str, queue: QueueEntry) -> Account:
        """Everyone's, or the tenant's own."""
        return self._apart.get(tenant, self._everyone)

    def add_class(self, account: Account, bit: int, now: Instant) -> None:
        """Notes the class."""
        account.waiting |= bit
        account.ready = account.waiting & account.allowed

    def remove_class(self, account: Account, bit: int) -> None:
        """Forgets the class."""
        account.waiting &= ~bit
        account.ready = account.waiting & account.allowed

    def allow(self, tenant: str, bits: int, now: Instant) -> None:
        """Only a tenant that is a party of its own has a quota."""
        account = self._apart.get(tenant)
        if account is None:
            assert bits == EVERY_CLASS, f"tenant {tenant} has a quota and is not apart"
            return
        account.allowed = bits
        account.ready = account.waiting & bits

    def first(self, mask: int, head: FindHead) -> ClassQueue | None:
        """The first of everyone's, unless one of those apart comes before it."""
        best = self._everyone.first(mask, head)
        for account in self._apart.values():
            other = account.first(mask, head)
            if other is not None and (best is None or _head_entry(other) < _head_entry(best)):
                best = other
        return best

    def only(self, mask: int) -> Account | None:
        """Everyone, while none of those apart waits."""
        accounts = [one for one in (self._everyone, *self._apart.values()) if one.ready & mask]
        return accounts[0] if len(accounts) == 1 else None

    def in_turn(self, mask: int) -> Iterator[Sequence[Account]]:
        """All are level."""
        yield (self._everyone, *self._apart.values())

    def charge(self, account: Account, share: float, span: ChargedTime, count: int = 1) -> float:
        """Nobody is charged."""
        return 0.0

    def charge_more(self, account: Account, rate: float, by: int) -> None:
        """Nobody is charged."""

    def settle_charge(
        self, account: Account, rate: float, span: ChargedTime, count: int = 1
    ) -> None:
        """Nobody is charged."""

    def update_queue(self, queue: QueueEntry) -> None:
        """Moves the queue's lines to where its priority belongs."""
        for account in (self._everyone, *self._apart.values()):
            for class_queue in account.class_queues.values():
                if class_queue.job_class.queue is queue:
                    class_queue.rank = self.rank(queue)
                    account.set_head(class_queue, _head_entry(class_queue)[1])

    def follow_clock(self, by: Millis) -> None:
        """It has no times."""

    def needs_reset(self, now: Instant) -> bool:
        """There are no figures."""
        return False


def _head_entry(class_queue: ClassQueue) -> QueueHead:
    assert class_queue.head_entry is not None, "a line whose head was found has a seat"
    return class_queue.head_entry
