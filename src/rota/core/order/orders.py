"""What an order of jobs has to answer, whichever rules it goes by."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from typing import Protocol, TypeAlias

from rota.core.memory.cells import QueueEntry
from rota.core.model import Instant, Millis, Spec
from rota.core.order.party import Account, ClassQueue, FindHead


class OrderPolicy(Protocol):
    """Who goes first. It knows parties and bits of classes, never jobs but by their place."""

    def sort_key(self, spec: Spec) -> int:
        """What the job is sorted by inside its party, before arrival; the same for ever."""
        ...

    def account(self, tenant: str, queue: QueueEntry) -> Account:
        """Those with whom such jobs stand."""
        ...

    def rank(self, queue: QueueEntry) -> int:
        """What its lines are sorted by inside their party before the places of jobs."""
        ...

    def coarse_length(self, length: Millis) -> Millis:
        """No more than the length: jobs with the same are equally short to those who seek some."""
        ...

    def add_class(self, party: Account, bit: int, now: Instant) -> None:
        """The party has jobs of this class now."""
        ...

    def remove_class(self, party: Account, bit: int) -> None:
        """The party has no jobs of this class any more."""
        ...

    def allow(self, tenant: str, bits: int, now: Instant) -> None:
        """Quotas leave room for these classes of the tenant and no others."""
        ...

    def first(self, mask: int, head: FindHead) -> ClassQueue | None:
        """The line, among these classes, whose head goes first."""
        ...

    def only(self, mask: int) -> Account | None:
        """The party that has any of these classes ready, if there is just one."""
        ...

    def in_turn(self, mask: int) -> Iterator[Sequence[Account]]:
        """Parties that have these classes ready, those first that go first; level ones together."""
        ...

    def charge(self, payer: Account, share: float, span: ChargedTime, count: int = 1) -> float:
        """So many jobs start, one after the other, that take this share of the fleet each.

        Answers what a millisecond costs any of them.
        """
        ...

    def charge_more(self, payer: Account, rate: float, by: int) -> None:
        """What was charged for was too little by so many milliseconds, or too much."""
        ...

    def settle_charge(self, payer: Account, rate: float, span: ChargedTime, count: int = 1) -> None:
        """So many jobs that cost this and were charged until `span` ends have ended now."""
        ...

    def update_queue(self, queue: QueueEntry) -> None:
        """The queue's priority or weight is another."""
        ...

    def follow_clock(self, by: Millis) -> None:
        """The clock was set by so much."""
        ...

    def needs_reset(self, now: Instant) -> bool:
        """Whether its figures have grown so large that it has to begin anew."""
        ...


ChargedTime: TypeAlias = tuple[Instant, Instant]
"""(now, when it will probably have ended)."""
