"""Fair share: tenants by the part of the fleet they used, then their queues; or round robin.

The tenant that has used the least for its weight goes first; inside a tenant the same holds
between its queues. A start is charged with its dominant share times its expected length, and its
end corrects that. Old use fades by forward decay: new charges grow by 2 for each half-life. Who
begins to wait starts no lower than whoever is first, without what that one was charged and has not
used yet. Accounts are in a sorted list of blocks with masks of classes, so the first with a job of
some classes is found fast.
"""

from __future__ import annotations

from bisect import bisect_left, bisect_right, insort
from collections.abc import Callable, Iterator, Mapping, Sequence
from typing import Generic, Protocol, TypeAlias, TypeVar

from rota.core.deadlines import urgent_since
from rota.core.entries import InternPool, QueueEntry
from rota.core.limits import QUEUES_KEPT, RUNTIME_GUESS_MS, SORT_KEYS_POOL_MAX
from rota.core.model import Instant, Millis, Resources, Spec
from rota.core.policy import OrderKind, Policy
from rota.core.ready_queue.classes import (
    EVERY_CLASS,
    Account,
    ChargedTime,
    ClassQueue,
    FindHead,
    JobClass,
)
from rota.core.ready_queue.merge_queue import power_of_four_below, rounded_length
from rota.core.resources import amounts

RANKED_BLOCK_MAX = 64
"""Entries in a block before it is split: about the root of the largest number expected."""


class Ranked(Protocol):
    """Whoever sits in a ring."""

    level: int
    """The lowest goes first."""
    had: float
    """On the same level, whoever has had the least goes first."""
    rank: int
    """Tells equals apart, always in the same way."""
    ready: int
    """Bits of the classes that it could go with."""


S = TypeVar("S", bound=Ranked)
RankedEntry: TypeAlias = tuple[int, float, int, S]


class _RankedBlock(Generic[S]):
    __slots__ = ("entries", "mask")

    def __init__(self, entries: list[RankedEntry[S]]) -> None:
        self.entries = entries
        self.mask = 0
        self.repair()

    def repair(self) -> None:
        mask = 0
        for _, _, _, item in self.entries:
            mask |= item.ready
        self.mask = mask


class MaskedSortedList(Generic[S]):
    """All who wait, in order."""

    __slots__ = ("_block_max", "_blocks", "_heads", "lone")

    def __init__(self, block_max: int = RANKED_BLOCK_MAX) -> None:
        self._block_max = block_max
        self.lone: S | None = None
        """Who waits, if it is just one; it need not be told of its other key."""
        self._blocks: list[_RankedBlock[S]] = []
        self._heads: list[RankedEntry[S]] = []
        """The first entry of each block."""

    def first(self, mask: int) -> S | None:
        """The first who has any of these classes ready."""
        for block in self._blocks:
            if block.mask & mask:
                for _, _, _, item in block.entries:
                    if item.ready & mask:
                        return item
                block.repair()
        return None

    def only(self, mask: int) -> S | None:
        """The one who has any of these classes ready, if there is just one."""
        only: S | None = None
        for block in self._blocks:
            if block.mask & mask:
                for _, _, _, item in block.entries:
                    if item.ready & mask:
                        if only is not None:
                            return None
                        only = item
        return only

    def all_with(self, mask: int) -> Iterator[S]:
        """All who have any of these classes ready, in order; nobody may move meanwhile."""
        for block in self._blocks:
            if block.mask & mask:
                for _, _, _, item in block.entries:
                    if item.ready & mask:
                        yield item

    def before(self, item: S) -> list[S]:
        """All who come before this one."""
        found: list[S] = []
        for block in self._blocks:
            for _, _, rank, other in block.entries:
                if rank == item.rank:
                    return found
                found.append(other)
        return found

    def insert(self, item: S) -> None:
        """It waits from now on."""
        entry = (item.level, item.had, item.rank, item)
        if not self._blocks:
            self.lone = item
            self._blocks.append(_RankedBlock([entry]))
            self._heads.append(entry)
            return
        self._look_at_lone()
        self.lone = None
        at = self._find(entry)
        block = self._blocks[at]
        insort(block.entries, entry)
        self._heads[at] = block.entries[0]
        block.mask |= item.ready
        if len(block.entries) > 2 * self._block_max:
            rear = block.entries[self._block_max :]
            del block.entries[self._block_max :]
            block.repair()
            self._blocks.insert(at + 1, _RankedBlock(rear))
            self._heads.insert(at + 1, rear[0])

    def remove(self, item: S) -> None:
        """It waits no longer."""
        self._look_at_lone()
        entry = (item.level, item.had, item.rank, item)
        at = self._find(entry)
        entries = self._blocks[at].entries
        del entries[bisect_left(entries, entry)]
        if entries:
            self._heads[at] = entries[0]
        else:
            del self._blocks[at], self._heads[at]
        is_lone = len(self._blocks) == 1 and len(self._blocks[0].entries) == 1
        self.lone = self._heads[0][3] if is_lone else None

    def move(self, item: S, had: float) -> None:
        """It has had so much by now."""
        if self.lone is not None:
            item.had = had
            return
        # Most stay in their block: this is done for every start and every end.
        level, rank, heads = item.level, item.rank, self._heads
        before, after = (level, item.had, rank, item), (level, had, rank, item)
        at = 0
        if len(heads) > 1:
            at = self._find(before)
            if at != self._find(after):
                self.remove(item)
                item.had = had
                self.insert(item)
                return
        entries = self._blocks[at].entries
        del entries[bisect_left(entries, before)]
        insort(entries, after)
        item.had = had
        heads[at] = entries[0]

    def _look_at_lone(self) -> None:
        """The entry of one that is alone is put right, for it is to be compared."""
        item = self.lone
        if item is not None:
            entry = (item.level, item.had, item.rank, item)
            self._blocks[0].entries[0] = self._heads[0] = entry

    def widen(self, item: S) -> None:
        """It has more classes ready than before."""
        block = self._blocks[self._find((item.level, item.had, item.rank, item))]
        block.mask |= item.ready

    def _find(self, entry: RankedEntry[S]) -> int:
        """The block in which the entry is, or would be."""
        heads = self._heads
        return 0 if len(heads) == 1 else (bisect_right(heads, entry) or 1) - 1


def dominant_share(needs: Resources, fleet: Resources) -> float:
    """The part of the fleet that is taken, of the resource of which it is the largest part."""
    there = dict(amounts(fleet))
    parts = (
        amount / there[kind] if there.get(kind) else 1.0
        for kind, amount in amounts(needs)
        if amount > 0
    )
    return min(1.0, max(parts, default=0.0))


def share_of(job_class: JobClass, fleet: Resources) -> float:
    """The same for one job of a class, remembered as long as the fleet is what it is."""
    if job_class.share_of_capacity is not fleet:
        job_class.share_of_capacity = fleet
        job_class.share = dominant_share(job_class.needs.resources, fleet)
    return job_class.share


RESET_HALF_LIVES = 500
"""After so many half-lives charges come near the end of what a number can hold."""
HALF_LIVES_MAX = 1_000
"""Half-lives beyond which a number ends; only a clock gone mad comes there."""
LENGTH_ALONE = 1e6
"""From this weight on nothing but length counts in a job's place, and a little more of it does too:
only jobs of one lane that are on the shelf still go by arrival."""


Balance: TypeAlias = tuple[str, str, float]
"""(tenant, queue or none of them, what was had for its weight)."""


class FairAccount(Account):
    """A party, and what it has had: in the order's own money, for its weight where compared."""

    __slots__ = ("had", "level", "prepaid", "rank", "rate", "used", "weight")

    def __init__(self, rank: int, weight: float) -> None:
        super().__init__()
        self.rank = rank
        self.weight = weight
        self.level = 0
        """Minus its priority, which comes before what it has had."""
        self.had = 0.0
        """For its weight."""
        self.used = 0.0
        """The same without the weight, and without what was never used: for people."""
        self.rate = 0.0
        """What all that runs costs a millisecond."""
        self.prepaid = 0.0
        """The sum of each running job's rate times the end it was charged for."""

    def net_usage(self, now: Instant) -> float:
        """Had for its weight, without what is charged for the time to come."""
        return self.had - max(0.0, self.prepaid - self.rate * now) / self.weight


class TenantQueueAccount(FairAccount):
    """A tenant's jobs in one queue."""

    __slots__ = ("tenant",)

    def __init__(self, rank: int, share: TenantAccount, queue: QueueEntry) -> None:
        super().__init__(rank, queue.queue.weight)
        self.tenant = share
        self.level = -queue.queue.priority


class TenantAccount(FairAccount):
    """A tenant; its lines are those of its leaves."""

    __slots__ = ("floor", "queue_accounts", "waiting_queues")

    def __init__(self, rank: int, weight: float) -> None:
        super().__init__(rank, weight)
        self.waiting_queues: MaskedSortedList[TenantQueueAccount] = MaskedSortedList()
        self.queue_accounts: dict[str, TenantQueueAccount] = {}
        self.floor = 0.0


class FairOrder:
    """Tenants by what they have had, then queues, then the place of each job."""

    def __init__(
        self,
        policy: Policy,
        now: Instant,
        weight_of: Callable[[str], float],
        used: Mapping[str, float],
        queues_kept: int = QUEUES_KEPT,
    ) -> None:
        self._queues_kept = queues_kept
        self._policy = policy
        self._since = now
        self._in_turn = policy.order is OrderKind.ROUND_ROBIN
        self._length_alone = policy.beta >= LENGTH_ALONE
        self._usually_later = self._later(RUNTIME_GUESS_MS)
        self._sort_keys: InternPool[int] = InternPool(SORT_KEYS_POOL_MAX)
        self._weight_of = weight_of
        self._tenants: dict[str, TenantAccount] = {}
        self._waiting: MaskedSortedList[TenantAccount] = MaskedSortedList()
        self._floor = 0.0
        self._now = now
        self._scale = 1.0
        self._scaled_at: Instant | None = None
        """For when that holds: many are charged in one turn."""
        self._ranks = 0
        for tenant, amount in used.items():
            share = self.tenant_account(tenant)
            share.used = amount
            share.had = amount / share.weight

    def tenant_account(self, tenant: str) -> TenantAccount:
        """The tenant's account."""
        share = self._tenants.get(tenant)
        if share is None:
            self._ranks += 1
            share = self._tenants[tenant] = TenantAccount(self._ranks, self._weight_of(tenant))
        return share

    def sort_key(self, spec: Spec) -> int:
        """Since when it waits, later for a long job, earlier for an urgent one."""
        policy, terms = self._policy, spec.terms
        since = spec.created_at if spec.run_at is None else max(spec.created_at, spec.run_at)
        # What was learned does not count here: a place must stay what it is.
        length = spec.graph_ms or terms.expected_runtime_ms
        since += self._later(length) if length else self._usually_later
        if spec.finish_by is not None:
            since = min(since, urgent_since(spec))
        return self._sort_keys.same(since - policy.priority_ms * terms.priority)

    def _later(self, length: Millis) -> Millis:
        """How much later the place of a job is that runs so long."""
        if not self._length_alone:
            length = rounded_length(length)
        return int(self._policy.beta * min(length, self._policy.length_cap_ms))

    def rank(self, queue: QueueEntry) -> int:
        """A party has one queue only."""
        return 0

    def coarse_length(self, length: Millis) -> Millis:
        """The shortest of all makes no better use of a gap than one nearly as short and older."""
        return length if self._length_alone else power_of_four_below(length)

    def account(self, tenant: str, queue: QueueEntry) -> TenantQueueAccount:
        """The tenant's jobs in the queue."""
        share = self._tenants.get(tenant) or self.tenant_account(tenant)
        leaf = share.queue_accounts.get(queue.queue.name)
        if leaf is None:
            if len(share.queue_accounts) >= self._queues_kept:
                share.queue_accounts = {
                    name: one for name, one in share.queue_accounts.items() if one.class_queues
                }
            self._ranks += 1
            leaf = share.queue_accounts[queue.queue.name] = TenantQueueAccount(
                self._ranks, share, queue
            )
            leaf.allowed = share.allowed
        return leaf

    # Waiting

    def add_class(self, account: Account, bit: int, now: Instant) -> None:
        """Notes the class, and seats a tenant or queue that had nothing."""
        assert isinstance(account, TenantQueueAccount)
        account.waiting |= bit
        self._now = max(self._now, now)
        if account.allowed & bit:
            self._set_ready(account, account.ready | bit)

    def remove_class(self, account: Account, bit: int) -> None:
        """Forgets the class; who has nothing left gives the seat up."""
        assert isinstance(account, TenantQueueAccount)
        account.waiting &= ~bit
        if account.ready & bit:
            self._set_ready(account, account.ready & ~bit)

    def allow(self, tenant: str, bits: int, now: Instant) -> None:
        """Of the classes that wait only these are ready."""
        self._now = now
        share = self.tenant_account(tenant)
        share.allowed = bits
        for leaf in share.queue_accounts.values():
            leaf.allowed = bits
            if leaf.ready != leaf.waiting & bits:
                self._set_ready(leaf, leaf.waiting & bits)

    def _set_ready(self, leaf: TenantQueueAccount, bits: int) -> None:
        """A class is of one queue only, so a tenant's bits are those of its queues side by side."""
        share, now = leaf.tenant, self._now
        others = share.ready & ~leaf.ready
        share.floor = _set_ready_classes(share.waiting_queues, leaf, bits, (now, share.floor))
        self._floor = _set_ready_classes(self._waiting, share, others | bits, (now, self._floor))

    # Choosing

    def first(self, mask: int, head: FindHead) -> ClassQueue | None:
        """The tenant that has had the least, its queue that has, and the first job there."""
        share = self._waiting.lone or self._waiting.first(mask)
        leaf = (
            None if share is None else share.waiting_queues.lone or share.waiting_queues.first(mask)
        )
        return None if leaf is None else leaf.first(mask, head)

    def only(self, mask: int) -> Account | None:
        """The queue, if one tenant waits and in one queue."""
        share = self._waiting.only(mask)
        return None if share is None else share.waiting_queues.only(mask)

    def in_turn(self, mask: int) -> Iterator[Sequence[Account]]:
        """Each queue of each tenant by itself."""
        lone = self._waiting.lone
        leaf = None if lone is None else lone.waiting_queues.lone
        if leaf is not None:
            if leaf.ready & mask:
                yield (leaf,)
            return
        for share in self._waiting.all_with(mask):
            for leaf in share.waiting_queues.all_with(mask):
                yield (leaf,)

    def ahead_of(self, tenant: str) -> int:
        """How many tenants that wait go before this one."""
        share = self._tenants.get(tenant)
        return 0 if share is None or not share.ready else len(self._waiting.before(share))

    def rival(self, tenant: str) -> str | None:
        """Who waits and goes before everybody else, if it is not this one."""
        first = self._waiting.first(EVERY_CLASS)
        names = (name for name, share in self._tenants.items() if share is first)
        name = next(names, None)
        return None if name == tenant else name

    # Charging

    def charge(self, account: Account, share: float, span: ChargedTime, count: int = 1) -> float:
        """Charges for the whole expected run, or one turn, of each."""
        now, ends_at = span
        self._now = now
        scale = self._scale if now == self._scaled_at else self.scale(now)
        rate = 0.0 if self._in_turn else share * scale
        amount = 1.0 if self._in_turn else rate * (ends_at - now)
        self._charge(account, rate, rate * ends_at, amount, count)
        return rate

    def charge_more(self, account: Account, rate: float, by: Millis) -> None:
        """Charges for so much more."""
        if rate:
            self._charge(account, 0.0, rate * by, rate * by)

    def settle_charge(
        self, account: Account, rate: float, span: ChargedTime, count: int = 1
    ) -> None:
        """Gives back what was not used, or charges what was used beyond it."""
        if rate:
            now, ends_at = span
            self._charge(account, -rate, -rate * ends_at, rate * (now - ends_at), count)

    def _charge(
        self, account: Account, rate: float, ahead: float, amount: float, count: int = 1
    ) -> None:
        """So many times, one after the other: sums are what they would be if each came alone."""
        leaf: TenantQueueAccount = account  # type: ignore[assignment]  # this order has no other parties
        share = leaf.tenant
        had, leaf_had = share.had, leaf.had
        while True:
            share.used += amount
            share.rate += rate
            share.prepaid += ahead
            leaf.rate += rate
            leaf.prepaid += ahead
            had += amount / share.weight
            leaf_had += amount / leaf.weight
            if count <= 1:
                break
            count -= 1
        if share.ready and self._waiting.lone is None:
            self._waiting.move(share, had)
        else:
            share.had = had
        if leaf.ready and share.waiting_queues.lone is None:
            share.waiting_queues.move(leaf, leaf_had)
        else:
            leaf.had = leaf_had

    def scale(self, now: Instant) -> float:
        """How much larger a charge is now than one at the beginning."""
        if now != self._scaled_at:
            half_lives = (now - self._since) / self._policy.half_life_ms
            self._scale = (
                1.0
                if self._in_turn
                else 2.0 ** max(-HALF_LIVES_MAX, min(HALF_LIVES_MAX, half_lives))
            )
            self._scaled_at = now
        return self._scale

    def usage(self, tenant: str, now: Instant) -> float:
        """What the tenant has used, faded to now: shares of the fleet times milliseconds."""
        share = self._tenants.get(tenant)
        if share is None or self._in_turn:
            return 0.0
        until_now = share.used - max(0.0, share.prepaid - share.rate * now)
        return max(0.0, until_now) / self.scale(now)

    def balances(self, now: Instant) -> tuple[Balance, ...]:
        """What each has had, in the money of the moment: for a copy to go on with."""
        scale = self.scale(now)
        return tuple(
            (name, queue, account.had / scale)
            for name, share in self._tenants.items()
            for queue, account in (("", share), *share.queue_accounts.items())
        )

    def restore_balances(self, standings: Sequence[Balance], now: Instant) -> None:
        """Each, having what waits already, moves to where it stood."""
        scale = self.scale(now)
        for name, queue, had in standings:
            share = self.tenant_account(name)
            if not queue:
                _move(self._waiting, share, had * scale)
            elif queue in share.queue_accounts:
                _move(share.waiting_queues, share.queue_accounts[queue], had * scale)

    def needs_reset(self, now: Instant) -> bool:
        """Whether charges have become too large to be exact."""
        half_lives = (now - self._since) / self._policy.half_life_ms
        return not self._in_turn and half_lives > RESET_HALF_LIVES

    def follow_clock(self, by: Millis) -> None:
        """The clock was set by so much: what is charged stays what it was."""
        self._since += by
        self._now += by
        self._scaled_at = None
        for share in self._tenants.values():
            for account in (share, *share.queue_accounts.values()):
                account.prepaid += account.rate * by

    def update_queue(self, queue: QueueEntry) -> None:
        """Moves the queue's seats to where its priority belongs."""
        for share in self._tenants.values():
            leaf = share.queue_accounts.get(queue.queue.name)
            if leaf is None:
                continue
            leaf.weight = queue.queue.weight
            if leaf.ready:
                share.waiting_queues.remove(leaf)
            leaf.level = -queue.queue.priority
            if leaf.ready:
                share.waiting_queues.insert(leaf)


def _move(accounts: MaskedSortedList, account: FairAccount, had: float) -> None:  # type: ignore[type-arg]
    if account.ready:
        accounts.move(account, had)
    else:
        account.had = had


def _set_ready_classes(
    accounts: MaskedSortedList,  # type: ignore[type-arg]
    account: FairAccount,
    bits: int,
    at: tuple[Instant, float],
) -> float:
    """The account has these classes ready; answers how low the next who comes may start."""
    now, floor = at
    before, account.ready = account.ready, bits
    if bits and not before:
        first = accounts.first(EVERY_CLASS)
        start = floor if first is None else first.net_usage(now)
        account.had = max(account.had, start)
        accounts.insert(account)
    elif before and not bits:
        accounts.remove(account)
        floor = max(floor, account.net_usage(now))
    elif bits & ~before:
        accounts.widen(account)
    return floor
