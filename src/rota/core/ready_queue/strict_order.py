"""Strict order: by priority, or by arrival alone (FIFO), without a share of each tenant.

A tenant with a quota has an account of its own, since its jobs may be held back while others start;
all others share one.
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
    """Strict order: the queue's priority, the job's priority, then arrival; or arrival alone."""

    def __init__(self, policy: Policy, limited: dict[str, int]) -> None:
        self._by_priority = policy.order is OrderKind.PRIORITY
        self._sort_keys: InternPool[int] = InternPool(SORT_KEYS_POOL_MAX)
        self._shared = Account()
        self._own: dict[str, Account] = {}
        for tenant, allowed in limited.items():
            account = self._own[tenant] = Account()
            account.allowed = allowed

    def sort_key(self, spec: Spec) -> int:
        """Priority, then a deadline's slack; 0 for all jobs if arrival alone counts."""
        return self._sort_keys.same(strict_sort_key(spec)) if self._by_priority else 0

    def rank(self, queue: QueueEntry) -> int:
        """Priority of the queue, negative; 0 for all queues if arrival alone counts."""
        return -queue.queue.priority if self._by_priority else 0

    def coarse_length(self, length: Millis) -> Millis:
        """Every millisecond counts."""
        return length

    def account(self, tenant: str, queue: QueueEntry) -> Account:
        """Shared account, or the tenant's own."""
        return self._own.get(tenant, self._shared)

    def add_class(self, account: Account, bit: int, now: Instant) -> None:
        account.waiting |= bit
        account.ready = account.waiting & account.allowed

    def remove_class(self, account: Account, bit: int) -> None:
        account.waiting &= ~bit
        account.ready = account.waiting & account.allowed

    def allow(self, tenant: str, bits: int, now: Instant) -> None:
        """Only a tenant with an account of its own has a quota."""
        account = self._own.get(tenant)
        if account is None:
            assert bits == EVERY_CLASS, f"tenant {tenant} has a quota and no account of its own"
            return
        account.allowed = bits
        account.ready = account.waiting & bits

    def first(self, mask: int, head: FindHead) -> ClassQueue | None:
        """First of the heads of all accounts."""
        best = self._shared.first(mask, head)
        for account in self._own.values():
            other = account.first(mask, head)
            if other is not None and (best is None or _head_entry(other) < _head_entry(best)):
                best = other
        return best

    def only(self, mask: int) -> Account | None:
        """Account that alone has any of these classes ready."""
        accounts = [one for one in (self._shared, *self._own.values()) if one.ready & mask]
        return accounts[0] if len(accounts) == 1 else None

    def in_turn(self, mask: int) -> Iterator[Sequence[Account]]:
        """All accounts at once: they are equal."""
        yield (self._shared, *self._own.values())

    def charge(self, account: Account, share: float, span: ChargedTime, count: int = 1) -> float:
        """Charges nothing: usage does not count."""
        return 0.0

    def charge_more(self, account: Account, rate: float, by: int) -> None:
        """Charges nothing."""

    def settle_charge(
        self, account: Account, rate: float, span: ChargedTime, count: int = 1
    ) -> None:
        """Charges nothing."""

    def update_queue(self, queue: QueueEntry) -> None:
        """Moves the queue's class queues to the position of its new priority."""
        for account in (self._shared, *self._own.values()):
            for class_queue in account.class_queues.values():
                if class_queue.job_class.queue is queue:
                    class_queue.rank = self.rank(queue)
                    account.set_head(class_queue, _head_entry(class_queue)[1])

    def follow_clock(self, by: Millis) -> None:
        """Does nothing: no times are kept."""

    def needs_reset(self, now: Instant) -> bool:
        """Never: no numbers grow."""
        return False


def _head_entry(class_queue: ClassQueue) -> QueueHead:
    assert class_queue.head_entry is not None, "a class queue with a head has no head entry"
    return class_queue.head_entry
